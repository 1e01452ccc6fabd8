package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Commits builds the attacks on a user who commits in a hostile repository. Arm changes a file before each commit.
func Commits(t testing.TB, dir string) []Repository {
	t.Helper()
	return buildAttacks(t, dir, commitAttacks(), func(b *builder) {
		arm, n := b.arm, 0
		b.arm = func() {
			arm()
			n++
			b.writeFile("repo/file", fmt.Sprintln("look", n))
		}
	})
}

// Pushes builds the attacks on a user who pushes the branch main from Dir to Target, one of which is hostile.
func Pushes(t testing.TB, dir string) []Repository {
	t.Helper()
	return buildAttacks(t, dir, pushAttacks(), func(b *builder) {
		arm, n := b.arm, 0
		b.arm = func() {
			arm()
			n++
			b.runGit("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "commit", "--quiet",
				"--allow-empty", fmt.Sprint("--message=look ", n))
		}
	})
}

func commitArgs() []string { return []string{"commit", "--all", "--message=x"} }

func commitAttacks() []attack {
	var all []attack
	for _, hook := range []string{"pre-commit", "prepare-commit-msg", "commit-msg", "post-commit",
		"reference-transaction", "post-index-change"} {
		all = append(all, attack{key: "hooks/" + hook, build: func(b *builder) { b.writeProgram(".git/hooks/"+hook, "") }})
	}
	all = append(all, []attack{
		{key: "core.hooksPath", build: func(b *builder) {
			b.writeProgram(".git/elsewhere/pre-commit", "")
			b.setConfig("core.hooksPath", ".git/elsewhere")
		}},
		{key: "core.fsmonitor", build: setKey("core.fsmonitor", evilProgram)},
		{key: "commit.gpgSign", build: func(b *builder) {
			b.setConfig("commit.gpgSign", "true")
			b.setConfig("user.signingKey", "x")
			b.setConfig("gpg.program", b.evil)
		}},
		{key: "gpg.ssh.program", build: func(b *builder) {
			b.setConfig("commit.gpgSign", "true")
			b.setConfig("gpg.format", "ssh")
			b.setConfig("user.signingKey", "key::ssh-ed25519 AAAA")
			b.setConfig("gpg.ssh.program", b.evil)
		}},
		{key: "gc.auto", build: func(b *builder) {
			b.addLooseObjects(".git")
			b.writeProgram(".git/hooks/pre-auto-gc", "")
		}},
		{key: "submodule core.fsmonitor", build: func(b *builder) {
			b.runGit("clone", "--quiet", ".", "sub")
			b.runGit("add", "sub")
			b.commitAll("submodule")
			b.writeFile("repo/sub/file", "changed below\n")
			b.runGitIn(filepath.Join(b.repo, "sub"), "", "config", "core.fsmonitor", b.evil)
		}},
		{key: "core.worktree", leak: "delete mode", build: func(b *builder) {
			b.makeDir(filepath.Join(b.root, "elsewhere"))
			b.setConfig("core.worktree", filepath.Join(b.root, "elsewhere"))
		}},
		{key: "filter.*.clean", wall: Cage, build: func(b *builder) {
			b.writeFile("repo/.git/info/attributes", "* filter=evil\n")
			b.setConfig("filter.evil.clean", b.evil)
		}},
		{key: "filter.*.process", wall: Cage, build: func(b *builder) {
			b.writeFile("repo/.git/info/attributes", "* filter=evil\n")
			b.setConfig("filter.evil.process", b.evil)
		}},
	}...)
	for i := range all {
		all[i].control = commitArgs()
	}
	return all
}

// addLooseObjects makes git believe that a repository has too many loose objects.
func (b *builder) addLooseObjects(gitDir string) {
	for i := range 4 {
		b.writeFile(filepath.Join("repo", gitDir, "objects", "17", strings.Repeat(fmt.Sprint(i), 38)), "")
	}
	b.runGitIn(filepath.Join(b.repo, gitDir), "", "config", "gc.auto", "1")
	b.runGitIn(filepath.Join(b.repo, gitDir), "", "config", "gc.autoDetach", "false")
}

// Remote is the address that the pack pushes to. An attack must know it.
const Remote = "ext::git -c protocol.ext.allow=never -c protocol.file.allow=never -c protocol.git.allow=never" +
	" -c protocol.ssh.allow=never -c protocol.http.allow=never -c protocol.https.allow=never receive-pack ."

