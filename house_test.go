package bailey_test

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// rooms is the import table: which packages of this module, and which external modules, each package may import. No
// package may import one of a higher layer, and a package without a line here is an error. The order is that of the
// layers, from the common types to the programs.
var rooms = map[string]struct{ ours, outside []string }{
	// common types
	".": {},
	// pure functions
	"audit":               {ours: []string{"."}, outside: []string{"golang.org/x/mod/sumdb"}},
	"pack":                {ours: []string{"."}, outside: []string{"github.com/goccy/go-yaml", "github.com/google/jsonschema-go", "golang.org/x/mod"}},
	"packs":               {},
	"hook":                {ours: []string{"."}},
	"internal/policy":     {ours: []string{"."}, outside: []string{"github.com/cedar-policy/cedar-go", "github.com/goccy/go-yaml"}},
	"internal/redact":     {ours: []string{"."}},
	"internal/redact/gen": {},
	"internal/sshsig":     {ours: []string{"."}, outside: []string{"golang.org/x/crypto/ssh"}},
	"internal/canon":      {ours: []string{"."}},
	"internal/command":    {ours: []string{"."}, outside: []string{"mvdan.cc/sh/v3/syntax"}},
	"internal/onboard":    {ours: []string{"."}},
	"internal/readonly":   {outside: []string{"mvdan.cc/sh/v3/syntax"}},
	"internal/receipts":   {ours: []string{".", "audit"}},
	// kernel
	"internal/safefile":    {ours: []string{"."}},
	"internal/peer":        {ours: []string{"."}, outside: []string{"golang.org/x/sys"}},
	"internal/jail":        {ours: []string{".", "internal/jail/inside"}, outside: []string{"golang.org/x/sys"}},
	"internal/jail/inside": {},
	"internal/egress":      {ours: []string{"."}},
	"internal/daemon":      {ours: []string{"."}},
	"internal/strangers":   {},
	"internal/sshca":       {ours: []string{"."}, outside: []string{"golang.org/x/crypto/ssh"}},
	"internal/terminal":    {ours: []string{"."}},
	// services
	"internal/approve": {ours: []string{".", "internal/canon"}},
	"internal/broker":  {ours: []string{".", "internal/peer", "internal/canon", "internal/sshsig"}, outside: []string{"github.com/goccy/go-yaml"}},
	"internal/notify":  {ours: []string{"."}},
	"internal/guard":   {},
	"internal/hooks":   {ours: []string{".", "hook"}},
	"internal/ledger":  {ours: []string{".", "audit", "internal/receipts"}, outside: []string{"golang.org/x/sys", "modernc.org/sqlite"}},
	// the gate
	"internal/gate": {ours: []string{".", "pack"}},
	// front ends
	"internal/localapi": {ours: []string{".", "internal/peer", "internal/terminal"}, outside: []string{"golang.org/x/sys"}},
	"internal/gateway":  {ours: []string{".", "pack", "internal/egress", "internal/gate", "internal/peer", "internal/redact", "internal/safefile", "internal/sshsig", "internal/strangers", "internal/localapi"}, outside: []string{"golang.org/x/sys", "github.com/goccy/go-yaml"}},
	"internal/shim":     {ours: []string{".", "internal/terminal", "internal/localapi"}},
	"internal/judge":    {ours: []string{".", "pack", "internal/command", "internal/guard"}},
	"internal/mcp":      {ours: []string{".", "internal/strangers"}, outside: []string{"github.com/modelcontextprotocol/go-sdk", "github.com/google/jsonschema-go"}},
	"internal/wrap":     {ours: []string{".", "internal/guard"}},
	"internal/tui":      {ours: []string{"."}, outside: []string{"charm.land/bubbletea/v2", "github.com/charmbracelet/x/ansi"}},
	// the gateway process, and what it shares with the command line
	"internal/localapi/apitype": {ours: []string{".", "audit", "hook", "internal/approve", "internal/canon", "internal/gateway", "internal/hooks", "internal/localapi", "internal/notify", "internal/packstore", "internal/policy", "internal/receipts", "internal/redact", "internal/safefile", "internal/terminal", "internal/tui", "pack"}},
	"internal/packstore":        {ours: []string{".", "internal/localapi", "internal/safefile", "internal/terminal", "pack", "packs"}},
	"internal/policyfiles":      {ours: []string{".", "audit", "internal/gateway", "internal/policy", "internal/receipts", "internal/safefile", "internal/terminal", "pack"}},
	"internal/server":           {ours: []string{".", "audit", "hook", "internal/approve", "internal/broker", "internal/canon", "internal/daemon", "internal/egress", "internal/gate", "internal/gateway", "internal/hooks", "internal/jail", "internal/judge", "internal/ledger", "internal/localapi", "internal/localapi/apitype", "internal/mcp", "internal/notify", "internal/packstore", "internal/policy", "internal/policyfiles", "internal/receipts", "internal/safefile", "internal/sshsig", "internal/terminal", "internal/wrap", "pack"}, outside: []string{"golang.org/x/sync"}},
	// the command line
	"internal/cli":        {ours: []string{".", "audit", "internal/approve", "internal/canon", "internal/gateway", "internal/judge", "internal/localapi", "internal/localapi/apitype", "internal/mcp", "internal/packstore", "internal/policy", "internal/policyfiles", "internal/readonly", "internal/receipts", "internal/redact", "internal/safefile", "internal/strangers", "internal/terminal", "internal/tui", "pack"}, outside: []string{"github.com/pelletier/go-toml/v2", "github.com/spf13/cobra"}},
	"internal/cli/direct": {ours: []string{".", "audit", "hook", "internal/cli", "internal/egress", "internal/gateway", "internal/hooks", "internal/jail", "internal/judge", "internal/ledger", "internal/localapi", "internal/localapi/apitype", "internal/notify", "internal/onboard", "internal/packstore", "internal/safefile", "internal/server", "internal/strangers", "internal/terminal", "internal/wrap", "pack"}, outside: []string{"github.com/spf13/cobra", "golang.org/x/mod/sumdb/note"}},
	"internal/bench":      {ours: []string{".", "audit", "hook", "internal/approve", "internal/broker", "internal/canon", "internal/cli", "internal/cli/direct", "internal/egress", "internal/gate", "internal/gateway", "internal/hooks", "internal/jail", "internal/ledger", "internal/localapi", "internal/localapi/apitype", "internal/mcp", "internal/policy", "internal/policyfiles", "internal/redact", "internal/server", "internal/terminal"}, outside: []string{"github.com/spf13/cobra", "golang.org/x/sync"}},
	// Programs start a package. No package imports a program.
	"cmd/bailey":        {ours: []string{"internal/cli", "internal/cli/direct", "internal/jail"}},
	"cmd/bailey-bench":  {ours: []string{"internal/bench"}},
	"cmd/bailey-broker": {ours: []string{".", "internal/broker"}},
	"cmd/bailey-shim":   {ours: []string{"internal/shim"}},
	// examples that tests run
	"examples/hooks/notify": {ours: []string{"hook"}},
	// for tests only
	"internal/ktest":        {ours: []string{"."}, outside: []string{"golang.org/x/sys"}},
	"internal/ktest/touch":  {outside: []string{"golang.org/x/crypto/ssh"}},
	"internal/jail/battery": {outside: []string{"golang.org/x/sys"}},
	"packs/hostile":         {},
}

