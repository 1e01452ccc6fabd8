//go:build linux

package socketproxy

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"bailey"
)

// routes are the allowed routes of the attack tests.
var routes = []string{"HEAD /_ping", "GET /_ping", "GET /containers/json?all&filters", "GET /containers/{id}/json", "GET /containers/{id}/stats?stream=0&stream=false",
	"GET /containers/{id}/logs?stdout&stderr", "GET /images/{name...}/json"}

// attack is a row of testdata/attacks.json. cmd/bailey tries the same rows from inside a cage.
type attack struct {
	Name, Say, More, End string
	Times                int    // how often More is repeated after Say
	Want                 int    // status of the answer
	Sees                 string // the requests that reach the daemon; usually empty
}

func attacks(t testing.TB) (list []attack) {
	t.Helper()
	text, err := os.ReadFile("testdata/attacks.json")
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// world is a daemon that records its requests, and a cage's socket that leads to it.
type world struct {
	t      *testing.T
	way    bailey.Way
	path   string   // the daemon's socket
	inside string   // the socket for the cage
	more   []string // routes in addition to the usual ones
	stop   func() error

	mu   sync.Mutex
	told []string
}

// newWorld starts a daemon that answers with h, or plainly if h is nil.
func newWorld(t *testing.T, h http.HandlerFunc, l Limits) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, path: filepath.Join(dir, "d.sock"), inside: filepath.Join(dir, "i.sock")}
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.note(r.Method + " " + r.RequestURI)
		if n, _ := io.Copy(io.Discard, r.Body); n > 0 || len(r.Header) > 2 && r.Method != "POST" || len(r.Header) > 4 || r.Host != "localhost" {
			t.Errorf("%s came with %d bytes, for %s, %v", r.RequestURI, n, r.Host, r.Header)
		}
		if h == nil {
			io.WriteString(rw, "answered\n")
			return
		}
		h(rw, r)
	})}
	go srv.Serve(w.listen(w.path))
	t.Cleanup(func() { srv.Close() })
	w.serve(l)
	return w
}

func (w *world) note(s string) { w.mu.Lock(); defer w.mu.Unlock(); w.told = append(w.told, s) }

// heard returns the requests since its last call.
func (w *world) heard() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = nil
	return told
}

func (w *world) listen(path string) net.Listener {
	w.t.Helper()
	ln, err := net.Listen("unix", path)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ln.Close() })
	return ln
}

// serve serves the cage's socket until stop or the end of the test.
func (w *world) serve(l Limits) {
	w.t.Helper()
	way, err := New(Config{API: bailey.API{Socket: "docker", Path: w.path, Allow: slices.Concat(routes, w.more)}, Limits: l})
	if err != nil {
		w.t.Fatal(err)
	}
	w.way = way
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	ln := w.listen(w.inside)
	go func() { served <- way.Serve(ctx, []net.Listener{ln}) }()
	w.stop = sync.OnceValue(func() error { cancel(); return <-served })
	w.t.Cleanup(func() { w.stop() })
}

func (w *world) dial() *net.UnixConn {
	w.t.Helper()
	c, err := net.Dial("unix", w.inside)
	if err != nil {
		w.t.Fatal(err)
	}
	return c.(*net.UnixConn)
}

// say sends words, closes its sending side, and returns the complete answer.
func (w *world) say(words string) string {
	w.t.Helper()
	c := w.dial()
	defer c.Close()
	io.WriteString(c, words)
	c.CloseWrite()
	answer, _ := io.ReadAll(c)
	return string(answer)
}

func get(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n" }

// refused returns the event that contains these words.
func (w *world) refused(words string) bailey.EgressEvent {
	w.t.Helper()
	all := w.way.Report().Events
	i := slices.IndexFunc(all, func(e bailey.EgressEvent) bool { return strings.Contains(e.Words(), words) })
	if i < 0 {
		w.t.Fatalf("nothing says %q: %+v", words, all)
	}
	return all[i]
}
