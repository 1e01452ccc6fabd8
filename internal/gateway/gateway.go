// Package gateway implements the process between the front ends and the gate, one per user and home. It owns the
// socket, the sessions with their workspaces and token maps, and decides when to end. Front ends are thin clients that
// use [localapi.Client]. Every call goes through the gate.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/peer"
	"bailey/internal/workspace"
)

// Gate carries calls.
type Gate interface {
	Do(ctx context.Context, call bailey.Call) bailey.Result
	EndSession(ctx context.Context, id bailey.SessionID) error
}

// Config is the configuration of a gateway. Every field is required unless its comment says otherwise.
type Config struct {
	Home       localapi.Home
	Gate       Gate
	Workspaces *workspace.Workspaces
	// Redaction redacts the data that sessions give about themselves, and the errors of queries, because they quote
	// calls.
	Redaction *Redaction
	// Handlers answer queries, which only read, and commands, for which a query must state the right of an operator.
	// Each name must occur once.
	Handlers []Handler
	// MCP serves MCP on a connection until it ends.
	MCP func(ctx context.Context, from bailey.Call, conn io.ReadWriteCloser) error
	// Means maps a tool's arguments to exactly one call.
	Means func(argv []string, dir string) (Meant, error)
	// Web serves HTTP. If it is nil, HTTP is not served. Model does the same for clients of models.
	Web, Model Web
	// Begin is called before an MCP connection is served, or before the first call or connection of a session with a
	// bearer. If it returns an error, that is refused. End is called when the connection has ended; for a session with
	// a bearer, when its last connection has ended or its state is discarded. The context of End is cancelled soon
	// after the gateway begins to end. Both get redacted data.
	Begin func(ctx context.Context, from bailey.Call) error
	End   func(ctx context.Context, from bailey.Call)
	// Note records an event durably.
	Note     func(ctx context.Context, kind string, data any) error
	Log      *slog.Logger
	Live     *Live     // records the connected sessions
	Sessions *Sessions // the sessions that outlive a connection
	Agents   *Agents   // identifies agents by their tokens
	Kept     *Kept     // the token maps of `bailey redact`; nil: that command is refused
	// TokenRequired reports whether calls without a token are refused.
	TokenRequired func() bool
	// Idle is how long a gateway runs without a session or a kept map. Zero: ten minutes.
	Idle time.Duration
	// Watch is the interval at which the gateway checks that its home is still its own. Zero: two seconds.
	Watch time.Duration
	// QueryPatience is how long a connection may take to send its query. Zero: ten seconds.
	QueryPatience time.Duration
	// ReadPatience is how long a client may leave output of a call unread before the call is ended, so that it cannot
	// keep the call open beyond its time limit. Zero: ten seconds.
	ReadPatience time.Duration
}

// Gateway is the gateway process. mu guards the idle clock; calls counts the open connections.
type Gateway struct {
	Config
	listener *peer.Listener
	socket   os.FileInfo
	person   string
	webs     chan struct{} // one element per HTTP connection
	handlers map[string]Handler
	web      *webListener // set by Run, unless Web is nil
	model    *webListener // set by Run, unless Model is nil
	calls    sync.WaitGroup
	busy     atomic.Int64
	streams  chan struct{}                           // one element per redact stream
	end      atomic.Pointer[context.CancelCauseFunc] // set by Run
	last     context.Context                         // for the ends of sessions; set by Run
	mu       sync.Mutex
	quiet    time.Time // since when no client is connected and no map is kept
}

// Listen opens the socket. Clients can connect from then on, and are served when Run is called.
func Listen(c Config) (*Gateway, error) {
	g := &Gateway{Config: c, quiet: time.Now(), streams: make(chan struct{}, maxStreams),
		webs: make(chan struct{}, maxWebs), handlers: map[string]Handler{}}
	for _, h := range c.Handlers {
		if _, twice := g.handlers[h.Name]; twice {
			return nil, fmt.Errorf("two handlers have the name %s", h.Name)
		}
		g.handlers[h.Name] = h
	}
	if g.Idle == 0 {
		g.Idle = 10 * time.Minute
	}
	if g.Watch == 0 {
		g.Watch = 2 * time.Second
	}
	if g.QueryPatience == 0 {
		g.QueryPatience = queryPatience
	}
	if g.ReadPatience == 0 {
		g.ReadPatience = 10 * time.Second
	}
	g.person = "uid:" + strconv.Itoa(os.Geteuid())
	if u, err := user.Current(); err == nil {
		g.person = u.Username
	}
	var err error
	if g.listener, err = peer.Listen(c.Home.Socket()); err != nil {
		return nil, err
	}
	g.socket, err = os.Lstat(c.Home.Socket())
	return g, err
}

