//go:build linux || darwin

package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"bailey"
	"bailey/internal/redact"
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
		{"unknown key", "redaction:\n  pattern: []\n", `:2:3: "pattern" is no part of redaction; there is allow, patterns, without`},
		{"unknown key of a pattern", pattern("categories: A"), `:3:8: "categories" is no part of a pattern`},
		{"key twice", "redaction:\n  without: []\n  without: []\n", ":3:3"},
		{"a list", "redaction: []\n", ":1:12: wants keys and values"},
		{"no list", "redaction: {patterns: a}\n", ":1:23: patterns wants a list"},
		{"no category", pattern("regexp: a, hides: [a]"), "wants a category and a regexp"},
		{"no expression", pattern("category: A, hides: [a]"), "wants a category and a regexp"},
		{"nobody tried it", pattern("category: A, regexp: a, leaves: [b]"), "pattern of A wants an example in hides"},
		{"empty example", pattern("category: A, regexp: a, hides: ['']"), "wants a text"},
		{"a number", pattern("category: A, regexp: 1, hides: [a]"), ":3:29: wants a text; single quotes"},
		{"finds nothing", pattern("category: A, regexp: a, hides: [b]"), `pattern 1 (A) finds nothing in its example "b"`},
		{"finds too much", pattern("category: A, regexp: a, hides: [a], leaves: [ba]"), `:3:53: pattern 1 (A) finds something in "ba"`},
		{"its second example", "redaction:\n  patterns:\n  - category: B\n    regexp: b\n    hides: [b]\n  - category: A\n    regexp: a\n    hides: [a]\n    leaves:\n    - c\n    - ba\n", `:11:7: pattern 2 (A) finds something in "ba"`},
		{"both wrong", pattern("category: A, regexp: a, hides: [b], leaves: [ba]"), `:3:8: pattern 1 (A) finds nothing in its example "b"`},
		{"the second", "redaction:\n  patterns:\n  - {category: A, regexp: a, hides: [a]}\n  - {category: B, regexp: b, hides: [a]}\n", `settings.yaml:4:6: pattern 2 (B)`},
		{"no regular expression", pattern("category: A, regexp: '(', hides: [a]"), "is no regular expression"},
		{"of nothing", pattern("category: A, regexp: 'a*', hides: [a]"), "matches the empty text"},
		{"no name", pattern("category: a-b, regexp: a, hides: [a]"), `the category "a-b"`},
		{"an allowance nobody tried", allow("regexp: a"), `the allowance "a" wants an example in passes`},
		{"an allowance of a part", allow(`category: IPV4, regexp: '^10\.0\.', passes: ['10.0.0.1']`), `:1:22: allowance 1 does not match its example "10.0.0.1" as a whole`},
		{"not built in", "redaction: {without: [IPV4, TICKET]}\n", `:1:29: the category "TICKET" is not built in`},
		{"without twice", "redaction: {without: [IPV4, IPV4]}\n", "named twice"},
		{"deep", "redaction: {patterns: [{hides: [[a]]}]}\n", "nested so deep"},
		{"deep blocks", "a:\n" + strings.Repeat(" ", 30) + "b: c\n", "nested so deep"},
		{"many", many.String(), "more than 256 patterns"},
		{"more than the ledger keeps", pattern(`category: A, hides: ['<'], regexp: '[`+strings.Repeat("<", 4000)+`]'`) + strings.Repeat("    - {category: A, hides: ['<'], regexp: '["+strings.Repeat("<", 3900)+"]'}\n", 2), "the ledger would keep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, err := ParseSettings([]byte(c.text))
			if strings.HasPrefix(c.want, "{") {
				got, jerr := json.Marshal(expressions(said.Redaction))
				if err != nil || jerr != nil || string(got) != c.want {
					t.Errorf("%s, %v; want %s", got, err, c.want)
				}
			} else if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), c.want) || bailey.HintOf(err) == "" {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// seen returns text as the session shows it.
func (b *book) seen(id bailey.SessionID, text string) string {
	return fmt.Sprint(b.rules.Value(id, text))
}

// TestRedactionHoldsFromTheNextSession checks that rules take effect when they are applied, and that a session keeps
// the rules that it began with.
func TestRedactionHoldsFromTheNextSession(t *testing.T) {
	const text = "TCK-12345678 at 10.0.0.1 and 8.8.4.4 and 2001:db8::17"
	const builtIn = "TCK-12345678 at [REDACTED_IPV4_1] and [REDACTED_IPV4_2] and [REDACTED_IPV6_1]"
	const own = "[REDACTED_TICKET_1] at 10.0.0.1 and [REDACTED_IPV4_1] and 2001:db8::17"
	b := newBook(t)
	if got := b.seen("old", text); got != builtIn {
		t.Fatalf("%s, want %s", got, builtIn)
	}
	got, err := b.put(t, ownRules)
	if err != nil || len(got.Redaction.Patterns) != 1 || got.Redaction.Patterns[0].Hides != nil || b.Settings.Applied().Digest != got.Digest {
		t.Fatalf("%+v, %v", got, err)
	}
	for id, want := range map[bailey.SessionID]string{"old": builtIn, "new": own} {
		if got := b.seen(id, text); got != want {
			t.Errorf("session %s: %s, want %s", id, got, want)
		}
	}
	if _, err := b.put(t, strings.Replace(ownRules, "see TCK", "see TKC", 1)); !errors.Is(err, bailey.Invalid) {
		t.Errorf("a pattern that finds nothing was applied: %v", err)
	}
	b.fail = errors.New("the disk is full")
	if _, err := b.put(t, "redaction:\n"); !errors.Is(err, b.fail) {
		t.Error(err)
	}
	if got := b.seen("newer", text); got != own {
		t.Errorf("what was not applied holds: %s", got)
	}
}

// TestAppliedRedactionOutlivesItsFile checks that applied rules stay in force if the file is changed or removed.
func TestAppliedRedactionOutlivesItsFile(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"untouched": func(string) error { return nil },
		"removed":   os.Remove,
		"emptied":   func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"loosened":  func(p string) error { return os.WriteFile(p, []byte("redaction: {without: [IPV4]}\n"), 0o600) },
		"damaged":   func(p string) error { return os.WriteFile(p, []byte("redaction: ["), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t)
			if _, err := b.put(t, ownRules); err != nil {
				t.Fatal(err)
			}
			if err := spoil(b.path()); err != nil {
				t.Fatal(err)
			}
			kept, err := json.Marshal(b.last) // as the ledger stores it
			b.last = Applied{}
			if err = errors.Join(err, json.Unmarshal(kept, &b.last)); err != nil {
				t.Fatal(err)
			}
			b.open(t)
			if got := b.seen("s", "TCK-12345678 from 8.8.4.4"); got != "[REDACTED_TICKET_1] from [REDACTED_IPV4_1]" {
				t.Errorf("it shows %s", got)
			}
			if err := b.reach("project", "."); (err == nil) != (name == "untouched") {
				t.Errorf("the workspaces: %v", err)
			}
		})
	}
}

