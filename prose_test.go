package bailey_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// habits are patterns of words, with how often each may stand in 10,000 words of comments and documents: at least, and
// at most if that is not 0.
var habits = []struct {
	pattern     string
	least, most float64
}{
	{`\bif\b`, 40, 0},
	{`\b(must|should)\b`, 20, 0},
	{`\b(for example|such as|e\.g\.)`, 5, 0},
	{`\bwhat (is|was|it|they|that|has|of|a|the)\b`, 0, 15},
	{`\b(nobody|somebody)\b`, 0, 4},
	{`\b(whoever|who (has|is|calls))\b`, 0, 2},
	{`\bis (none|no) `, 0, 6},
}

// TestProse checks that comments and documents are written in plain technical English.
func TestProse(t *testing.T) {
	var product, tests strings.Builder
	for _, s := range sources(t) {
		into := &product
		if s.test() {
			into = &tests
		}
		for _, group := range s.file.Comments {
			into.WriteString(group.Text() + "\n")
		}
	}
	for kind, text := range map[string]string{"comments of the product": product.String(), "comments of tests": tests.String(),
		"documents": readDocuments(t)} {
		words := strings.Fields(strings.ToLower(text))
		if len(words) < 10_000 {
			t.Fatalf("%d words in %s: this test does not see them", len(words), kind)
		}
		text = strings.Join(words, " ")
		for _, h := range habits {
			rate := float64(len(regexp.MustCompile(h.pattern).FindAllString(text, -1))) * 10_000 / float64(len(words))
			t.Logf("%s: %.1f of %s in 10,000 words", kind, rate, h.pattern)
			if rate < h.least || h.most > 0 && rate > h.most {
				t.Errorf("%s: %.1f of %s in 10,000 words, want at least %v and at most %v", kind, rate, h.pattern, h.least, h.most)
			}
		}
	}
}

func readDocuments(t *testing.T) string {
	t.Helper()
	names, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range append(names, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(append(text, '\n'))
	}
	return all.String()
}

// wide is the share of product lines that may be over 120 columns, oneWord that of functions whose name is one
// lower-case word. Both must only become smaller.
const wide, oneWord = 0.0115, 0.01

// TestShape checks the width of lines and the names of functions.
func TestShape(t *testing.T) {
	lines, long, functions, short := 0, 0, 0, 0
	word := regexp.MustCompile(`^[a-z]+$`)
	for _, s := range sources(t) {
		if s.test() || strings.HasPrefix(s.dir, "test/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(filepath.FromSlash(s.dir), s.name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if lines++; utf8.RuneCountInString(line)+3*strings.Count(line, "\t") > 120 {
				long++
			}
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				if functions++; word.MatchString(f.Name.Name) {
					short++
				}
			}
		}
	}
	t.Logf("%d of %d lines are over 120 columns, %d of %d functions are one word", long, lines, short, functions)
	if share := float64(long) / float64(lines); share > wide {
		t.Errorf("%.4f of the product's lines are over 120 columns, want %v at most", share, wide)
	}
	if share := float64(short) / float64(functions); share > oneWord {
		t.Errorf("%.4f of the product's functions have a name of one lower-case word, want %v at most", share, oneWord)
	}
}
