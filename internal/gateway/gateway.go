// Package gateway is the process between doors and spine: one per user and home. It owns the socket, the
// sessions with their workspaces and token maps, and the decision when to end. Doors are thin clients of
// it, through [Client]; a call goes to the gate and nowhere else.
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
	"syscall"
	"time"

	"bailey"
	"bailey/internal/peer"
	"bailey/internal/wire"
)

// Gate carries calls.
type Gate interface {
	Do(ctx context.Context, call bailey.Call) bailey.Result
	EndSession(ctx context.Context, id bailey.SessionID) error
}

// Config says what a gateway serves. Every field is needed but those that say otherwise.
type Config struct {
	Home       wire.Home
	Gate       Gate
	Workspaces *Workspaces
	// Redaction hides what sessions say of themselves, and what a look complains of: that quotes calls.
	Redaction *Redaction
	// Looks are the verbs that merely look, by name.
	Looks map[string]Verb
	// Acts are the operator verbs, by name: they change something, and a query for one says by what
	// right it comes.
	Acts map[string]Verb
	// MCP speaks MCP on a connection until it ends.
	MCP func(ctx context.Context, from bailey.Call, conn io.ReadWriteCloser) error
	// Means finds the one call that a tool's own words mean. Nil: no words mean any.
	Means func(argv []string) (Meant, error)
	// Web serves HTTP. Nil: nothing does.
	Web Web
	// Begin is asked before an MCP connection is served, or the first call or connection of a session that has a bearer; its error is
	// why that is not. End is told when the connection is over, or the last of such a session, or nothing of that is held any more.
	// Its context ends soon after the gateway began to. Both learn what may be shown. One of them nil: nobody does.
	Begin func(ctx context.Context, from bailey.Call) error
	End   func(ctx context.Context, from bailey.Call)
	// Note records an event durably.
	Note func(ctx context.Context, kind string, data any) error
	Log  *slog.Logger
	// Live learns of sessions. Nil: nobody does.
	Live *Live
	// Sessions knows those that outlive a connection. Nil: none does.
	Sessions *Sessions
	// Agents knows whose a token is. Nil: nobody has one.
	Agents *Agents
	// TokenRequired reports whether who shows no token makes no call. Nil: anybody does.
	TokenRequired func() bool
	// Kept holds the maps of what people redact. Nil: nobody can.
	Kept *Kept
	// Idle is how long a gateway without a session or a kept map lives. Zero: ten minutes.
	Idle time.Duration
	// Watch is how often it looks whether its home is still its own. Zero: two seconds.
	Watch time.Duration
	// QueryPatience is how long a connection may stay without its query. Zero: ten seconds.
	QueryPatience time.Duration
	// ReadPatience is how long a client may leave a piece of a call's output unread before the call is ended: what it does not take
	// would keep the call open beyond its time. Zero: ten seconds.
	ReadPatience time.Duration
}

// Verb answers one query with what becomes JSON.
type Verb = func(ctx context.Context, q wire.Query, from bailey.Call) (any, error)

// Gateway is the process. The locks: mu guards the idle clock, calls counts what is under way.
type Gateway struct {
	Config
	listener *peer.Listener
	socket   os.FileInfo
	person   string
	webs     chan struct{} // has what connections of HTTP hold
	web      *webListener  // set by Run, unless Web is nil
	calls    sync.WaitGroup
	busy     atomic.Int64
	streams  chan struct{}                           // has what redact streams hold
	end      atomic.Pointer[context.CancelCauseFunc] // set by Run
	last     context.Context                         // of what is done when sessions end; set by Run
	mu       sync.Mutex
	quiet    time.Time // since when nothing is connected or kept
}