// TestRedactionOfOtherVersions checks that an event from before there was redaction means the built-in rules, and that
// the start fails if the recorded rules cannot be applied.
func TestRedactionOfOtherVersions(t *testing.T) {
	b := newBook(t)
	if err := json.Unmarshal([]byte(`{"digest":"","workspaces":[],"operator":"env"}`), &b.last); err != nil {
		t.Fatal(err)
	}
	b.open(t)
	if got := b.seen("s", "8.8.4.4"); got != "[REDACTED_IPV4_1]" {
		t.Error(got)
	}
	for _, newer := range []string{`{"digest":"","workspaces":[],"redaction":{"ranges":["x"]}}`, `{"digest":"","redactions":{}}`} {
		if err := json.Unmarshal([]byte(newer), new(Applied)); err == nil || !strings.Contains(err.Error(), "another version") {
			t.Errorf("%s: %v", newer, err)
		}
	}
	b.last.Redaction = redact.Config{Without: []redact.Category{"OF_ANOTHER_VERSION"}}
	s, err := OpenSettings(b.home, b.workspaces, b.rules, b.last, nil, nil)
	if s != nil || !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
		t.Errorf("%v, %v", s, err)
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

// TestRulesChangeUnderWay begins sessions and logs records while the rules change. It is for the race detector.
func TestRulesChangeUnderWay(t *testing.T) {
	r := NewRedaction()
	log := slog.New(r.Log(slog.NewTextHandler(io.Discard, nil)))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 20 {
				if err := r.Use(redact.Config{Patterns: []redact.Pattern{{Category: "TICKET", Regexp: "TCK-[0-9]+"}}}); err != nil {
					t.Error(err)
				}
				id := bailey.SessionID(fmt.Sprint("s-", i, "-", n))
				if got := r.Text(id, "TCK-12 of "+logAddress); got != "[REDACTED_TICKET_1] of [REDACTED_IPV4_1]" {
					t.Error(got)
				}
				log.Info("TCK-12")
				r.End(id)
			}
		})
	}
	all.Wait()
}