func pushAttacks() []attack {
	all := append(pushingFrom(), pushingTo()...)
	for i := range all {
		build := all[i].build
		all[i].build = func(b *builder) {
			b.target = filepath.Join(b.root, "target")
			b.runGitIn(b.root, "", "clone", "--quiet", "--bare", "repo", "target")
			b.runGitIn(b.target, "", "remote", "remove", "origin")
			build(b)
		}
		if all[i].control == nil {
			all[i].control = []string{"push", "../target", "main:main"}
		}
	}
	return all
}

// pushingFrom returns attacks by the repository that is pushed.
func pushingFrom() []attack {
	rewrite := func(key string, value func(*builder) string) func(*builder) {
		return func(b *builder) {
			b.setConfig("protocol.ext.allow", "always")
			for _, from := range []string{"../target", Remote} {
				b.runGit("config", "--add", "url."+value(b)+"."+key, from)
			}
		}
	}
	named := func(key string, value func(*builder) string) func(*builder) {
		return func(b *builder) {
			b.setConfig("protocol.ext.allow", "always")
			for _, name := range []string{"../target", Remote} {
				b.setConfig("remote."+name+"."+key, value(b))
			}
		}
	}
	evil := func(b *builder) string { return "ext::" + b.evil }
	// git is in the cage, and the target is writable: this attack is stopped only because the configuration is hidden.
	plant := func(b *builder) string {
		b.marker = filepath.Join(b.target, "planted")
		b.arm = func() { b.failOnError(os.RemoveAll(b.marker)) }
		return "ext::git --git-dir=" + b.marker + " init --quiet"
	}
	// A file hidden under one name must not be found under another. The call ends, successfully or not.
	moved := func(then func(b *builder)) func(*builder) {
		return func(b *builder) {
			named("pushurl", plant)(b)
			b.runGit("commit", "--quiet", "--allow-empty", "--message=moved")
			b.failOnError(os.Rename(filepath.Join(b.repo, ".git"), filepath.Join(b.repo, "inner")))
			then(b)
		}
	}
	return []attack{
		{key: "push .git file", wall: Cage, stops: true,
			build: moved(func(b *builder) { b.writeFile("repo/.git", "gitdir: inner\n") })},
		{key: "push .git link", wall: Cage, stops: true,
			build: moved(func(b *builder) { b.failOnError(os.Symlink("inner", filepath.Join(b.repo, ".git"))) })},
		{key: "push commondir", wall: Cage, stops: true, build: moved(func(b *builder) {
			b.writeFile("repo/.git/HEAD", "ref: refs/heads/main\n")
			b.writeFile("repo/.git/commondir", "../inner\n")
		})},
		{key: "push config link", wall: Cage, stops: true, build: moved(func(b *builder) {
			b.failOnError(os.Rename(filepath.Join(b.repo, "inner"), filepath.Join(b.repo, ".git")))
			b.failOnError(os.Rename(filepath.Join(b.repo, ".git", "config"), filepath.Join(b.repo, "configured")))
			b.failOnError(os.Symlink("../configured", filepath.Join(b.repo, ".git", "config")))
		})},
		{key: "hooks/pre-push", build: func(b *builder) { b.writeProgram(".git/hooks/pre-push", "") }},
		{key: "push core.hooksPath", build: func(b *builder) {
			b.writeProgram(".git/elsewhere/pre-push", "")
			b.setConfig("core.hooksPath", ".git/elsewhere")
		}},
		{key: "push.gpgSign", build: func(b *builder) {
			b.runGitIn(b.target, "", "config", "receive.certNonceSeed", "x")
			b.setConfig("push.gpgSign", "true")
			b.setConfig("user.signingKey", "x")
			b.setConfig("gpg.program", b.evil)
		}},
		{key: "push.recurseSubmodules", build: func(b *builder) {
			b.runGit("clone", "--quiet", ".", "sub")
			sub := filepath.Join(b.repo, "sub")
			b.runGitIn(sub, "", "config", "remote.origin.url", "ext::"+b.evil)
			b.runGitIn(sub, "", "config", "protocol.ext.allow", "always")
			b.writeFile("repo/.gitmodules", "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n")
			b.commitAll("submodule")
			b.runGitIn(sub, "", "commit", "--quiet", "--allow-empty", "--message=moved")
			b.commitAll("follow")
			b.setConfig("submodule.sub.url", "./sub")
			b.setConfig("push.recurseSubmodules", "on-demand")
		}},
		{key: "remote.*.receivepack", build: named("receivepack", evilProgram)},
		{key: "url.*.insteadOf", wall: Cage, build: rewrite("insteadOf", evil)},
		{key: "url.*.insteadOf to git itself", wall: Cage, build: rewrite("insteadOf", plant)},
		{key: "url.*.pushInsteadOf", wall: Cage, build: rewrite("pushInsteadOf", evil)},
		{key: "remote.*.url", wall: Cage, build: named("url", evil)},
		{key: "remote.*.pushurl", wall: Cage, build: named("pushurl", evil)},
		{key: "remote.*.pushurl to git itself", wall: Cage, build: named("pushurl", plant)},
		{key: "push include.path", wall: Cage, build: func(b *builder) {
			b.writeFile("outside.config",
				"[protocol \"ext\"]\n\tallow = always\n[remote \""+Remote+"\"]\n\tpushurl = ext::"+b.evil+
					"\n[remote \"../target\"]\n\tpushurl = ext::"+b.evil+"\n")
			b.setConfig("include.path", "../../outside.config")
		}},
		{key: "push objects/info/alternates", wall: Cage, stops: true, leak: secret, build: func(b *builder) {
			b.makeSecretRepo()
			b.writeFile("repo/.git/objects/info/alternates", filepath.Join(b.root, "elsewhere", ".git", "objects")+"\n")
			b.writeFile("repo/.git/refs/heads/main",
				b.runGitIn(filepath.Join(b.root, "elsewhere"), "", "rev-parse", "HEAD")+"\n")
			b.arm = func() { os.RemoveAll(b.target); b.runGitIn(b.root, "", "init", "--quiet", "--bare", "target") }
		}},
	}
}