// Listen opens the socket: from here on clients reach the gateway, and are served once Run is called.
func Listen(c Config) (*Gateway, error) {
	g := &Gateway{Config: c, quiet: time.Now(), streams: make(chan struct{}, maxStreams), webs: make(chan struct{}, maxWebs)}
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

// ErrIdle, ErrReplaced and ErrStopped are why a gateway ends without a signal.
var (
	ErrIdle     error = ending("nothing was connected for a while")
	ErrReplaced error = ending("the home or its socket is no longer this gateway's")
	ErrStopped  error = ending("the gateway was told to end")
)

// ending is why a call is cut off: a cancellation with its reason in words, which its receipt then gives.
type ending string

const hungUp = ending("the caller went away")

func (e ending) Error() string        { return string(e) }
func (e ending) Is(target error) bool { return target == context.Canceled }

// Run serves until ctx ends, the gateway is idle, or its home is no longer its own. Open calls are
// cancelled and waited for: each gets its outcome.
func (g *Gateway) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.end.Store(&cancel)
	last, enough := context.WithCancel(context.WithoutCancel(ctx))
	defer enough()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastPatience, enough) })()
	g.last = last
	stopWeb := g.serveWeb()
	go g.watch(ctx, cancel)
	context.AfterFunc(ctx, func() { g.listener.Close() })
	for {
		conn, err := g.listener.Accept()
		if passing(err) {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err != nil {
			cancel(err) // keeps an earlier cause
			break
		}
		if g.enter() > maxConns+maxStreams+maxWebs+spareConns {
			conn.WriteJSON(wire.FrameError, wire.NewFailure(errCrowded))
			conn.Close()
			g.leave()
			continue
		}
		g.calls.Go(func() {
			defer g.leave()
			g.serve(ctx, conn)
		})
	}
	stopWeb(context.Cause(ctx))
	g.calls.Wait()
	if g.Sessions != nil {
		g.Sessions.close(g.endSession)
	}
	if g.ownSocket() {
		os.Remove(g.Home.Socket())
	}
	cause := context.Cause(ctx)
	if why := ending(""); errors.As(cause, &why) || !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil // whoever called Run knows why
}

func (g *Gateway) watch(ctx context.Context, cancel context.CancelCauseFunc) {
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
			cancel(ErrReplaced)
			return
		case g.idle():
			cancel(ErrIdle)
			return
		}
	}
}

func (g *Gateway) ownSocket() bool {
	info, err := os.Lstat(g.Home.Socket())
	return err == nil && os.SameFile(info, g.socket)
}

// maxConns bounds calls and sessions at once: beyond it a caller is told, and nobody else is harmed.
// Some connections more are kept for whoever looks, stops or operates the gateway meanwhile.
// Streams of redact wait for people's own pagers and sources, and clients of HTTP keep connections that they do not use: these have
// places of their own, and take none of a call.
const maxConns, maxStreams, maxWebs, spareConns = 256, 8, 1024, 16

var errCrowded = &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("%d calls and sessions are open", maxConns),
	Hint: "bailey status shows them; end some, then call again"}

var errBusy = &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("%d texts are being redacted or restored, as many as may be at once", maxStreams),
	Hint: "wait until one ends, or end one (a pager that holds it, a log that is followed), then again"}

// lastPatience is how long all ends of sessions together may keep a gateway that ends.
const lastPatience = 4 * time.Second

// passing tells an error of accept(2) that goes by: what is short now is there again when a call ends.
func passing(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ECONNABORTED)
}

// enter counts a connection and returns how many there are.
func (g *Gateway) enter() int64 { return g.busy.Add(1) }

func (g *Gateway) leave() {
	g.mu.Lock()
	g.quiet = time.Now()
	g.mu.Unlock()
	g.busy.Add(-1)
}

func (g *Gateway) idle() bool {
	kept := 0
	if g.Kept != nil {
		kept, _ = g.Kept.Count() // asked each time, so that what had its time is forgotten
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if kept > 0 {
		g.quiet = time.Now()
	}
	return g.busy.Load() == 0 && (g.Web == nil || g.Web.Sessions() == 0) && time.Since(g.quiet) > g.Idle
}
