package bailey_test

import (
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/tests.md")

// TestListOfTests checks that docs/tests.md lists every test with the first sentence of its comment.
func TestListOfTests(t *testing.T) {
	const page = "docs/tests.md"
	want := listOfTests(t)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is outdated. Run: go test . -run TestListOfTests -update", page)
	}
}

func listOfTests(t *testing.T) string {
	rows := map[string][]string{}
	for _, s := range sources(t) {
		if !s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && testName.MatchString(f.Name.Name) && f.Name.Name != "TestMain" {
				rows[s.dir] = append(rows[s.dir], fmt.Sprintf("| `%s` | %s |", f.Name.Name, firstSentence(f)))
			}
		}
	}
	var b strings.Builder
	b.WriteString("# All tests\n\nEach test, fuzz target and benchmark with the first sentence of its comment, by directory.\n" +
		"[threat-model.md](threat-model.md) lists the attacks with their tests.\n\n" +
		"<!-- written by: go test . -run TestListOfTests -update -->\n")
	for _, dir := range slices.Sorted(maps.Keys(rows)) {
		slices.Sort(rows[dir])
		title := dir
		if dir == "." {
			title = "bailey (the root)"
		}
		fmt.Fprintf(&b, "\n## %s\n\n| test | checks |\n| --- | --- |\n%s\n", title, strings.Join(slices.Compact(rows[dir]), "\n"))
	}
	return b.String()
}

var (
	testName    = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)([A-Z].*)?$`)
	sentenceEnd = regexp.MustCompile(`[.:]( [A-Z*]| ?$)`)
	listSubject = regexp.MustCompile(`^(checks|tests) (that )?`)
)

// firstSentence returns the first sentence of f's comment without the name of f.
func firstSentence(f *ast.FuncDecl) string {
	text := strings.Join(strings.Fields(f.Doc.Text()), " ")
	text = strings.TrimSpace(strings.TrimPrefix(text, f.Name.Name))
	if at := sentenceEnd.FindStringIndex(text); at != nil {
		text = text[:at[0]]
	}
	return strings.ReplaceAll(listSubject.ReplaceAllString(text, ""), "|", `\|`)
}

// TestDocumentsNameNoTests checks that pages say what holds, and leave the names of tests to the list of tests, the
// threat model, the table of OWASP's standard and commands.
func TestDocumentsNameNoTests(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatal(err, pages)
	}
	name := regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w+`)
	for _, page := range append(pages, "README.md", "SECURITY.md") {
		if page == "docs/tests.md" || page == "docs/threat-model.md" || page == "docs/asvs.md" {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if name.MatchString(line) && !strings.Contains(line, "go test ") {
				t.Errorf("%s:%d names the test %s: say what holds; docs/tests.md lists the tests", page, i+1, name.FindString(line))
			}
		}
	}
}
