package jail

import (
	"context"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// TestLinuxNeverRunsBare checks that no file built on Linux refers to the runners without a cage, except their own
// files, so that no code in this package can select one. New must return a runner that builds cages.
func TestLinuxNeverRunsBare(t *testing.T) {
	ktest.Long(t)
	if Bare {
		t.Error("Linux says that it has no cage")
	}
	theirs := map[string]bool{}
	files := map[string]*ast.File{}
	list, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		built, err := build.Default.MatchFile(".", d.Name())
		if err != nil || !built || !strings.HasSuffix(d.Name(), ".go") || strings.HasSuffix(d.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), d.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(d.Name(), "bare") || strings.HasPrefix(d.Name(), "seatbelt") {
			declared(f, theirs)
		} else {
			files[d.Name()] = f
		}
	}
	if !theirs["bare"] || !theirs["bareRun"] || !theirs["callProfile"] || !theirs["Uncaged"] || !theirs["None"] || !theirs["NewNone"] || files["jail_linux.go"] == nil {
		t.Fatalf("the test does not look at the package: %v", theirs)
	}
	delete(theirs, "Bare")
	for name := range theirs { // only the entry points: identifiers behind them may have any name
		if low := strings.ToLower(name); !strings.HasSuffix(low, "none") && !strings.Contains(low, "bare") && !strings.Contains(low, "profile") && !strings.Contains(low, "uncaged") {
			delete(theirs, name)
		}
	}
	for name, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && theirs[id.Name] {
				t.Errorf("%s names %s", name, id.Name)
			}
			return true
		})
	}
	ktest.Require(t, "userns", "netns")
	j, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	planned, err := j.Plan(context.Background(), bailey.Job{Command: "cat"})
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	if c := planned.Cage(); c.Kind != "full" || !c.Enforced || !slices.Contains(c.Layers, "userns") {
		t.Errorf("Linux runs a call in %+v", c)
	}
}

// declared adds the package-level names that a file declares, without methods.
func declared(f *ast.File, names map[string]bool) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, id := range s.Names {
						names[id.Name] = true
					}
				}
			}
		}
	}
}
