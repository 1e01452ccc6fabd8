//go:build linux

package socketproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAnswers checks that each answer arrives complete, or so that no client can mistake it for complete, for example
// cut short. The connection must be closed and not upgraded.
func TestAnswers(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct {
		say    string
		status int
		body   string
		header string // must be present
		cut    bool
	}{
		"a length":             {say: head + "Content-Length: 3\r\nX-Kept: yes\r\n\r\nabc", status: 200, body: "abc", header: "X-Kept"},
		"chunks":               {say: head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", status: 200, body: "abc"},
		"until the end":        {say: "HTTP/1.0 200 OK\r\n\r\nabc", status: 200, body: "abc"},
		"an error":             {say: "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", status: 404, body: "{}"},
		"nothing":              {say: "HTTP/1.1 204 No Content\r\n\r\n", status: 204},
		"not modified":         {say: "HTTP/1.1 304 Not Modified\r\n\r\n", status: 304},
		"a keeper":             {say: head + "Connection: keep-alive\r\nKeep-Alive: 5\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n\r\n", status: 200, body: "abc"},
		"short of its length":  {say: head + "Content-Length: 9\r\n\r\nabc", status: 502},
		"short of its chunk":   {say: head + "Transfer-Encoding: chunked\r\n\r\n9\r\nabc", status: 502},
		"too long, by length":  {say: head + "Content-Length: 9000000\r\n\r\n" + strings.Repeat("a", 9000000), status: 200, cut: true},
		"too long, to the end": {say: "HTTP/1.0 200 OK\r\n\r\n" + strings.Repeat("a", 9000000), status: 200, cut: true},
		"upgrade":              {say: "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n", status: 502},
		"go on":                {say: "HTTP/1.1 100 Continue\r\n\r\n" + head + "\r\n", status: 502},
		"no answer":            {say: "", status: 502},
		"no HTTP":              {say: "hello\r\n\r\n", status: 502},
		"a head without end":   {say: head + "X: " + strings.Repeat("a", 3<<20), status: 502},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, path: filepath.Join(t.TempDir(), "d.sock"), inside: filepath.Join(t.TempDir(), "i.sock")}
			ln := w.listen(w.path)
			go func() {
				for {
					d, err := ln.Accept()
					if err != nil {
						return
					}
					http.ReadRequest(bufio.NewReader(d))
					io.WriteString(d, c.say)
					d.Close()
				}
			}()
			w.serve(Limits{Bytes: 1 << 20})
			answer := w.say(get("/_ping"))
			res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
			if err != nil {
				t.Fatalf("%v: %.300q", err, answer)
			}
			body, err := io.ReadAll(res.Body)
			if res.StatusCode != c.status || (err != nil) != c.cut || c.body != "" && string(body) != c.body || c.header != "" && res.Header.Get(c.header) == "" || len(body) > 2<<20 {
				t.Errorf("%d, %v, %.100q of %d", res.StatusCode, err, body, len(body))
			}
			if !res.Close || res.Header.Get("Upgrade")+res.Header.Get("Keep-Alive") != "" {
				t.Errorf("%v", res.Header)
			}
			w.stop()
			if r := w.way.Report(); (r.Failed == 1) != (c.cut || c.status == 502) || r.Failed+r.Connections != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestHeadHasNoBody checks that the answer to HEAD has no body.
func TestHeadHasNoBody(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Api-Version", "1.41")
		fmt.Fprint(rw, "body")
	}, Limits{})
	if answer := w.say("HEAD /_ping HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 200 OK\r\n") || !strings.Contains(answer, "Api-Version: 1.41\r\n") || !strings.HasSuffix(answer, "\r\n\r\n") {
		t.Errorf("%q", answer)
	}
}

// TestDaemonGone checks that if the daemon ends during the call, this is a failure with a hint, not a refusal.
func TestDaemonGone(t *testing.T) {
	w := &world{t: t, path: filepath.Join(t.TempDir(), "d.sock"), inside: filepath.Join(t.TempDir(), "i.sock")}
	ln := w.listen(w.path)
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	w.serve(Limits{})
	ln.Close()
	answer := w.say(get("/_ping"))
	w.stop()
	if r := w.way.Report(); !strings.HasPrefix(answer, "HTTP/1.1 502 ") || !strings.Contains(answer, "no process listens at") || r.Failed != 1 || r.Events[0].Hint == "" || len(r.Refusals()) > 0 {
		t.Errorf("%q, %+v", answer, r)
	}
}

// TestChanges checks that a request that changes something passes if a route names it, without a body and without the
// client's header fields, and that the daemon may take its time with it.
func TestChanges(t *testing.T) {
	w := &world{t: t, path: filepath.Join(t.TempDir(), "d.sock"), inside: filepath.Join(t.TempDir(), "i.sock"),
		more: []string{"POST /containers/{id}/stop?t", "DELETE /containers/{id}?force", "GET /containers/{id}/follow?follow", "GET /events?since"}}
	slow := 100 * time.Millisecond
	heads := make(chan http.Header, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if n, _ := io.Copy(io.Discard, r.Body); n > 0 {
			t.Errorf("%s has a body", r.RequestURI)
		}
		select { // the proxy closes the connection if it does not wait
		case <-r.Context().Done():
		case <-time.After(slow):
		}
		heads <- r.Header
		io.WriteString(rw, "done\n")
	})}
	go srv.Serve(w.listen(w.path))
	t.Cleanup(func() { srv.Close() })
	w.serve(Limits{Idle: slow / 4, Quiet: time.Minute})
	const secret = "X-Registry-Auth: c2VjcmV0\r\nAuthorization: x\r\n"
	for target, status := range map[string]int{
		"POST /v1.50/containers/a/stop?t=5": 200, "DELETE /containers/a?force=1": 200, "GET /events?since=1": 200, "GET /containers/a/follow?follow=1": 200,
		"GET /containers/a/json": 502, "GET /containers/a/follow?follow=0": 502, // not in time
		"POST /containers/a/start": 403, "POST /containers/a/stop?signal=KILL": 403, "DELETE /containers/a?v=1": 403, "PUT /containers/a": 403,
	} {
		answer := w.say(target + " HTTP/1.1\r\nHost: x\r\n" + secret + "Content-Length: 0\r\n\r\n")
		if !strings.HasPrefix(answer, fmt.Sprintf("HTTP/1.1 %d ", status)) {
			t.Errorf("%s: %.200q", target, answer)
		}
		if status == 403 {
			continue
		}
		want := ""
		if strings.HasPrefix(target, "POST") {
			want = "e30="
		}
		if head := <-heads; head.Get("X-Registry-Auth") != want || head.Get("Authorization") != "" {
			t.Errorf("%s: the daemon got %v", target, head)
		}
	}
	if answer := w.say("POST /containers/a/stop HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"); !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
		t.Errorf("a body: %.200q", answer)
	}
}
