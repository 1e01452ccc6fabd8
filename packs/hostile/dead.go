package hostile

// Key is a configuration key that runs a program in some git command, but in none that the git pack runs. A test
// verifies this for each key.
type Key struct {
	Key   string
	Why   string
	value func(*builder) string
}

// Dead lists the keys that the pack's commands never obey.
func Dead() []Key {
	return []Key{
		{"alias.log", "an alias cannot replace a command of git's own", func(b *builder) string { return "!" + b.evil }},
		{"alias.status", "an alias cannot replace a command of git's own", func(b *builder) string { return "!" + b.evil }},
		{"core.editor", "no command opens an editor", evilProgram},
		{"sequence.editor", "no command rebases", evilProgram},
		{"interactive.diffFilter", "no command is interactive", evilProgram},
		{"merge.evil.driver", "no command merges, and show does not redo merges", evilProgram},
		{"log.diffMerges", "sets only what -m means", constantValue("remerge")},
		{"filter.evil.smudge", "no command writes to the work tree", evilProgram},
		{"trailer.evil.command", "only interpret-trailers runs it", evilProgram},
		{"gpg.ssh.defaultKeyCommand", "no command signs", evilProgram},
		{"difftool.evil.cmd", "no command opens a tool", evilProgram},
		{"mergetool.evil.cmd", "no command opens a tool", evilProgram},
		{"tar.evil.command", "no command archives", evilProgram},
		{"uploadpack.packObjectsHook", "obeyed only in protected configuration", evilProgram},
		{"trace2.normalTarget", "read only from system and global configuration", func(b *builder) string { return b.marker }},
		{"web.browser", "no command opens a browser", constantValue("evil")},
		{"browser.evil.cmd", "no command opens a browser", evilProgram},
		{"submodule.recurse", "no command checks out or fetches", constantValue("true")},
		{"notes.displayRef", "shows what the repository holds anyway", constantValue("refs/notes/*")},
		{"blame.ignoreRevsFile", "no command blames", constantValue("/dev/null")},
	}
}
