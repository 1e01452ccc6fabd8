package approve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"bailey"
)

func secret(text, value string) bailey.Shown {
	return bailey.Shown{Text: text, Value: bailey.NewSecret(value)}
}

// TestNoSecretInText checks that no secret is in the text of a question or in the list of open questions.
func TestNoSecretInText(t *testing.T) {
	q := New(Config{Note: (&book{}).note})
	in := question("a-1", false)
	in.Argv = append(in.Argv, secret("[REDACTED_PASSWORD_1]", "hunter2"))
	in.Inputs = []bailey.Input{{Name: "to", Shown: secret(`"[REDACTED_PASSWORD_1]"`, `"pw"`)}}
	if _, err := q.Ask(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	open := q.Open()[0]
	if strings.Contains(open.Text, "hunter2") || !strings.Contains(open.Text, `"[REDACTED_PASSWORD_1]"`) {
		t.Errorf("text %s", open.Text)
	}
	if got := open.Argv[2].Value.Reveal() + open.Inputs[0].Value.Reveal(); got != "" {
		t.Errorf("the queue keeps %q", got)
	}
	if in.Argv[2].Value.Reveal() != "hunter2" {
		t.Error("the caller's own was taken away")
	}
	sum := sha256.Sum256([]byte(open.Text))
	if open.Digest != hex.EncodeToString(sum[:]) || len(open.Nonce) != 32 {
		t.Errorf("digest %s, nonce %s", open.Digest, open.Nonce)
	}
}

// TestTooLong checks that if the ledger cannot hold a question completely, it is not asked.
func TestTooLong(t *testing.T) {
	b := &book{}
	in := question("a-1", true)
	in.Argv = append(in.Argv, plain(strings.Repeat("ä", 10<<10)))
	_, err := New(Config{Note: b.note}).Ask(t.Context(), in)
	if !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" || !strings.Contains(err.Error(), "cannot ask a person") {
		t.Error(err)
	}
	if strings.ContainsAny(err.Error()+bailey.HintOf(err), "0123456789") {
		t.Errorf("it says how long what nobody has let the agent read is: %v", err)
	}
	expect(t, b)
}
