//go:build linux

package policyfiles

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/packstore"
	"bailey/internal/policy"
)

var (
	ruleIDs  = regexp.MustCompile(`(?m)^@id\("([^"]+)"\)`)
	asksRule = regexp.MustCompile(`(?m)^@approval\(`)
)

// untried lists rules of the examples that apply to no call of this version.
var untried = map[string]string{
	"leads-agree":  "no capability is irreversible",
	"wrap":         "agent.wrap is a call of operators, and in no catalog",
	"opaque-input": "every input of the built-in packs can be judged",
}

// TestExamples checks that each directory of examples/policy is a valid policy with a README, and has a test for each
// of its possible outcomes and each of its rules.
func TestExamples(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	const root = "../../examples/policy"
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) < 3 {
		t.Fatalf("only %d examples found: this test is not reading them", len(dirs))
	}
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		t.Run(d.Name(), func(t *testing.T) {
			dir := filepath.Join(root, d.Name())
			if text, err := os.ReadFile(filepath.Join(dir, "README.md")); err != nil || len(strings.Split(string(text), "\n")) > 60 {
				t.Errorf("README.md is missing, or over a page: %v", err)
			}
			files, err := ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			e, err := Load(files, catalog)
			if err != nil {
				t.Fatal(err)
			}
			if len(e.Budgets) == 0 {
				t.Error("it sets no budget")
			}
			outcomesTried(t, files)
		})
	}
}

// outcomesTried checks that a test expects each outcome, and that each rule is named by a test that it decides.
func outcomesTried(t *testing.T, files Files) {
	t.Helper()
	outcomes, decides := map[bailey.Effect]bool{}, map[string]bool{}
	for _, s := range files.Tests {
		list, err := policy.ParseTests(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range list {
			outcomes[test.Expect] = true
			for _, id := range test.Rules {
				decides[string(id)] = true
			}
		}
	}
	want, found := []bailey.Effect{bailey.Allow, bailey.Deny}, 0
	for _, s := range files.Rules {
		if asksRule.Match(s.Text) {
			want = append(want, bailey.Ask)
		}
		for _, m := range ruleIDs.FindAllSubmatch(s.Text, -1) {
			found++
			if id := string(m[1]); !decides[id] && untried[id] == "" {
				t.Errorf("no test names %s of %s among the rules that decide it", id, s.Name)
			}
		}
	}
	for _, effect := range slices.Compact(want) {
		if !outcomes[effect] {
			t.Errorf("no test expects %s", effect)
		}
	}
	if found == 0 {
		t.Error("no rule found: this test is not reading the files")
	}
}

// TestPolicyDigest checks that any change of a file, a name or a byte changes the digest.
func TestPolicyDigest(t *testing.T) {
	seen := map[string]string{}
	for name, files := range map[string]map[string]string{
		"one": {"a.cedar": "x"}, "renamed": {"b.cedar": "x"}, "changed": {"a.cedar": "y"}, "split": {"a.cedar": "", "b.cedar": "x"},
		"tests": {"a.cedar": "x", "b.test.yaml": "x"}, "budgets": {"a.cedar": "x", "budgets.yaml": "x"}, "moved": {"a.cedar": "xb.cedar"},
	} {
		var f Files
		for n, text := range files {
			if err := f.Add(policy.Source{Name: n, Text: []byte(text)}); err != nil {
				t.Fatal(err)
			}
		}
		if other, twice := seen[f.Digest()]; twice {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[f.Digest()] = name
	}
}
