package cli

import (
	"errors"
	"testing"
	"time"

	"bailey"
	"bailey/internal/receipts"
)

// TestSearchWords checks that search terms work like the flags of receipts list, and that unknown terms are rejected.
func TestSearchWords(t *testing.T) {
	now := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)
	id := bailey.NewReceiptID()
	for words, want := range map[string]receipts.Filter{
		"":                             {},
		"git.push denied":              {Capability: "git.push", Status: bailey.Refused},
		"agent=local session=s-1":      {Agent: "local", Session: "s-1"},
		"capability=git.log status=ok": {Capability: "git.log", Status: bailey.OK},
		" " + string(id) + " ":         {ID: id},
	} {
		got, err := filterWords(words, now)
		if err != nil || got != want {
			t.Errorf("%q is %+v, %v", words, got, err)
		}
	}
	if got, err := filterWords("since=1h", now); err != nil || !got.Since.Equal(now.Add(-time.Hour)) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, words := range []string{"colour=blue", "status=great", "since=yesterday-ish", "=x"} {
		if got, err := filterWords(words, now); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%q is %+v, %v", words, got, err)
		}
	}
}