// onlyStd lists the packages that may import only the given standard packages. The trap of the jail runs before all
// other packages initialise only while it depends on no more than these.
var onlyStd = map[string][]string{"internal/jail/inside": {"runtime", "syscall", "unsafe"}}

// inits lists the packages that may have an init function. The trap of the jail must run before other packages
// initialise.
var inits = []string{"internal/jail/inside"}

// banned lists package names that do not describe the purpose of a package.
var banned = []string{"config", "util", "utils", "common", "model", "types", "errors", "logger", "helpers", "pkg"}

type source struct {
	dir, name string
	file      *ast.File
}

// sources opens every .go file itself: the test cache does not notice files that a child process reads.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("only %d files found: this test is not looking at the house", len(all))
	}
	return all
}

// parsed reads the source once for all tests.
var parsed = sync.OnceValues(func() (all []source, err error) {
	set := token.NewFileSet()
	err = fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != "."):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, source{path.Dir(name), path.Base(name), f})
		return nil
	})
	return all, err
})

func (s source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

// TestImports checks every import against the table.
func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || strings.HasPrefix(s.dir, "test/") {
			continue
		}
		room, ok := rooms[s.dir]
		if !ok {
			t.Errorf("%s/%s: the house has no room %s; give it a line in house_test.go and in docs/design.md", s.dir, s.name, s.dir)
			continue
		}
		for _, spec := range s.file.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if !allowed(s.dir, name, room.ours, room.outside) {
				t.Errorf("%s/%s imports %s: the law of the house does not allow it", s.dir, s.name, name)
			}
		}
	}
}

func allowed(dir, name string, ours, outside []string) bool {
	if std, ok := onlyStd[dir]; ok {
		return slices.Contains(std, name)
	}
	switch {
	case name == "bailey":
		return slices.Contains(ours, ".")
	case strings.HasPrefix(name, "bailey/"):
		return slices.Contains(ours, strings.TrimPrefix(name, "bailey/"))
	case !strings.Contains(strings.Split(name, "/")[0], "."):
		return true // the standard library
	}
	return slices.ContainsFunc(outside, func(m string) bool { return name == m || strings.HasPrefix(name, m+"/") })
}

