package gateway

import (
	"bytes"
	"strings"
	"testing"

	"bailey"
)

// TestRedactionPerSession: a secret is a token everywhere in its session, the same one after a hook has
// seen it, and unknown to another session.
func TestRedactionPerSession(t *testing.T) {
	r := NewRedaction()
	r.Learn("s-1", []bailey.Secret{bailey.NewSecret("hunter2hunter2")})
	var buf bytes.Buffer
	w := r.Writer("s-1", &buf)
	w.Write([]byte("the word is hunter2"))
	w.Write([]byte("hunter2, not [REDACTED_LEASE_9]"))
	w.Close()
	once := buf.String()
	if strings.Contains(once, "hunter2") || w.Count() != 1 {
		t.Fatalf("%q, %d redactions", once, w.Count())
	}
	again := string(r.Again("s-1", []byte(once+" and hunter2hunter2")))
	if again != once+" and [REDACTED_LEASE_1]" {
		t.Errorf("again\n%q, want\n%q and [REDACTED_LEASE_1]", again, once)
	}
	if got := r.Value("s-1", map[string]any{"x": []any{"hunter2hunter2"}}); strings.Contains(got.(map[string]any)["x"].([]any)[0].(string), "hunter2") {
		t.Errorf("a value kept it: %v", got)
	}
	if got := r.Value("s-2", "hunter2hunter2"); got != "hunter2hunter2" {
		t.Errorf("another session knows it: %v", got)
	}
	r.End("s-1")
	if got := r.Value("s-1", "hunter2hunter2"); got != "hunter2hunter2" {
		t.Errorf("an ended session's map was kept: %v", got)
	}
}
