// Package socketproxy stands between a caged client and the Unix socket of a daemon that runs as root: Docker, Podman,
// Incus. A process with access to such a socket controls the machine, so no cage contains it. The cage contains a
// socket of the gateway instead. The gateway parses each request on it, compares it with the routes in the manifest,
// and sends a newly written request to the daemon.
//
// A request must be one HTTP/1.1 header in its strictest spelling, without a body, on a separate connection. So nothing
// follows it that two parsers could read differently, and the connection cannot change its protocol. The daemon gets
// only text that is built from checked parts, never the client's own bytes. If the method, the path or a parameter is
// not in a route, the request is refused with status 403 and a message that the clients of these daemons print.
//
// The daemon's socket is opened once for a call. Its file and the listening process must belong to root or to this
// process's user: see [New].
package socketproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"bailey"
)

// Config says what one call may request from a daemon.
type Config struct {
	API    bailey.API // including its path
	Limits Limits
}

// Limits are the limits of one call. A field that is not positive means the default value given here.
type Limits struct {
	Open   int           // concurrent requests, others wait: 16
	Total  int           // requests in total: 1,000
	Bytes  int64         // of one response: 64 MiB
	Events int           // reported refusals, and as many other events; further ones are only counted: 128
	Head   time.Duration // to send the request: 10 s
	Idle   time.Duration // without a byte of the response, on either side: 1 min
	Quiet  time.Duration // without a byte from the daemon, if it acts or tells what happens: 1 h
	Linger time.Duration // for a refused client to read why, and close: 1 s
}

func (l Limits) withDefaults() Limits {
	l.Open, l.Total, l.Events = positiveOr(l.Open, 16), positiveOr(l.Total, 1000), positiveOr(l.Events, 128)
	l.Bytes, l.Head, l.Idle = positiveOr(l.Bytes, 64<<20), positiveOr(l.Head, 10*time.Second), positiveOr(l.Idle,
		time.Minute)
	l.Quiet = positiveOr(l.Quiet, time.Hour)
	l.Linger = positiveOr(l.Linger, time.Second)
	return l
}

// positiveOr returns v, or the default if v is not positive: no limit can be switched off.
func positiveOr[T int | int64 | time.Duration](v, usual T) T {
	if v <= 0 {
		return usual
	}
	return v
}

// socketProxy is the outer side of one cage's socket.
type socketProxy struct {
	api    bailey.API
	routes []bailey.Route
	limits Limits
	socket *socket
	tally  eventTally
}

// Usual returns the default path of a daemon's socket: for Podman that of the current user, for the others that of the
// system.
func Usual(socket string) string {
	switch uid := os.Geteuid(); {
	case socket == "incus":
		return "/var/lib/incus/unix.socket"
	case socket == "podman" && uid == 0:
		return "/run/podman/podman.sock"
	case socket == "podman":
		return fmt.Sprintf("/run/user/%d/podman/podman.sock", uid)
	}
	return "/var/run/" + socket + ".sock"
}

// Plan returns the network that a cage needs so that its tool finds the daemon.
func Plan(api bailey.API) *bailey.Network {
	return &bailey.Network{API: &api, Listen: []bailey.Listen{{Network: "unix", Address: api.Inside()}}}
}

// New opens the daemon's socket, which must be a socket and belong to root or to the user of this process. It starts
// nothing.
func New(c Config) (bailey.Way, error) {
	w := &socketProxy{api: c.API, limits: c.Limits.withDefaults()}
	w.tally.most = w.limits.Events
	for _, text := range c.API.Allow {
		r, err := bailey.ParseRoute(text)
		if err != nil {
			return nil, err
		}
		w.routes = append(w.routes, r)
	}
	var err error
	w.socket, err = openSocket(c.API)
	return w, err
}

func (w *socketProxy) Trusted() []byte { return nil }

func (w *socketProxy) Report() bailey.EgressReport { return w.tally.egressReport() }

// Serve accepts connections until ctx ends. When it returns, no connection is open on either side.
func (w *socketProxy) Serve(ctx context.Context, listeners []net.Listener) error {
	defer w.socket.Close()
	for _, ln := range listeners {
		defer ln.Close()
	}
	if len(listeners) != 1 {
		return bailey.Internal.Errorf("", "%d sockets came out of a jail, but one was planned", len(listeners))
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { listeners[0].Close() })()
	places := make(chan struct{}, w.limits.Open)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := listeners[0].Accept()
		switch {
		case err == nil:
			work.Go(func() {
				defer func() { <-places }()
				w.serveConn(ctx, c)
			})
		case ctx.Err() != nil:
			return nil
		case !retryAccept(ctx, err):
			return fmt.Errorf("the daemon's socket in the jail accepts no more connections: %w", err)
		default:
			<-places
		}
	}
}

// retryAccept reports whether to accept again. It waits first. This is for errors such as too few file descriptors, or a
// connection that was closed before it was accepted.
func retryAccept(ctx context.Context, err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
	return true
}

// eventTally collects the events for the receipt. Refusals have a limit of their own, so that allowed requests cannot
// displace them.
type eventTally struct {
	most int

	mu    sync.Mutex
	asked int
	sum   bailey.EgressReport
	told  map[bool]int // number of refusals (true) and of other events
}

// countRequest takes one request from the budget of the call, and reports whether there was one.
func (t *eventTally) countRequest(most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked++
	return t.asked <= most
}

func (t *eventTally) addEvent(e bailey.EgressEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case bailey.EgressClosed:
		t.sum.Connections++
	case bailey.EgressFailed:
		t.sum.Failed++
	default:
		t.sum.Refused++
	}
	t.sum.Up += e.Up
	t.sum.Down += e.Down
	refusal := e.Kind == bailey.EgressRefused
	if t.told == nil {
		t.told = map[bool]int{}
	}
	if t.told[refusal] >= t.most {
		t.sum.Untold++
		return
	}
	t.told[refusal]++
	e.Time, e.Via = time.Now(), "unix"
	t.sum.Events = append(t.sum.Events, e)
}

func (t *eventTally) egressReport() bailey.EgressReport {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.sum
	r.Events = slices.Clone(r.Events)
	return r
}