// pushingTo returns attacks by the repository that is pushed to.
func pushingTo() []attack {
	var all []attack
	for _, hook := range []string{"pre-receive", "update", "post-receive", "post-update", "reference-transaction"} {
		all = append(all, attack{key: "target hooks/" + hook, build: func(b *builder) { b.writeTargetProgram("hooks/" + hook) }})
	}
	return append(all, []attack{
		{key: "target core.hooksPath", build: func(b *builder) {
			b.writeTargetProgram("elsewhere/update")
			b.runGitIn(b.target, "", "config", "core.hooksPath", filepath.Join(b.target, "elsewhere"))
		}},
		{key: "target receive.procReceiveRefs", stops: true, build: func(b *builder) {
			b.writeTargetProgram("hooks/proc-receive")
			b.runGitIn(b.target, "", "config", "receive.procReceiveRefs", "refs/heads")
		}},
		{key: "target receive.autogc", build: func(b *builder) {
			b.addLooseObjects("../target")
			b.writeTargetProgram("hooks/pre-auto-gc")
		}},
		{key: "target core.alternateRefsCommand", wall: Cage, build: func(b *builder) {
			b.makeSecretRepo()
			b.writeFile("target/objects/info/alternates", filepath.Join(b.root, "elsewhere", ".git", "objects")+"\n")
			b.runGitIn(b.target, "", "config", "core.alternateRefsCommand", b.evil)
		}},
		{key: "target receive.denyCurrentBranch", stops: true, build: func(b *builder) {
			b.failOnError(os.RemoveAll(b.target))
			b.runGitIn(b.root, "", "clone", "--quiet", "repo", "target")
			b.writeFile("target/.git/info/attributes", "* filter=evil\n")
			b.runGitIn(b.target, "", "config", "receive.denyCurrentBranch", "updateInstead")
			b.runGitIn(b.target, "", "config", "filter.evil.clean", b.evil)
			b.runGitIn(b.target, "", "config", "filter.evil.smudge", b.evil)
			b.writeProgram("../target/.git/hooks/push-to-checkout", "")
		}},
	}...)
}

// writeTargetProgram writes a program that creates the marker into the target.
func (b *builder) writeTargetProgram(name string) { b.writeProgram("../target/"+name, "") }
