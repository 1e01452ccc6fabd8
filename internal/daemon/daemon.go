// Package daemon stands between a caged client and the unix socket of a daemon that is root: Docker, Podman, Incus. Whoever
// holds such a socket holds the machine, so no cage does. What is in the cage is a socket of ours, and what is written to it is read
// here as a request, compared with what the manifest allows, and said to the daemon anew, in our words.
//
// A request is one head of HTTP/1.1 in its strictest spelling, without a body, on a connection of its own: there is nothing behind it that
// two readers could take for different things, and nothing that a connection could be turned into. What is sent on is
// made of what was checked, and the client's own bytes never reach the daemon. What no route names, method, path and each
// parameter, is refused with status 403 and a message that clients of these daemons print.
//
// The daemon's socket is opened once for a call. Its file and whoever listens there have to be root's or ours: see [New].
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"bailey"
)

// Config is what one call may ask of a daemon.
type Config struct {
	API    bailey.API // with its path
	Limits Limits
}

// Limits bound a call. Zero fields have the values named here.
type Limits struct {
	Open   int           // requests at once, more wait: 16
	Total  int           // requests in all: 1,000
	Bytes  int64         // of one answer: 64 MiB
	Events int           // reported of refusals, and as many of the rest; what is more is counted: 128
	Head   time.Duration // to say what is wanted: 10 s
	Idle   time.Duration // without a byte of the answer, either side: 1 min
	Linger time.Duration // for who was refused to read why, and hang up: 1 s
}

func (l Limits) filled() Limits {
	l.Open, l.Total, l.Events = or(l.Open, 16), or(l.Total, 1000), or(l.Events, 128)
	l.Bytes, l.Head, l.Idle = or(l.Bytes, 64<<20), or(l.Head, 10*time.Second), or(l.Idle, time.Minute)
	l.Linger = or(l.Linger, time.Second)
	return l
}

// or is v, or what it is by default: no limit can be switched off.
func or[T int | int64 | time.Duration](v, usual T) T {
	if v <= 0 {
		return usual
	}
	return v
}

// way is the other side of one cage's socket.
type way struct {
	api    bailey.API
	routes []bailey.Route
	limits Limits
	socket *socket
	tally  tally
}

// Usual is where a daemon listens unless somebody says otherwise: Podman for the user who asks, the others for all.
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

// Plan says what a cage needs so that its tool finds the daemon.
func Plan(api bailey.API) *bailey.Network {
	return &bailey.Network{API: &api, Listen: []bailey.Listen{{Network: "unix", Address: api.Inside()}}}
}

// New opens the daemon's socket, which has to be a socket, of root or of whoever runs this process. It starts nothing.
func New(c Config) (bailey.Way, error) {
	w := &way{api: c.API, limits: c.Limits.filled()}
	w.tally.most = w.limits.Events
	for _, text := range c.API.Allow {
		r, err := bailey.ParseRoute(text)
		if err != nil {
			return nil, err
		}
		w.routes = append(w.routes, r)
	}
	var err error
	w.socket, err = open(c.API)
	return w, err
}

func (w *way) Trusted() []byte { return nil }

func (w *way) Report() bailey.EgressReport { return w.tally.report() }

// Serve takes connections until ctx ends; then none of them is open, on either side.
func (w *way) Serve(ctx context.Context, listeners []net.Listener) error {
	defer w.socket.Close()
	for _, ln := range listeners {
		defer ln.Close()
	}
	if len(listeners) != 1 {
		return &bailey.Error{Kind: bailey.Internal, Message: fmt.Sprintf("%d sockets came out of a cage, and one was planned", len(listeners))}
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
				w.serve(ctx, c)
			})
		case ctx.Err() != nil:
			return nil
		case !wait(ctx, err):
			return fmt.Errorf("the daemon's socket in the cage takes no more connections: %w", err)
		default:
			<-places
		}
	}
}

// wait waits where a connection could not be taken for want of descriptors, or was gone again.
func wait(ctx context.Context, err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
	return true
}