// TestSpineImportsNothingAbove checks the most important lines of the table itself, so that no edit of the table can
// permit more.
func TestSpineImportsNothingAbove(t *testing.T) {
	if got := rooms["internal/gate"].ours; !slices.Equal(got, []string{".", "pack"}) {
		t.Errorf("the spine imports %v; it may import the vocabulary and pack alone", got)
	}
	for _, dir := range []string{"audit", "internal/redact", "internal/peer", "internal/ktest"} {
		if got := rooms[dir].ours; !slices.Equal(got, []string{"."}) {
			t.Errorf("%s imports %v of ours; it may import the vocabulary alone", dir, got)
		}
	}
	for dir, room := range rooms {
		if slices.ContainsFunc(room.ours, func(o string) bool { return strings.HasPrefix(o, "cmd/") || o == "internal/ktest" }) {
			t.Errorf("%s imports a program or the test room", dir)
		}
	}
}

// small lists the programs with a small link set, and all packages of this module and external modules that each may
// link, directly or through another package. Of the standard library, they must not link packages that start programs
// or load code (os/exec, plugin), nor database/sql.
var small = map[string]struct{ ours, outside []string }{
	"cmd/bailey-broker": {ours: []string{".", "internal/broker", "internal/canon", "internal/peer", "internal/sshsig"},
		outside: []string{"github.com/goccy/go-yaml", "golang.org/x/crypto/ssh", "golang.org/x/sys"}},
	"cmd/bailey-shim": {ours: []string{".", "internal/peer", "internal/shim", "internal/terminal", "internal/localapi"}, outside: []string{"golang.org/x/sys"}},
}

// TestSmallPrograms follows every import from each small program.
func TestSmallPrograms(t *testing.T) {
	imports := map[string][]string{}
	for _, s := range sources(t) {
		for _, spec := range s.file.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if !s.test() && !slices.Contains(imports[s.dir], name) {
				imports[s.dir] = append(imports[s.dir], name)
			}
		}
	}
	for program, may := range small {
		seen := map[string]bool{}
		var follow func(dir string)
		follow = func(dir string) {
			seen[dir] = true
			for _, name := range imports[dir] {
				switch {
				case name == "os/exec" || name == "plugin" || name == "database/sql":
					t.Errorf("%s imports %s, which %s must not link", dir, name, program)
				case !allowed(dir, name, may.ours, may.outside):
					t.Errorf("%s imports %s, which is not for %s to link", dir, name, program)
				case name == "bailey" && !seen["."]:
					follow(".")
				case strings.HasPrefix(name, "bailey/") && !seen[strings.TrimPrefix(name, "bailey/")]:
					follow(strings.TrimPrefix(name, "bailey/"))
				}
			}
		}
		if follow(program); len(seen) < 3 {
			t.Errorf("%s leads to %d rooms: this test is not looking at it", program, len(seen))
		}
	}
}

// TestEveryPackageIsDescribed checks that each package has exactly one package comment.
func TestEveryPackageIsDescribed(t *testing.T) {
	described := map[string]int{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		described[s.dir] += 0
		if s.file.Doc != nil {
			described[s.dir]++
		}
		if name := s.file.Name.Name; slices.Contains(banned, name) {
			t.Errorf("%s: a package named %s says nothing about what it is for", s.dir, name)
		}
	}
	for dir, n := range described {
		if n != 1 {
			t.Errorf("%s has %d package comments, want one", dir, n)
		}
	}
}

// TestNoInit checks that packages have no init functions, because every start of a program pays for them.
func TestNoInit(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" && !slices.Contains(inits, s.dir) {
				t.Errorf("%s/%s has an init function", s.dir, s.name)
			}
		}
	}
}

// TestPlatformsDifferByFile checks that code does not branch on runtime.GOOS: if systems differ, each must have a file
// of its own. The test-only package internal/ktest may print the name of the system.
func TestPlatformsDifferByFile(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || s.dir == "internal/ktest" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "GOOS" {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "runtime" {
					t.Errorf("%s/%s asks for runtime.GOOS: give each system a file of its own", s.dir, s.name)
				}
			}
			return true
		})
	}
}

// TestDocumentsStayShort checks that README.md and docs/design.md stay below their promised number of lines.
func TestDocumentsStayShort(t *testing.T) {
	for name, most := range map[string]int{"README.md": 200, "docs/design.md": 300} {
		f, err := os.Open(name)
		if err != nil {
			t.Error(err)
			continue
		}
		n := 0
		for lines := bufio.NewScanner(f); lines.Scan(); {
			n++
		}
		f.Close()
		if n >= most {
			t.Errorf("%s has %d lines, it promises under %d", name, n, most)
		}
	}
}

// TestDependenciesHaveReasons checks that CONTRIBUTING.md gives a reason for each direct dependency.
func TestDependenciesHaveReasons(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	why, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	direct := 0
	for line := range strings.Lines(string(mod)) {
		word := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(word) < 2 || !strings.Contains(word[0], "/") || strings.Contains(line, "// indirect") {
			continue
		}
		direct++
		if !strings.Contains(string(why), word[0]) {
			t.Errorf("CONTRIBUTING.md gives no reason for %s", word[0])
		}
	}
	if direct == 0 || direct > 20 {
		t.Errorf("%d direct dependencies, want one to twenty", direct)
	}
}
