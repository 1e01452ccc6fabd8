package hostile

import (
	"os"
	"path/filepath"
)

// secret represents data outside the repository, in file names and in contents.
const secret = "outside-secret"

// submoduleAttacks returns attacks by a nested repository, which git queries with a separate git process.
func submoduleAttacks() []attack {
	nested := func(build func(b *builder, sub string)) func(*builder) {
		return func(b *builder) {
			b.runGit("clone", "--quiet", ".", "sub")
			b.runGit("add", "sub")
			b.writeFile("repo/.gitmodules", "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n")
			b.commitAll("submodule")
			b.setConfig("submodule.sub.url", "./sub")
			sub := filepath.Join(b.repo, "sub")
			b.writeFile("repo/sub/file", "changed below\n")
			build(b, sub)
		}
	}
	watched := nested(func(b *builder, sub string) { b.runGitIn(sub, "", "config", "core.fsmonitor", b.evil) })
	moved := func(b *builder, sub string) { b.runGitIn(sub, "", "commit", "--quiet", "--all", "--message=moved") }
	return []attack{
		{key: "submodule core.fsmonitor", control: statusArgs(), build: watched},
		{key: "diff submodule core.fsmonitor", control: diffArgs(), build: watched},
		{key: "diff.submodule", control: diffArgs(), build: nested(func(b *builder, sub string) {
			moved(b, sub)
			b.setConfig("diff.submodule", "diff")
			b.runGitIn(sub, "", "config", "diff.external", b.evil)
		})},
		{key: "show diff.submodule", control: showArgs(), build: nested(func(b *builder, sub string) {
			moved(b, sub)
			b.commitAll("follow")
			b.setConfig("diff.submodule", "diff")
			b.runGitIn(sub, "", "config", "diff.external", b.evil)
		})},
		{key: "status.submoduleSummary", control: statusArgs(), build: nested(func(b *builder, sub string) {
			moved(b, sub)
			b.setConfig("status.submoduleSummary", "true")
			b.runGitIn(sub, "", "config", "format.pretty", "%G?")
			b.runGitIn(sub, "", "config", "core.fsmonitor", b.evil)
		})},
	}
}

// leakAttacks returns attacks that show data outside the repository, or that change or hide output.
func leakAttacks() []attack {
	return []attack{
		{key: "core.worktree", control: statusArgs(), leak: secret, build: func(b *builder) {
			b.writeFile("elsewhere/"+secret, "x\n")
			b.setConfig("core.worktree", filepath.Join(b.root, "elsewhere"))
		}},
		{key: "mailmap.file", control: logArgs(), leak: secret, build: func(b *builder) {
			b.writeFile("elsewhere", secret+" <author@example.org>\n")
			b.setConfig("mailmap.file", filepath.Join(b.root, "elsewhere"))
		}},
		{key: "refs/replace", control: logArgs(), leak: secret, build: func(b *builder) {
			tree := b.runGit("rev-parse", "HEAD^{tree}")
			b.runGit("replace", "HEAD", b.runGit("commit-tree", "-m", secret, tree))
		}},
		// In UTF-16, git's messages end at their first NUL: the commit shows neither author nor text.
		{key: "i18n.logOutputEncoding", control: logArgs(), leak: "\n\n\ncommit",
			build: setKey("i18n.logOutputEncoding", constantValue("UTF-16LE"))},
		{key: "color.ui", control: logArgs(), leak: "\x1b[", build: setKey("color.ui", constantValue("always"))},
		{key: "color.status", control: statusArgs(), leak: "\x1b[",
			build: setKey("color.status", constantValue("always"))},
		{key: "color.diff", control: diffArgs(), leak: "\x1b[", build: setKey("color.diff", constantValue("always"))},
		{key: "color.branch", control: []string{"branch", "--list"}, leak: "\x1b[",
			build: setKey("color.branch", constantValue("always"))},
	}
}

func constantValue(v string) func(*builder) string { return func(*builder) string { return v } }

// cageAttacks returns attacks that no option of git prevents.
func cageAttacks() []attack {
	filter := func(key string, value func(*builder) string) func(*builder) {
		return func(b *builder) {
			b.writeFile("repo/.git/info/attributes", "* filter=evil\n")
			b.makeIndexStale()
			b.setConfig(key, value(b))
		}
	}
	all := []attack{
		{key: "filter.*.clean", control: statusArgs(), build: filter("filter.evil.clean", evilProgram)},
		{key: "filter.*.process", control: statusArgs(), build: filter("filter.evil.process", evilProgram)},
		{key: "filter.*.required", control: diffArgs(), build: func(b *builder) {
			filter("filter.evil.clean", evilProgram)(b)
			b.setConfig("filter.evil.required", "true")
		}},
		{key: "objects/info/alternates", control: showArgs(), leak: secret, build: func(b *builder) {
			b.makeSecretRepo()
			b.writeFile("repo/.git/objects/info/alternates", filepath.Join(b.root, "elsewhere", ".git", "objects")+"\n")
			b.writeFile("repo/.git/refs/heads/main",
				b.runGitIn(filepath.Join(b.root, "elsewhere"), "", "rev-parse", "HEAD")+"\n")
		}},
		{key: ".git file", control: showArgs(), leak: secret, build: func(b *builder) {
			b.makeSecretRepo()
			b.failOnError(os.RemoveAll(filepath.Join(b.repo, ".git")))
			b.writeFile("repo/.git", "gitdir: "+filepath.Join(b.root, "elsewhere", ".git")+"\n")
		}},
		{key: ".git link", control: showArgs(), leak: secret, build: func(b *builder) {
			b.makeSecretRepo()
			b.failOnError(os.RemoveAll(filepath.Join(b.repo, ".git")))
			b.failOnError(os.Symlink(filepath.Join(b.root, "elsewhere", ".git"), filepath.Join(b.repo, ".git")))
		}},
		{key: "commondir", control: showArgs(), leak: secret, build: func(b *builder) {
			b.makeSecretRepo()
			b.writeFile("repo/.git/commondir", filepath.Join(b.root, "elsewhere", ".git")+"\n")
		}},
	}
	for i := range all {
		all[i].wall = Cage
	}
	return all
}

// makeSecretRepo creates a second repository outside the first, with the secret in its history.
func (b *builder) makeSecretRepo() {
	dir := filepath.Join(b.root, "elsewhere")
	b.makeDir(dir)
	b.runGitIn(dir, "", "init", "--quiet", "--initial-branch=main")
	b.writeFile("elsewhere/private", secret+"\n")
	b.runGitIn(dir, "", "add", "--all")
	b.runGitIn(dir, "", "commit", "--quiet", "--message=private")
}
