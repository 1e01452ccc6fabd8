package hostile

import (
	"os"
	"path/filepath"
	"testing"
)

// Remotes builds the attacks on a user who fetches from the remote origin of a hostile repository, or pushes to it, by
// its name. Plain git is led to a program or to another place. The gate must refuse each configuration before git runs.
func Remotes(t testing.TB, dir string) []Repository {
	t.Helper()
	all := remoteAttacks()
	for i := range all {
		build := all[i].build
		all[i].build = func(b *builder) {
			b.target = filepath.Join(b.root, "target")
			b.runGitIn(b.root, "", "clone", "--quiet", "--bare", "repo", "target")
			b.runGit("remote", "add", "origin", "https://github.com/a/b.git")
			b.setConfig("protocol.ext.allow", "always")
			b.setConfig("branch.main.remote", "origin")
			b.setConfig("branch.main.merge", "refs/heads/main")
			build(b)
		}
		if all[i].control == nil {
			all[i].control = []string{"fetch", "origin"}
		}
	}
	return buildAttacks(t, dir, all, func(*builder) {})
}

func remoteAttacks() []attack {
	push := []string{"push", "origin", "main"}
	evil := func(b *builder) string { return "ext::" + b.evil }
	local := func(b *builder) { b.setConfig("remote.origin.url", b.target) }
	// planted makes a ref of this repository, or of another, the sign that the attack works.
	planted := func(b *builder, ref string) {
		b.marker = ref
		b.arm = func() { os.Remove(ref) }
	}
	rewriting := func(b *builder) string {
		return "[url \"ext::" + b.evil + " \"]\n\tinsteadOf = https://\n"
	}
	moved := func(b *builder) {
		b.runGit("config", "url.ext::"+filepath.Join(b.repo, "inner", "evil")+" .insteadOf", "https://")
		b.failOnError(os.Rename(filepath.Join(b.repo, ".git"), filepath.Join(b.repo, "inner")))
	}
	return []attack{
		{key: "remote url.*.insteadOf", build: func(b *builder) { b.setConfig("url."+evil(b)+" .insteadOf", "https://") }},
		{key: "remote url.*.insteadOf of this address", build: func(b *builder) {
			b.setConfig("url."+evil(b)+" .insteadOf", "https://github.com/a/b.git")
		}},
		{key: "remote url.*.pushInsteadOf", control: push, build: func(b *builder) {
			b.setConfig("url."+evil(b)+" .pushInsteadOf", "https://")
		}},
		{key: "remote include.path", build: func(b *builder) {
			b.writeFile("outside.config", rewriting(b))
			b.setConfig("include.path", "../../outside.config")
		}},
		{key: "remote includeIf.*.path", build: func(b *builder) {
			b.writeFile("outside.config", rewriting(b))
			b.setConfig("includeIf.gitdir:**.path", "../../outside.config")
		}},
		{key: "remote extensions.worktreeConfig", build: func(b *builder) {
			b.setConfig("core.repositoryFormatVersion", "1")
			b.setConfig("extensions.worktreeConfig", "true")
			b.writeFile("repo/.git/config.worktree", rewriting(b))
		}},
		{key: "remote.origin.url", build: func(b *builder) { b.setConfig("remote.origin.url", evil(b)) }},
		{key: "remote.origin.url twice", control: push, build: func(b *builder) {
			local(b)
			b.runGit("config", "--add", "remote.origin.url", evil(b))
		}},
		{key: "remote.origin.pushurl", control: push, build: func(b *builder) {
			b.setConfig("remote.origin.pushurl", evil(b))
		}},
		{key: "remote.origin.uploadpack", build: func(b *builder) {
			local(b)
			b.setConfig("remote.origin.uploadpack", b.evil)
		}},
		{key: "remote.origin.receivepack", control: push, build: func(b *builder) {
			local(b)
			b.setConfig("remote.origin.receivepack", b.evil)
		}},
		{key: "remote.origin.vcs", build: func(b *builder) {
			b.setConfig("remote.origin.vcs", "ext")
			b.setConfig("remote.origin.url", b.evil)
		}},
		{key: "remote.origin.fetch", build: func(b *builder) {
			local(b)
			b.setConfig("remote.origin.fetch", "+refs/heads/main:refs/heads/planted")
			planted(b, filepath.Join(b.repo, ".git", "refs", "heads", "planted"))
		}},
		{key: "remote.origin.push", control: []string{"push", "origin"}, build: func(b *builder) {
			local(b)
			b.setConfig("remote.origin.push", "+refs/heads/main:refs/heads/planted")
			planted(b, filepath.Join(b.target, "refs", "heads", "planted"))
		}},
		{key: "remote.origin.mirror", control: []string{"push", "origin"}, build: func(b *builder) {
			local(b)
			b.setConfig("remote.origin.mirror", "true")
			b.runGit("update-ref", "refs/notes/planted", "HEAD")
			planted(b, filepath.Join(b.target, "refs", "notes", "planted"))
		}},
		{key: "remotes.origin", build: func(b *builder) {
			b.setConfig("remotes.origin", "evil also")
			b.setConfig("remote.evil.url", evil(b))
			b.setConfig("remote.also.url", evil(b))
		}},
		{key: "branch.*.remote", control: []string{"fetch"}, build: func(b *builder) {
			b.setConfig("branch.main.remote", evil(b))
		}},
		{key: "branch.*.pushRemote", control: []string{"push"}, build: func(b *builder) {
			b.setConfig("branch.main.pushRemote", evil(b))
			b.setConfig("push.default", "current")
		}},
		{key: "remote.pushDefault", control: []string{"push"}, build: func(b *builder) {
			b.setConfig("remote.pushDefault", evil(b))
			b.setConfig("push.default", "current")
		}},
		{key: "remote .git file", build: func(b *builder) { moved(b); b.writeFile("repo/.git", "gitdir: inner\n") }},
		{key: "remote .git link", build: func(b *builder) {
			moved(b)
			b.failOnError(os.Symlink("inner", filepath.Join(b.repo, ".git")))
		}},
		{key: "remote commondir", build: func(b *builder) {
			moved(b)
			b.writeFile("repo/.git/HEAD", "ref: refs/heads/main\n")
			b.writeFile("repo/.git/commondir", "../inner\n")
			b.writeFile("repo/.git/config", "[remote \"origin\"]\n\turl = https://github.com/a/b.git\n")
		}},
		{key: "remote config link", build: func(b *builder) {
			b.setConfig("url."+evil(b)+" .insteadOf", "https://")
			b.failOnError(os.Rename(filepath.Join(b.repo, ".git", "config"), filepath.Join(b.repo, "configured")))
			b.failOnError(os.Symlink("../configured", filepath.Join(b.repo, ".git", "config")))
		}},
	}
}
