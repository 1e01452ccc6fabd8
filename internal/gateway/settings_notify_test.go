//go:build linux || darwin

package gateway

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"bailey/internal/settings"
)

// TestWebhookStaysOutOfTheLedger checks that the whole URL is only in the file, that it is known after a start, and
// that an unapplied file does not change it. If only the part after the host changes, this is a difference too.
func TestWebhookStaysOutOfTheLedger(t *testing.T) {
	b := newBook(t)
	const url = "https://hooks.example.com/T0/sesame"
	if _, err := b.put(t, "notify:\n  desktop: true\n  webhook:\n    url: "+url+"\n"); err != nil {
		t.Fatal(err)
	}
	noted, err := json.Marshal(b.last)
	if err != nil || strings.Contains(string(noted), "sesame") || !strings.Contains(string(noted), `"notify":{"desktop":true,"webhook":"https://hooks.example.com `) {
		t.Errorf("%s, %v", noted, err)
	}
	b.last = settings.Applied{}
	if err := json.Unmarshal(noted, &b.last); err != nil {
		t.Fatal(err)
	}
	b.open(t)
	if n := b.Applied().Notify; n.URL.Reveal() != url || !n.Desktop {
		t.Errorf("after a start: %+v", n)
	}
	if err := os.WriteFile(b.filePath(), []byte("notify:\n  webhook:\n    url: https://hooks.example.com/T0/another\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st, err := b.State(""); err != nil || !st.Changed || st.Notify.Webhook == b.Applied().Notify.Webhook {
		t.Errorf("%+v, %v", st.Notify, err)
	}
	b.open(t)
	if n := b.Applied().Notify; n.URL.Reveal() != "" {
		t.Errorf("nobody applied %+v", n)
	}
}
