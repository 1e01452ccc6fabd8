package hostile

import (
	"os"
	"path/filepath"
)

// secret represents data outside the repository, in file names and in contents.
const secret = "outside-secret"

// submodules returns attacks by a nested repository, which git queries with a separate git process.
func submodules() []attack {
	nested := func(build func(b *builder, sub string)) func(*builder) {
		return func(b *builder) {
			b.git("clone", "--quiet", ".", "sub")
			b.git("add", "sub")
			b.write("repo/.gitmodules", "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n")
			b.commit("submodule")
			b.config("submodule.sub.url", "./sub")
			sub := filepath.Join(b.repo, "sub")
			b.write("repo/sub/file", "changed below\n")
			build(b, sub)
		}
	}
	watched := nested(func(b *builder, sub string) { b.in(sub, "", "config", "core.fsmonitor", b.evil) })
	moved := func(b *builder, sub string) { b.in(sub, "", "commit", "--quiet", "--all", "--message=moved") }
	return []attack{
		{key: "submodule core.fsmonitor", control: status(), build: watched},
		{key: "diff submodule core.fsmonitor", control: diff(), build: watched},
		{key: "diff.submodule", control: diff(), build: nested(func(b *builder, sub string) {
			moved(b, sub)
			b.config("diff.submodule", "diff")
			b.in(sub, "", "config", "diff.external", b.evil)
		})},
		{key: "show diff.submodule", control: show(), build: nested(func(b *builder, sub string) {
			moved(b, sub)
			b.commit("follow")
			b.config("diff.submodule", "diff")
			b.in(sub, "", "config", "diff.external", b.evil)
		})},
		{key: "status.submoduleSummary", control: status(), build: nested(func(b *builder, sub string) {
			moved(b, sub)
			b.config("status.submoduleSummary", "true")
			b.in(sub, "", "config", "format.pretty", "%G?")
			b.in(sub, "", "config", "core.fsmonitor", b.evil)
		})},
	}
}

// leaking returns attacks that show data outside the repository, or that change or hide output.
func leaking() []attack {
	return []attack{
		{key: "core.worktree", control: status(), leak: secret, build: func(b *builder) {
			b.write("elsewhere/"+secret, "x\n")
			b.config("core.worktree", filepath.Join(b.root, "elsewhere"))
		}},
		{key: "mailmap.file", control: log(), leak: secret, build: func(b *builder) {
			b.write("elsewhere", secret+" <author@example.org>\n")
			b.config("mailmap.file", filepath.Join(b.root, "elsewhere"))
		}},
		{key: "refs/replace", control: log(), leak: secret, build: func(b *builder) {
			tree := b.git("rev-parse", "HEAD^{tree}")
			b.git("replace", "HEAD", b.git("commit-tree", "-m", secret, tree))
		}},
		// In UTF-16, git's messages end at their first NUL: the commit shows neither author nor text.
		{key: "i18n.logOutputEncoding", control: log(), leak: "\n\n\ncommit", build: set("i18n.logOutputEncoding", text("UTF-16LE"))},
		{key: "color.ui", control: log(), leak: "\x1b[", build: set("color.ui", text("always"))},
		{key: "color.status", control: status(), leak: "\x1b[", build: set("color.status", text("always"))},
		{key: "color.diff", control: diff(), leak: "\x1b[", build: set("color.diff", text("always"))},
		{key: "color.branch", control: []string{"branch", "--list"}, leak: "\x1b[", build: set("color.branch", text("always"))},
	}
}

func text(v string) func(*builder) string { return func(*builder) string { return v } }

// caged returns attacks that no option of git prevents.
func caged() []attack {
	filter := func(key string, value func(*builder) string) func(*builder) {
		return func(b *builder) {
			b.write("repo/.git/info/attributes", "* filter=evil\n")
			b.touch()
			b.config(key, value(b))
		}
	}
	all := []attack{
		{key: "filter.*.clean", control: status(), build: filter("filter.evil.clean", program)},
		{key: "filter.*.process", control: status(), build: filter("filter.evil.process", program)},
		{key: "filter.*.required", control: diff(), build: func(b *builder) {
			filter("filter.evil.clean", program)(b)
			b.config("filter.evil.required", "true")
		}},
		{key: "objects/info/alternates", control: show(), leak: secret, build: func(b *builder) {
			b.elsewhere()
			b.write("repo/.git/objects/info/alternates", filepath.Join(b.root, "elsewhere", ".git", "objects")+"\n")
			b.write("repo/.git/refs/heads/main", b.in(filepath.Join(b.root, "elsewhere"), "", "rev-parse", "HEAD")+"\n")
		}},
		{key: ".git file", control: show(), leak: secret, build: func(b *builder) {
			b.elsewhere()
			b.check(os.RemoveAll(filepath.Join(b.repo, ".git")))
			b.write("repo/.git", "gitdir: "+filepath.Join(b.root, "elsewhere", ".git")+"\n")
		}},
		{key: ".git link", control: show(), leak: secret, build: func(b *builder) {
			b.elsewhere()
			b.check(os.RemoveAll(filepath.Join(b.repo, ".git")))
			b.check(os.Symlink(filepath.Join(b.root, "elsewhere", ".git"), filepath.Join(b.repo, ".git")))
		}},
		{key: "commondir", control: show(), leak: secret, build: func(b *builder) {
			b.elsewhere()
			b.write("repo/.git/commondir", filepath.Join(b.root, "elsewhere", ".git")+"\n")
		}},
	}
	for i := range all {
		all[i].wall = Cage
	}
	return all
}

// elsewhere creates a second repository outside the first, with the secret in its history.
func (b *builder) elsewhere() {
	dir := filepath.Join(b.root, "elsewhere")
	b.mkdir(dir)
	b.in(dir, "", "init", "--quiet", "--initial-branch=main")
	b.write("elsewhere/private", secret+"\n")
	b.in(dir, "", "add", "--all")
	b.in(dir, "", "commit", "--quiet", "--message=private")
}
