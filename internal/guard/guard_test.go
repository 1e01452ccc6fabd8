package guard

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, c := range []struct{ dir, name, want string }{
		{"", ".claude", ".claude"}, {"", ".Claude", ".claude"}, {"", ".CLAUDE.", ".claude"}, {"", ".claude ", ".claude"}, {"", ".cl\u200daude", ".claude"},
		{"", ".vſcode", ".vscode"}, {"", ".hus\u212ay", ".husky"}, {"", ".pre-commit-conﬁg.yaml", ".pre-commit-config.yaml"}, {"", "agents.md", "AGENTS.md"},
		{"", "my.Code-Workspace", "*.code-workspace"}, {"", ".code-workspace", "*.code-workspace"}, {"", "lefthook-local.yml", "lefthook*"}, {"", ".lintstagedrc.mjs", ".lintstagedrc*"},
		{".hg", "hgrc", ".hg/hgrc"}, {".HG", "HGRC", ".hg/hgrc"}, {".github", "hooks", ".github/hooks"},
		{"", "hgrc", ""}, {"src", "hooks", ""}, {"", "claude", ""}, {"", ".claudes", ""}, {"", "code-workspace", ""}, {"", "main.go", ""}, {"", "", ""}, {"", "...", ""}, {"", ".git", ""},
	} {
		e, ok := Name(c.dir, c.name)
		if e.Spelt != c.want || ok != (c.want != "") {
			t.Errorf("%q in %q: %q", c.name, c.dir, e.Spelt)
		}
	}
	for path, want := range map[string]string{"/w/p/.Claude/x/y": ".claude", "/w/.hg/hgrc": ".hg/hgrc", "a/b.go": "", "/w/src/.GITHUB/Hooks/pre.json": ".github/hooks"} {
		if e, _ := Path(path); e.Spelt != want {
			t.Errorf("%s: %q", path, e.Spelt)
		}
	}
}

// TestList checks that each entry is found by its own name, says which program acts on it, and occurs once.
func TestList(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range All() {
		name := strings.ReplaceAll(e.Name, "*", "x")
		if got, ok := Name(e.Dir, name); !ok || got != e {
			t.Errorf("%s is found as %+v", e.Spelt, got)
		}
		if !strings.Contains(e.Reason, ": ") || seen[e.Spelt] || strings.Count(e.Name, "*") > 1 || strings.Contains(strings.Trim(e.Name, "*"), "*") {
			t.Errorf("%+v", e)
		}
		seen[e.Spelt] = true
	}
	if len(seen) < 60 {
		t.Errorf("%d entries", len(seen))
	}
}

func FuzzFold(f *testing.F) {
	for _, s := range []string{".claude", ".CLAUDE.", "ﬁ", "\xff", "a\u200d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		once := Fold(name)
		if again := Fold(once); again != once && !strings.ContainsRune(name, '\ufffd') {
			t.Errorf("%q folds to %q, which folds to %q", name, once, again)
		}
	})
}

func BenchmarkName(b *testing.B) {
	for b.Loop() {
		Name("src", "index_test.go")
	}
}
