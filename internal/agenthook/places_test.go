package agenthook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
)

// placesOf returns places in a home below top, with files.
func placesOf(t *testing.T, top string, files ...string) Places {
	t.Helper()
	for _, name := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := FindPlaces(filepath.Join(top, "home"), "")
	p.Temp = filepath.Join(top, "claude-0")
	return p
}

func TestPlaces(t *testing.T) {
	top := resolveLinks(t.TempDir())
	p := placesOf(t, top, "home/go/pkg/mod/x@v1/x.go", "home/.cargo/registry/src/a/lib.rs", "home/.claude/plans/x.md", "home/.cargo/credentials.toml",
		"home/Desktop/shot.png", "home/Desktop/taxes.ods", "w/sub/main.go", "home/.local/lib/python3.12/site-packages/a.py", "extra/doc.md")
	p.Readable = func() []string { return []string{filepath.Join(top, "extra")} }
	root := filepath.Join(top, "w")
	name := projectName(root)
	for _, c := range []struct {
		path        string
		read, write bool
		why         string
	}{
		{"home/go/pkg/mod/x@v1/x.go", true, false, ""},
		{"home/go/pkg", false, false, ""},
		{"home/.cargo/registry/src/a/lib.rs", true, false, ""},
		{"home/.cargo/credentials.toml", false, false, ""},
		{"home/.local/lib/python3.12/site-packages/a.py", true, false, ""},
		{"extra/doc.md", true, false, ""},
		{"extra-2/doc.md", false, false, ""},
		{"home/Desktop/shot.png", true, false, ""},
		{"home/Desktop/taxes.ods", false, false, ""},
		{"home/Desktop", false, false, ""},
		{"home/.claude", false, false, ""},
		{"home/.claude/CLAUDE.md", true, false, ""},
		{"home/.claude/settings.json", true, false, ""},
		{"home/.claude/skills/a/SKILL.md", true, false, ""},
		{"home/.claude/.credentials.json", false, false, "contains the agent's credentials"},
		{"home/.claude/plans/x.md", true, false, "the agents of all projects share"},
		{"home/.claude/projects/" + name + "/s.jsonl", true, false, ""},
		{"home/.claude/projects/" + name + "/memory/MEMORY.md", true, true, ""},
		{"home/.claude/projects/" + name + "x/memory/MEMORY.md", false, false, "of another project"},
		{"home/.claude/projects/-/memory/MEMORY.md", false, false, "of another project"},
		{"home/.claude/projects", false, false, ""},
		{"claude-0/" + name + "/s/scratchpad/a", true, true, ""},
		{"claude-0/" + projectName(root+"/sub") + "/s/scratchpad/a", true, true, ""},
		{"claude-0/other/s/scratchpad/a", false, false, "of another project"},
		{"claude-0", false, false, ""},
	} {
		for write, want := range map[bool]bool{false: c.read, true: c.write} {
			got, err := p.Permit(root+"/sub", root, filepath.Join(top, c.path), write)
			if (got && err == nil) != want || err != nil && (c.why == "" || !strings.Contains(err.Error(), c.why) || bailey.HintOf(err) == "") {
				t.Errorf("%s, write %v: %v, %v; want %v", c.path, write, got, err, want)
			}
		}
	}
	// A call outside of every workspace has no project, not each directory above it.
	for _, path := range []string{"home/.claude/projects/" + name + "/memory/MEMORY.md", "claude-0/" + name + "/s/scratchpad/a"} {
		if got, err := p.Permit(root+"/sub", "", filepath.Join(top, path), true); got && err == nil {
			t.Errorf("%s is permitted without a workspace", path)
		}
	}
	other := filepath.Join(top, "extra", "claude", ".credentials.json")
	if got, err := p.Permit(root, root, other, false); got && err == nil {
		t.Errorf("%s is permitted", other)
	}
}

// Two directories that differ only in characters that Claude Code replaces share its files. None of them may use them.
func TestSharedProjectNames(t *testing.T) {
	top := resolveLinks(t.TempDir())
	p := placesOf(t, top, "a/b/c/main.go", "gone/main.go")
	root := filepath.Join(top, "a", "b", "c")
	memory := filepath.Join(p.Config, "projects", projectName(root), "memory", "M.md")
	check := func(want bool) {
		t.Helper()
		if ok, err := p.Permit(root, root, memory, true); (ok && err == nil) != want {
			t.Errorf("permitted %v, %v; want %v", ok, err, want)
		} else if !want && !strings.Contains(err.Error(), "have the same name") {
			t.Error(err)
		}
	}
	check(true)
	for _, twin := range []string{"a/b-c", "a-b/c", "a/b_c", "a-b-c"} { // also outside of the parent directory
		dir := filepath.Join(top, twin)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		check(false)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	check(true)
	// A directory that is gone, or on another machine, is still in Claude Code's list.
	state := `{"projects":{"` + filepath.ToSlash(filepath.Join(top, "a", "b.c")) + `":{}}}`
	if err := os.MkdirAll(filepath.Dir(p.State), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.State, []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	check(false)
	if err := os.WriteFile(p.State, []byte(`{"projects":{`), 0o600); err != nil { // half written: nothing is known
		t.Fatal(err)
	}
	if ok, err := p.Permit(root, root, memory, true); ok && err == nil {
		t.Error("permitted without a list")
	}
	if err := os.WriteFile(p.State, []byte(`{"projects":{"`+root+`":{}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	check(true)
}
