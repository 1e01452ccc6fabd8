//go:build linux

package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/notify"
	"bailey/internal/wire"
)

// posted is what a webhook was sent.
type posted struct {
	notify.Message
	header http.Header
	raw    string
}

// told is a gate whose questions a webhook learns of, and what it learns.
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
	if _, err := a.desk.settings.Apply(t.Context(), a.desk.settings.Digest(), []byte(text), gateway.Applied{Operator: wire.Env}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.acts()[notifyKeyVerb](t.Context(), wire.Query{Verb: notifyKeyVerb, Operator: wire.Env}, bailey.Call{}); err != nil {
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

// TestQuestionIsTold: whoever listens learns of a question and of its end, signed, and of no secret in it.
func TestQuestionIsTold(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a := askingFor(t, strings.ReplaceAll(asksForDates, "system.date", "system.echo"))
	key, came := told(t, a)
	done := make(chan bailey.Result, 1)
	go func() {
		done <- a.calls(t, "system.echo", "/", map[string]any{"message": "password=hunter2hunter2 <!channel>"})
	}()
	p := <-came
	q := a.queue.Open()[0].Question
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
	if _, err := a.looks()[denyVerb](t.Context(), wire.Query{Verb: denyVerb, Args: map[string]any{"id": string(q.ID), "reason": "not today"}}, bailey.Call{Principal: bailey.Principal{Person: "eve"}}); err != nil {
		t.Fatal(err)
	}
	if p := <-came; p.Type != notify.Settled || p.ID != q.ID || p.Reason != "denied by eve: not today" {
		t.Errorf("%+v", p.Message)
	}
	if r := <-done; r.Executed {
		t.Errorf("%+v", r)
	}
	if st := a.notifyState(); len(st.Ways) != 1 || st.Asks != 2 || st.Fault != "" || strings.Contains(st.words(), "sesame") {
		t.Errorf("%+v", st)
	}
}

// receiver FILE NAME listens as a webhook does from now on: FILE gets a line of JSON for each message whose signature is
// good by the home's key of then, and the environment's NAME is the url.
func startReceiver(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: receiver FILE NAME")
	}
	file, home := ts.MkAbs(args[0]), ts.Getenv("BAILEY_HOME")
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		key, err := os.ReadFile(filepath.Join(home, notifyKeyName))
		raw, err2 := base64.StdEncoding.DecodeString(strings.TrimSpace(strings.TrimPrefix(string(key), "whsec_")))
		h := hmac.New(sha256.New, raw)
		io.WriteString(h, r.Header.Get("webhook-id")+"."+r.Header.Get("webhook-timestamp")+"."+string(body))
		if want := "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil)); errors.Join(err, err2) != nil || r.Header.Get("webhook-signature") != want {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = f.Write(append(body, '\n'))
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	ts.Defer(srv.Close)
	ts.Setenv(args[1], srv.URL)
}
