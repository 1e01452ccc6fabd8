package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
)

// TestShowsNothingStrange checks that a receipt on a terminal contains no control characters, neither in a list nor
// alone. A single receipt must be JSON of the same value.
func TestShowsNothingStrange(t *testing.T) {
	const hostile = "a\x1b[2J\u009b1A\u202e\x7f\n\U000e0041\ufffd日本"
	var shown apitype.ShownReceipt
	shown.Intent = bailey.Intent{Receipt: "r-1", Capability: hostile, Agent: hostile, Client: hostile}
	shown.Outcome = &bailey.Outcome{Status: bailey.Failed, Reason: hostile}
	whole := terminal.IndentValue(shown)
	var out strings.Builder
	(&App{Stderr: &out}).printReceipts(&out, apitype.NewReceiptList(receipts.Page{Records: []receipts.Record{shown.Record}}))
	for _, text := range []string{whole, out.String()} {
		if i := strings.IndexFunc(strings.ReplaceAll(text, "\n", ""), terminal.Strange); i >= 0 {
			t.Errorf("%q reaches the terminal", text)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines: %q", n, &out)
	}
	var back apitype.ShownReceipt
	if err := json.Unmarshal([]byte(whole), &back); err != nil || back.Intent.Client != hostile || back.Outcome.Reason != hostile {
		t.Errorf("%+v %v", back, err)
	}
}

// TestDryRunIsNoCall checks that a list distinguishes dry runs from calls.
func TestDryRunIsNoCall(t *testing.T) {
	for status, want := range map[bailey.Status]string{bailey.OK: "ok (dry run)", bailey.Refused: "denied (dry run)"} {
		r := receipts.Record{}
		r.Intent.DryRun, r.Outcome = true, &bailey.Outcome{Status: status}
		var out strings.Builder
		(&App{Stderr: &out}).printReceipts(&out, apitype.NewReceiptList(receipts.Page{Records: []receipts.Record{r}}))
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", &out, want)
		}
	}
}

// TestDecided checks that a report names the deciding rules. If there were none, it must explain that.
func TestDecided(t *testing.T) {
	for want, o := range map[string]bailey.Outcome{
		"allow by look":                      {Decision: "allow", PolicyDigest: "p", Rules: []bailey.Rule{{ID: "look"}}},
		"deny by never, nor":                 {Decision: "deny", PolicyDigest: "p", Rules: []bailey.Rule{{ID: "never"}, {ID: "nor"}}},
		"deny: no rule permits it":           {Decision: "deny", PolicyDigest: "p"},
		"deny before any rule was evaluated": {Decision: "deny"},
		"nothing: it was not decided":        {},
	} {
		var c reportedCall
		if c.setOutcome(2, &o); c.decisionText() != want {
			t.Errorf("%q, want %q", c.decisionText(), want)
		}
	}
}

// TestJSONIsPlain checks that JSON output contains no control characters for a terminal, and has the same value.
func TestJSONIsPlain(t *testing.T) {
	var out strings.Builder
	want := "git.x\u009b2J\u202e\x7f\U000e0041é😀\n"
	if err := writeJSON(&out, want); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got != want {
		t.Errorf("%q %v", got, err)
	}
	if line := strings.TrimSuffix(out.String(), "\n"); strings.ContainsFunc(line, terminal.Strange) || !strings.Contains(line, "é😀") {
		t.Errorf("%q", line)
	}
}
