//go:build linux

package jail

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
)

// coldCage is a warmth that prepares nothing.
type coldCage struct{}

func (coldCage) serve(context.Context, *run, []string, bailey.Streams, *pipes) (cageResult, bool) {
	return cageResult{}, false
}
func (coldCage) takeFirstProcess(bool) *child { return nil }
func (coldCage) prepareNext(*run)             {}
func (coldCage) close()                       {}

// TestColdPathStandsAlone checks that calls need nothing of warmth, and that the cold path uses nothing that the files
// warm_*.go declare, besides three functions: one makes the warmth of a jail, two describe a plan and change nothing.
func TestColdPathStandsAlone(t *testing.T) {
	j := plainJail(t, Config{})
	j.warm.close()
	j.warm = coldCage{}
	for range 3 {
		ask(t, j, bailey.Job{}, "exit", "0").must(t)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	isWarm := func(name string) bool { return strings.HasPrefix(name, "warm_") }
	warm, cold := map[string]string{}, map[string]*ast.File{}
	receivers := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !isWarm(name) {
			cold[name] = file
			continue
		}
		for object := range file.Scope.Objects {
			warm[object] = name
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				receiver := f.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				receivers[receiver.(*ast.Ident).Name+"."+f.Name.Name] = name
			}
		}
	}
	if len(warm) < 20 || len(cold) < 30 {
		t.Fatalf("%d names in warm_*.go, %d other files", len(warm), len(cold))
	}
	may := []string{"newWarmCages", "isWarmable", "warmSteps"}
	for name, file := range cold {
		for _, used := range file.Unresolved { // identifiers that this file does not declare
			if in := warm[used.Name]; in != "" && !slices.Contains(may, used.Name) {
				t.Errorf("%s uses %s, which %s declares", name, used.Name, in)
			}
		}
	}
	for method, in := range receivers {
		receiver, _, _ := strings.Cut(method, ".")
		if warm[receiver] == "" && method != "Jail.Waiting" { // for measurements
			t.Errorf("%s adds the method %s to a type of the cold path", in, method)
		}
	}
}
