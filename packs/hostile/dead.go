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
		{"core.editor", "no command opens an editor", program},
		{"sequence.editor", "no command rebases", program},
		{"interactive.diffFilter", "no command is interactive", program},
		{"merge.evil.driver", "no command merges, and show does not redo merges", program},
		{"log.diffMerges", "sets only what -m means", text("remerge")},
		{"filter.evil.smudge", "no command writes to the work tree", program},
		{"trailer.evil.command", "only interpret-trailers runs it", program},
		{"gpg.ssh.defaultKeyCommand", "no command signs", program},
		{"difftool.evil.cmd", "no command opens a tool", program},
		{"mergetool.evil.cmd", "no command opens a tool", program},
		{"tar.evil.command", "no command archives", program},
		{"uploadpack.packObjectsHook", "obeyed only in protected configuration", program},
		{"trace2.normalTarget", "read only from system and global configuration", func(b *builder) string { return b.marker }},
		{"web.browser", "no command opens a browser", text("evil")},
		{"browser.evil.cmd", "no command opens a browser", program},
		{"submodule.recurse", "no command checks out or fetches", text("true")},
		{"notes.displayRef", "shows what the repository holds anyway", text("refs/notes/*")},
		{"blame.ignoreRevsFile", "no command blames", text("/dev/null")},
	}
}
