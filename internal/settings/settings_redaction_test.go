//go:build linux || darwin

package settings

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"bailey"
)

const ownRules = `# mine
redaction:
  patterns:
    - category: TICKET
      regexp: 'TCK-[0-9]{8}'
      hides: ['see TCK-12345678']
      leaves: ['TCK-1']
  allow: [{category: IPV4, regexp: '10\.0\.[0-9.]+', passes: ['10.0.0.1']}]
  without: [IPV6]
`

func TestRedactionIsReadStrictly(t *testing.T) {
	pattern := func(rest string) string { return "redaction:\n  patterns:\n    - {" + rest + "}\n" }
	allow := func(rest string) string { return "redaction: {allow: [{" + rest + "}]}\n" }
	var many strings.Builder
	many.WriteString("redaction:\n  patterns:\n")
	for range 300 {
		many.WriteString("  - {category: A, regexp: b, hides: [b]}\n")
	}
	for _, c := range []struct{ name, text, want string }{ // want: the rules as JSON, or a part of the error
		{"whole", ownRules, `{"patterns":[{"category":"TICKET","regexp":"TCK-[0-9]{8}"}],"allow":[{"category":"IPV4","regexp":"10\\.0\\.[0-9.]+"}],"without":["IPV6"]}`},
		{"nothing", "redaction:\n", `{}`},
		{"empty", "redaction: {patterns: [], allow: [], without: []}\nworkspaces: [/a]\n", `{}`},
		{"any category", allow(`regexp: 'a+', passes: [aa]`), `{"allow":[{"regexp":"a+"}]}`},
		{"unknown key", "redaction:\n  pattern: []\n", `:2:3: "pattern" is not a part of redaction; use allow, patterns, without`},
		{"unknown key of a pattern", pattern("categories: A"), `:3:8: "categories" is not a part of a pattern`},
		{"key twice", "redaction:\n  without: []\n  without: []\n", ":3:3"},
		{"a list", "redaction: []\n", ":1:12: must have keys and values"},
		{"no list", "redaction: {patterns: a}\n", ":1:23: patterns must be a list"},
		{"no category", pattern("regexp: a, hides: [a]"), "needs a category and a regexp"},
		{"no expression", pattern("category: A, hides: [a]"), "needs a category and a regexp"},
		{"nobody tried it", pattern("category: A, regexp: a, leaves: [b]"), "pattern of A needs an example in hides"},
		{"empty example", pattern("category: A, regexp: a, hides: ['']"), "must be text"},
		{"a number", pattern("category: A, regexp: 1, hides: [a]"), ":3:29: must be text; put it in single quotes"},
		{"finds nothing", pattern("category: A, regexp: a, hides: [b]"), `pattern 1 (A) finds nothing in its example "b"`},
		{"finds too much", pattern("category: A, regexp: a, hides: [a], leaves: [ba]"), `:3:53: pattern 1 (A) matches something in "ba"`},
		{"its second example", "redaction:\n  patterns:\n  - category: B\n    regexp: b\n    hides: [b]\n  - category: A\n    regexp: a\n    hides: [a]\n    leaves:\n    - c\n    - ba\n", `:11:7: pattern 2 (A) matches something in "ba"`},
		{"both wrong", pattern("category: A, regexp: a, hides: [b], leaves: [ba]"), `:3:8: pattern 1 (A) finds nothing in its example "b"`},
		{"the second", "redaction:\n  patterns:\n  - {category: A, regexp: a, hides: [a]}\n  - {category: B, regexp: b, hides: [a]}\n", `settings.yaml:4:6: pattern 2 (B)`},
		{"not a regular expression", pattern("category: A, regexp: '(', hides: [a]"), "is not a regular expression"},
		{"of nothing", pattern("category: A, regexp: 'a*', hides: [a]"), "matches the empty text"},
		{"no name", pattern("category: a-b, regexp: a, hides: [a]"), `the category "a-b"`},
		{"an allowance nobody tried", allow("regexp: a"), `the allowance "a" needs an example in passes`},
		{"an allowance of a part", allow(`category: IPV4, regexp: '^10\.0\.', passes: ['10.0.0.1']`), `:1:22: allowance 1 does not match its example "10.0.0.1" as a whole`},
		{"not built in", "redaction: {without: [IPV4, TICKET]}\n", `:1:29: the category "TICKET" is not built in`},
		{"without twice", "redaction: {without: [IPV4, IPV4]}\n", "twice"},
		{"deep", "redaction: {patterns: [{hides: [[a]]}]}\n", "nested too deeply"},
		{"deep blocks", "a:\n" + strings.Repeat(" ", 30) + "b: c\n", "nested too deeply"},
		{"many", many.String(), "more than 256 patterns"},
		{"more than the ledger keeps", pattern(`category: A, hides: ['<'], regexp: '[`+strings.Repeat("<", 4000)+`]'`) + strings.Repeat("    - {category: A, hides: ['<'], regexp: '["+strings.Repeat("<", 3900)+"]'}\n", 2), "these rules need"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, err := ParseSettings([]byte(c.text))
			if strings.HasPrefix(c.want, "{") {
				got, jerr := json.Marshal(Expressions(said.Redaction))
				if err != nil || jerr != nil || string(got) != c.want {
					t.Errorf("%s, %v; want %s", got, err, c.want)
				}
			} else if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), c.want) || bailey.HintOf(err) == "" {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// TestDocumentedRules checks that the example in docs/operations.md is valid as it stands.
func TestDocumentedRules(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```yaml\nredaction:")
	example, _, _ = strings.Cut("redaction:"+example, "```")
	said, err := ParseSettings([]byte(example))
	if c := said.Redaction; err != nil || len(c.Patterns) != 1 || len(c.Allow) != 1 || len(c.Without) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}
