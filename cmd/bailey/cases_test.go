package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	caseComment = regexp.MustCompile(`(?m)^// Case ([0-9]+): ([^;\n]+); [^\n]+\.\nfunc (Test\w+)\(t `)
	caseRow     = regexp.MustCompile("(?m)^\\| ([0-9]+) \\| ([^|]+) \\| `(Test\\w+)`[^|]* \\|$")
)

// TestThirtyCases checks that each of the thirty ledger cases has exactly one test that names it, and one row in the
// threat model.
func TestThirtyCases(t *testing.T) {
	said, told := map[string]int{}, map[string]int{}
	for _, room := range []string{"audit", "internal/ledger", "cmd/bailey"} {
		files, err := filepath.Glob(filepath.Join("../..", room, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			count(t, said, name, caseComment)
		}
	}
	count(t, told, "../../docs/threat-model.md", caseRow)
	for row, n := range said {
		if n != 1 || told[row] != 1 {
			t.Errorf("%s: %d tests say it, %d rows", row, n, told[row])
		}
	}
	numbers := map[string]bool{}
	for row := range told {
		var n, rest string
		fmt.Sscan(row, &n, &rest)
		numbers[n] = true
	}
	if len(said) != 30 || len(told) != 30 || len(numbers) != 30 || !numbers["1"] || !numbers["30"] {
		t.Errorf("%d cases have tests, %d have rows, with %d numbers; there are thirty", len(said), len(told), len(numbers))
	}
}

// count counts the cases that a file names, by number, attack and test.
func count(t *testing.T, in map[string]int, name string, form *regexp.Regexp) {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range form.FindAllSubmatch(text, -1) {
		in[fmt.Sprintf("%s %s %s", m[1], m[2], m[3])]++
	}
}
