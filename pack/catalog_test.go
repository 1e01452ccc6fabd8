package pack

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"bailey"
)

func named(pack string, names ...string) *fstest.MapFile {
	var b strings.Builder
	b.WriteString("name: " + pack + "\nversion: '1'\ncapabilities:\n")
	for _, n := range names {
		b.WriteString("  - {name: " + n + ", risk: low, sideEffectClass: none, reversibility: readOnly, backend: {type: subprocess, command: x}}\n")
	}
	return &fstest.MapFile{Data: []byte(b.String())}
}

func TestCatalog(t *testing.T) {
	c, err := Load(fstest.MapFS{"a/pack.yaml": named("git", "status", "log", "diff"), "b/pack.yaml": named("go", "test"),
		"a/other.yaml": {Data: []byte("x")}, "pack.yaml": {Data: []byte("x")}, "a/b/pack.yaml": {Data: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range c.All() {
		ids = append(ids, string(m.ID))
	}
	if strings.Join(ids, " ") != "git.diff git.log git.status go.test" {
		t.Error(ids)
	}
	if m, err := c.Lookup("git.log"); err != nil || m.ID != "git.log" {
		t.Error(m, err)
	}
	for id, hint := range map[string]string{
		"git.lgo":                  "close matches: git.log, git.diff, git.status",
		"go.tset":                  "close matches: go.test",
		"gti.status":               "git.status",
		"no.such":                  "close matches: go.test, git.diff, git.log, git.status",
		"":                         "close matches:",
		strings.Repeat("x", 1<<20): "close matches:",
		"GIT.LOG":                  "git.log",
		"git_log":                  "git.log",
		"a\x1b[2Jb\nc":             "close matches:",
	} {
		_, err := c.Lookup(bailey.CapabilityID(id))
		if !errors.Is(err, bailey.NotFound) || !strings.Contains(bailey.HintOf(err), hint) || strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 500 {
			t.Errorf("%.20q: %.200v, hint %q", id, err, bailey.HintOf(err))
		}
	}
	empty, err := Load(fstest.MapFS{})
	if err != nil || len(empty.All()) != 0 {
		t.Error(err)
	}
	if _, err := empty.Lookup("x.y"); !errors.Is(err, bailey.NotFound) || bailey.HintOf(err) == "" {
		t.Error(err)
	}
}

func TestCatalogConflicts(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"one pack twice": {"a/pack.yaml": named("git", "a"), "b/pack.yaml": named("git", "b")},
		"one id twice":   {"a/pack.yaml": named("git", "a"), "b/pack.yaml": named("other", "git.a")},
		"one tool twice": {"a/pack.yaml": named("a", "b_c"), "b/pack.yaml": named("a-b", "c", "a.b", "a.b_c")},
	} {
		if _, err := LoadBuiltin(files); !errors.Is(err, bailey.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load(fstest.MapFS{"a/pack.yaml": named("git", "a", "a")}); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
	if _, err := Load(fstest.MapFS{"a/pack.yaml": named("git", "a"), "b/pack.yaml": {Data: []byte("x: [")}}); !errors.Is(err, bailey.Invalid) {
		t.Error("a broken pack beside a good one loads", err)
	}
	if _, err := Load(fstest.MapFS{"a/pack.yaml": {Mode: fs.ModeDir}}); !errors.Is(err, bailey.Unavailable) {
		t.Error(err)
	}
}

func TestCatalogWith(t *testing.T) {
	c, err := Load(fstest.MapFS{"a/pack.yaml": named("git", "status")})
	if err != nil {
		t.Fatal(err)
	}
	parsed := func(f *fstest.MapFile) *Pack {
		p, err := Parse("pack.yaml", f.Data)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	more, err := c.With(parsed(named("go", "test")))
	if err != nil || len(more.All()) != 2 || len(c.All()) != 1 || more.Pack("go") == nil || c.Pack("go") != nil || len(more.Packs()) != 2 {
		t.Error(more, err)
	}
	if m, err := more.Lookup("go.test"); err != nil || m.Pack != "go" {
		t.Error(m, err)
	}
	for _, twin := range []*Pack{parsed(named("git", "log")), parsed(named("go", "a", "b"))} {
		if _, err := more.With(twin); bailey.KindOf(err) != bailey.Conflict {
			t.Error(err)
		}
	}
}
