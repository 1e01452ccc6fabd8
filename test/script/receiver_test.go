//go:build linux

package script_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// receiver FILE NAME starts a webhook. FILE gets a line of JSON for each message whose signature is valid under the
// current key of the home. The environment variable NAME contains the URL.
func startReceiver(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: receiver FILE NAME")
	}
	file, home := ts.MkAbs(args[0]), ts.Getenv("BAILEY_HOME")
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		key, err := os.ReadFile(filepath.Join(home, "notify.key"))
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
