//go:build linux

package socketproxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// TestAttackRequests sends each row unchanged. If the request is not exactly allowed, it must be refused without
// reaching the daemon.
func TestAttackRequests(t *testing.T) {
	ktest.Long(t)
	w := newWorld(t, nil, Limits{Events: 1000})
	for _, a := range attacks(t) {
		answer := w.say(a.Say + strings.Repeat(a.More, a.Times) + a.End)
		if !strings.HasPrefix(answer, fmt.Sprintf("HTTP/1.1 %d ", a.Want)) || !strings.Contains(answer, "Connection: close\r\n") {
			t.Errorf("%s: want %d, got %.300q", a.Name, a.Want, answer)
		}
		if told := w.heard(); strings.Join(told, " ") != a.Sees {
			t.Errorf("%s: the daemon was told %q, want %q", a.Name, told, a.Sees)
		}
		if a.Want != 200 && (strings.Count(answer, "HTTP/1.1 ") != 1 || !strings.Contains(answer, `"message":"docker `)) {
			t.Errorf("%s: answered %.300q", a.Name, answer)
		}
	}
	w.stop()
	sum, bad := w.way.Report().EgressTotals, 0
	for _, a := range attacks(t) {
		if a.Want != 200 {
			bad++
		}
	}
	if int(sum.Refused) != bad || int(sum.Connections) != len(attacks(t))-bad || sum.Failed != 0 || bad < 80 {
		t.Errorf("%d attacks, %+v", bad, sum)
	}
	e := w.refused("POST /v1.41/containers/create")
	if e.Kind != bailey.EgressRefused || e.Via != "unix" || !strings.Contains(e.Words(), "allowed: HEAD /_ping, GET /_ping, GET /containers/json?all&filters") || e.Time.IsZero() {
		t.Errorf("%+v", e)
	}
}

// TestAttackOneByte checks that a request may arrive in pieces of any size.
func TestAttackOneByte(t *testing.T) {
	w := newWorld(t, nil, Limits{})
	c := w.dial()
	defer c.Close()
	for _, b := range []byte(get("/containers/json")) {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if answer, _ := io.ReadAll(c); !strings.HasSuffix(string(answer), "answered\n") {
		t.Errorf("%q", answer)
	}
}

// TestAttackLater checks that bytes after an accepted request are not read.
func TestAttackLater(t *testing.T) {
	taken, more := make(chan bool), make(chan bool)
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { taken <- true; <-more }, Limits{})
	c := w.dial()
	defer c.Close()
	io.WriteString(c, get("/containers/json"))
	<-taken
	io.WriteString(c, "POST /containers/create HTTP/1.1\r\nHost: x\r\n\r\n")
	more <- true
	answer, _ := io.ReadAll(c)
	w.stop()
	if told := w.heard(); len(told) != 1 || strings.Count(string(answer), "HTTP/1.1 ") != 1 {
		t.Errorf("told %q, answered %q", told, answer)
	}
}

// TestAttackSlowly checks that incomplete requests are ended in time and do not block others.
func TestAttackSlowly(t *testing.T) {
	w := newWorld(t, nil, Limits{Open: 2, Head: 100 * time.Millisecond, Linger: 50 * time.Millisecond})
	for range 5 {
		c := w.dial()
		defer c.Close()
		io.WriteString(c, "GET /containers/json HTTP/1.1\r\nX: ")
	}
	if answer := w.say(get("/_ping")); !strings.HasSuffix(answer, "answered\n") {
		t.Errorf("%q", answer)
	}
	w.stop()
	if sum := w.way.Report(); sum.Refused == 0 || sum.Connections != 1 {
		t.Errorf("%+v", sum)
	}
}

// TestAttackThousand checks that 1,000 concurrent connections are answered, with at most Open of them at the daemon.
func TestAttackThousand(t *testing.T) {
	var now, most atomic.Int64
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		defer now.Add(-1)
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		io.WriteString(rw, "answered\n")
	}, Limits{Open: 4, Total: 1001})
	var work sync.WaitGroup
	var good atomic.Int64
	for range 1000 {
		work.Go(func() {
			if strings.HasSuffix(w.say(get("/_ping")), "answered\n") {
				good.Add(1)
			}
		})
	}
	work.Wait()
	if good.Load() != 1000 || most.Load() > 4 {
		t.Errorf("%d answered, %d at once", good.Load(), most.Load())
	}
}

// TestAttackMany checks that each request beyond Total is answered with status 503.
func TestAttackMany(t *testing.T) {
	w := newWorld(t, nil, Limits{Total: 2, Events: 1})
	var got []string
	for range 4 {
		got = append(got, w.say(get("/_ping"))[9:12])
	}
	if !slices.Equal(got, []string{"200", "200", "503", "503"}) || len(w.heard()) != 2 {
		t.Errorf("%q", got)
	}
	w.stop()
	if r := w.way.Report(); len(r.Events) != 2 || r.Untold != 2 || r.Refused != 2 || r.Connections != 2 || len(r.Refusals()) != 1 {
		t.Errorf("%+v", r)
	}
}

// TestAttackLeftOver checks that no connection outlives the call, on either side, and that its end is not reported as a
// failure.
func TestAttackLeftOver(t *testing.T) {
	taken, gone := make(chan bool), make(chan bool)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { taken <- true; <-r.Context().Done(); gone <- true }, Limits{})
	idle, busy := w.dial(), w.dial()
	defer idle.Close()
	defer busy.Close()
	io.WriteString(busy, get("/_ping"))
	<-taken
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	<-gone
	for _, c := range []io.Reader{idle, busy} {
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%q, %v", b, err)
		}
	}
	if r := w.way.Report(); r.Failed+r.Refused != 0 {
		t.Errorf("%+v", r)
	}
}

// TestServeWantsOneSocket checks that Serve fails without its one socket.
func TestServeWantsOneSocket(t *testing.T) {
	w := newWorld(t, nil, Limits{})
	if err := w.way.Serve(t.Context(), nil); !errors.Is(err, bailey.Internal) {
		t.Error(err)
	}
}
