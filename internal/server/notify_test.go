//go:build linux

package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/notify"
	"bailey/internal/settings"
)

// posted is one request that the webhook received.
type posted struct {
	notify.Message
	header http.Header
	raw    string
}

// told configures a webhook for the questions of a gate. It returns the signing key and the received messages.
func told(t *testing.T, a asking) (string, <-chan posted) {
	t.Helper()
	came := make(chan posted, 16)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		p := posted{header: r.Header, raw: string(body)}
		if err != nil || json.Unmarshal(body, &p.Message) != nil {
			t.Errorf("%v: %s", err, body)
		}
		came <- p
	}))
	t.Cleanup(srv.Close)
	text := "notify: {webhook: {url: \"" + srv.URL + "/sesame\"}}\n"
	if _, err := a.settings.Apply(t.Context(), a.settings.Digest(), []byte(text), settings.Applied{Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.makeNotifyKey(t.Context(), apitype.NotifyKeyRequest{}, gateway.Caller{Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.sender.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	key, err := os.ReadFile(filepath.Join(string(a.home), notifyKeyName))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(key)), came
}

// TestQuestionIsTold checks that the webhook receives signed messages about the start and the end of a question,
// without secrets.
func TestQuestionIsTold(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a := askingFor(t, strings.ReplaceAll(asksForDates, "system.date", "system.echo"))
	key, came := told(t, a)
	done := make(chan bailey.Result, 1)
	go func() {
		done <- a.Calls(t, "system.echo", "/", map[string]any{"message": "password=hunter2hunter2 <!channel>"})
	}()
	p := <-came
	q := a.Queue.Open()[0].Question
	raw, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whsec_"))
	h := hmac.New(sha256.New, raw)
	io.WriteString(h, p.header.Get("webhook-id")+"."+p.header.Get("webhook-timestamp")+"."+p.raw)
	if want := "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil)); p.header.Get("webhook-signature") != want {
		t.Errorf("signature %q, want %q", p.header.Get("webhook-signature"), want)
	}
	if p.Type != notify.Open || p.ID != q.ID || p.Capability != "system.echo" || p.Digest != q.Digest || len(p.Reasons) != 1 || !strings.Contains(p.HowTo, "bailey approve "+string(q.ID)) {
		t.Errorf("%+v", p.Message)
	}
	if strings.Contains(p.raw, "hunter2") || !strings.Contains(p.Inputs, "REDACTED") || strings.Contains(p.Text, "channel") {
		t.Errorf("%s", p.raw)
	}
	if _, err := a.denyQuestion(t.Context(), apitype.QuestionDenial{ID: q.ID, Reason: "not today"},
		gateway.Caller{Call: bailey.Call{Principal: bailey.Principal{Person: "eve"}}}); err != nil {
		t.Fatal(err)
	}
	if p := <-came; p.Type != notify.Settled || p.ID != q.ID || p.Reason != "denied by eve: not today" {
		t.Errorf("%+v", p.Message)
	}
	if r := <-done; r.Executed {
		t.Errorf("%+v", r)
	}
	if st := a.notifyState(); len(st.Ways) != 1 || st.Asks != 3 || st.Fault != "" || strings.Contains(st.Summary(), "sesame") {
		t.Errorf("%+v", st)
	}
}
