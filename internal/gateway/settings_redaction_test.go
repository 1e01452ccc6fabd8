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
	"bailey/internal/settings"
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
			if err := spoil(b.filePath()); err != nil {
				t.Fatal(err)
			}
			kept, err := json.Marshal(b.last) // as the ledger stores it
			b.last = settings.Applied{}
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
		if err := json.Unmarshal([]byte(newer), new(settings.Applied)); err == nil || !strings.Contains(err.Error(), "another version") {
			t.Errorf("%s: %v", newer, err)
		}
	}
	b.last.Redaction = redact.Config{Without: []redact.Category{"OF_ANOTHER_VERSION"}}
	s, err := OpenSettings(b.home, b.workspaces, b.rules, b.last, nil, nil)
	if s != nil || !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
		t.Errorf("%v, %v", s, err)
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
