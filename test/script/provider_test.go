//go:build linux

package script_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"bailey/test/scripted"
)

// provider FILE NAME starts a provider of models that always says "hello". FILE gets each request, and the environment
// variable NAME contains the URL.
func startProvider(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: provider FILE NAME")
	}
	file := ts.MkAbs(args[0])
	model := &scripted.Model{Say: func(context.Context, scripted.Turn) (scripted.Reply, bool) {
		return scripted.Reply{Text: "hello"}, true
	}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		defer f.Close()
		r.Header.Write(f)
		f.Write(append(body, '\n'))
		model.ServeHTTP(w, r)
	}))
	ts.Defer(srv.Close)
	ts.Setenv(args[1], srv.URL)
}