// errIdle, errReplaced and errStopped are the reasons why a gateway ends without a signal.
var (
	errIdle     error = endReason("there was no connection for a while")
	errReplaced error = endReason("the home or its socket no longer belongs to this gateway")
	errStopped  error = endReason("the gateway was told to stop")
)

// endReason is the reason for a cancellation. The receipt of a cancelled call quotes it.
type endReason string

const callerGone = endReason("the caller disconnected")

func (e endReason) Error() string { return string(e) }

func (e endReason) Is(target error) bool { return target == context.Canceled }

// Run serves until ctx ends, the gateway is idle, or its home is no longer its own. Then it cancels the open calls and
// waits until each has its outcome.
func (g *Gateway) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.end.Store(&cancel)
	last, enough := context.WithCancel(context.WithoutCancel(ctx))
	defer enough()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastPatience, enough) })()
	g.last = last
	stopWeb := g.serveWeb()
	go g.watchForEnd(ctx, cancel)
	context.AfterFunc(ctx, func() { g.listener.Close() })
	for {
		conn, err := g.listener.Accept()
		if peer.Temporary(err) {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err != nil {
			cancel(err) // an earlier cause is kept
			break
		}
		if g.addConn() > maxConns+maxStreams+maxWebs+spareConns {
			writeError(conn, errCrowded)
			conn.Close()
			g.removeConn()
			continue
		}
		g.calls.Go(func() {
			defer g.removeConn()
			g.serveConn(ctx, conn)
		})
	}
	stopWeb(context.Cause(ctx))
	g.calls.Wait()
	g.Sessions.removeAll(g.endSession)
	if g.ownSocket() {
		os.Remove(g.Home.Socket())
	}
	cause := context.Cause(ctx)
	if why := endReason(""); errors.As(cause, &why) || !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil // the caller of Run knows the reason
}

func (g *Gateway) watchForEnd(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(g.Watch)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch {
		case !g.ownSocket():
			cancel(errReplaced)
			return
		case g.isIdle():
			cancel(errIdle)
			return
		}
	}
}

func (g *Gateway) ownSocket() bool {
	info, err := os.Lstat(g.Home.Socket())
	return err == nil && os.SameFile(info, g.socket)
}

// maxConns limits the open calls and sessions. Beyond it, new ones get an error and existing ones are not affected.
// spareConns are reserved for queries, for stopping and for operator commands. Redact streams wait for the user's
// pagers and sources, and HTTP clients keep idle connections. Both have limits of their own, so that they take no
// capacity from calls.
const maxConns, maxStreams, maxWebs, spareConns = 256, 8, 1024, 16

var errCrowded = &bailey.Error{Kind: bailey.Unavailable,
	Message: fmt.Sprintf("%d calls and sessions are open", maxConns),
	Hint:    "run bailey status to see them; end some, then call again"}

var errBusy = &bailey.Error{Kind: bailey.Unavailable,
	Message: fmt.Sprintf("%d texts are being redacted or restored, the maximum", maxStreams),
	Hint:    "wait until one ends, or end one (for example a pager, or a log that is followed), then try again"}

// lastPatience limits how long the ends of all sessions together may delay the end of a gateway.
const lastPatience = 4 * time.Second

// addConn counts a connection and returns the number of open connections.
func (g *Gateway) addConn() int64 { return g.busy.Add(1) }

func (g *Gateway) removeConn() {
	g.mu.Lock()
	g.quiet = time.Now()
	g.mu.Unlock()
	g.busy.Add(-1)
}

func (g *Gateway) isIdle() bool {
	kept := 0
	if g.Kept != nil {
		kept, _ = g.Kept.Count() // called each time, so that expired maps are removed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if kept > 0 {
		g.quiet = time.Now()
	}
	return g.busy.Load() == 0 && (g.Web == nil || g.Web.Sessions() == 0) &&
		(g.Model == nil || g.Model.Sessions() == 0) && time.Since(g.quiet) > g.Idle
}
