package gateway

import (
	"bytes"
	"strings"
	"testing"

	"bailey"
)

// TestRedactionPerSession checks that a secret has the same token everywhere in its session, also after a hook has seen
// it, and that another session does not know the secret.
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

// TestDetectorsHoldForCalls checks that a value that the rules of package redact detect is replaced in the output of a
// call, in its record and in the text for a hook, even if it was not declared as a secret.
func TestDetectorsHoldForCalls(t *testing.T) {
	const line, want = "Authorization: Bearer q7Xr2LpV9sKd4TnB8wZy3GhJ6mFc1A", "Authorization: Bearer [REDACTED_AUTH_HEADER_1]"
	r := NewRedaction()
	var buf bytes.Buffer
	w := r.Writer("s-1", &buf)
	w.Write([]byte(line[:30]))
	w.Write([]byte(line[30:]))
	w.Close()
	if buf.String() != want {
		t.Errorf("output: %s", buf.String())
	}
	if got := r.Value("s-1", []any{line}); got.([]any)[0] != want {
		t.Errorf("a value: %v", got)
	}
	if got := r.Again("s-1", []byte(want+"\n"+line)); string(got) != want+"\n"+want {
		t.Errorf("after a hook: %s", got)
	}
}
