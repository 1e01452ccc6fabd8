package main

import (
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/test/since"
)

// TestAffected checks that a change affects exactly the packages whose tests could notice it.
func TestAffected(t *testing.T) {
	ktest.Long(t)
	c := &checks{dir: t.TempDir()}
	for name, text := range map[string]string{
		"go.mod": "module x\n\ngo 1.26\n", "x.go": "package x\n", "docs/guide.md": "", "README.md": "",
		"low/low.go": "package low\n", "low/low_test.go": "package low\n", "low/testdata/rows": "",
		"high/high.go": "package high\n\nimport (\n\t_ \"x\"\n\t_ \"x/low\"\n)\n", "alone/alone.go": "package alone\n", "alone/alone_test.go": "package alone_test\n\nimport _ \"x/helper\"\n",
		"helper/helper.go": "package helper\n", "prog/prog.go": "package prog\n", "cmd/tool/main.go": "package main\n\nimport _ \"x/prog\"\n\nfunc main() {}\n",
		"test/story/story_test.go": "package story\n", "reader/reader.go": "package reader\n", "reader/reader_test.go": "package reader\n\nconst guide = \"../docs/guide.md\"\n",
		"lister/lister_test.go": "package lister\n\nconst all = \"../docs/*.md\"\n",
	} {
		put(t, filepath.Join(c.dir, name), text)
	}
	all, err := c.listPackages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for changed, want := range map[string]string{
		"":                      "",
		"low/low.go":            "high low",
		"low/low_test.go":       "low",
		"low/testdata/rows":     "high low",
		"low/gone.go":           "high low",
		"alone/alone_test.go":   "alone",
		"helper/helper.go":      "alone helper",
		"prog/prog.go":          "cmd/tool prog test/story",
		"docs/guide.md":         ". lister reader",
		"docs/new.md":           ". lister",
		"README.md":             ".",
		"x.go":                  ". high",
		"prog/prog.go high/a.s": "cmd/tool high prog test/story",
		"go.mod":                "all",
		".ci/install":           "all",
		"test/checks/parts.go":  "all",
	} {
		c.changes = since.Changes{Commit: "some", Files: strings.Fields(changed)}
		p := tree{c, all}
		pkgs, err := p.affectedPackages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, pkg := range pkgs {
			got = append(got, p.packageDir(pkg))
		}
		if len(got) == len(all) {
			got = []string{"all"}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s changed: %v, want %s", changed, got, want)
		}
	}
	c.changes = since.Changes{}
	if pkgs, err := (tree{c, all}).affectedPackages(t.Context()); err != nil || len(pkgs) != len(all) {
		t.Errorf("nothing is recorded: %v, %v", pkgs, err)
	}
}
