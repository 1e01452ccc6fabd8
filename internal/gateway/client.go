package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/peer"
)

// Client is the thin side: it connects, starts a gateway when there is none, and asks.
type Client struct {
	Home Home
	// Start runs a gateway for the home in the background: it writes "ready" or its complaint to the
	// descriptor it is given, and closes it. Nil: none is started, and nothing is made.
	Start func(h Home, ready *os.File) (*exec.Cmd, error)
	// Calls is the path of the socket that an agent inside the wall has. Empty: the home's is dialled, and a gateway started.
	Calls string
	// Session is the bearer of the session that calls and MCP connections belong to. Empty: each is one of its own.
	Session string
	// Token is the bearer of the agent whose calls they are. Empty: whoever has no name of its own.
	Token string
	// Waits is told of the question that a call waits for, once. Nil: nobody is.
	Waits func(Notice)
	// Progress hears why the client waits. Nil: nobody.
	Progress func(string)
}

// A client waits so long for a gateway that verifies its ledger, and says so after a while.
const (
	startPatience = 2 * time.Minute
	slowStart     = 2 * time.Second
)

// dial connects; the first client starts the gateway.
func (c *Client) dial(ctx context.Context) (*peer.Conn, error) {
	if c.Calls != "" {
		conn, err := peer.Trusting(c.Calls)
		if err != nil {
			return nil, unreachable(&bailey.Error{Kind: bailey.Unavailable, Message: "the way out of the wall is shut", Hint: "bailey wrap outside has ended, or is ending", Err: err})
		}
		return conn, nil
	}
	conn, err := peer.Dial(c.Home.Socket())
	if err == nil || errors.Is(err, bailey.Denied) {
		return conn, err
	}
	if c.Start == nil {
		return nil, unreachable(err)
	}
	if err := c.Home.Create(); err != nil {
		return nil, unreachable(err)
	}
	conn, err = c.begin(ctx)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, unreachable(c.unwritten(err))
}

// begin starts a gateway, or joins the one that somebody starts meanwhile. Whoever holds the start lock
// waits for a gateway that is ending: it holds the home until its calls have their outcomes.
func (c *Client) begin(ctx context.Context) (*peer.Conn, error) {
	conn, unlock, err := c.turn(ctx, c.Home.StartLock(), "waiting for the gateway that another client starts")
	if err != nil || conn != nil {
		return conn, err
	}
	defer unlock()
	conn, free, err := c.turn(ctx, c.Home.Lock(), "waiting for the gateway that is starting or ending")
	if err != nil || conn != nil {
		return conn, err
	}
	free()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	return peer.Dial(c.Home.Socket())
}

// turn waits until a gateway answers or the lock is ours, whichever comes first.
func (c *Client) turn(ctx context.Context, lock, why string) (conn *peer.Conn, unlock func(), err error) {
	err = c.until(ctx, why, func() (bool, error) {
		var err error
		if conn, err = peer.Dial(c.Home.Socket()); err == nil {
			return true, nil
		}
		conn = nil
		if unlock, err = LockFile(lock); errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return true, err
	})
	return conn, unlock, err
}

// until asks again and again, and tells why it waits when that takes long.
func (c *Client) until(ctx context.Context, why string, try func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	slow, patience := time.After(slowStart), time.After(startPatience)
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-slow:
			c.say(why)
		case <-patience:
			return &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("the home %s is held, and no gateway answers within %v", c.Home, startPatience),
				Hint: "see " + c.Home.LogFile() + "; bailey gateway stop ends the gateway"}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Client) say(why string) {
	if c.Progress != nil {
		c.Progress(why)
	}
}

// unwritten gives an error of the home's own files its cure.
func (c *Client) unwritten(err error) error {
	var path *os.PathError
	if bailey.HintOf(err) != "" || !errors.As(err, &path) {
		return err
	}
	hint := "set BAILEY_HOME to a directory that you own and may write"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = "free some space, or raise the quota, where the home is, then call again"
	case errors.Is(err, syscall.EROFS):
		hint = "mount it read-write, or set BAILEY_HOME to a directory that you may write"
	}
	return &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("the home %s cannot be written", c.Home), Hint: hint, Err: err}
}

// Stop ends the home's gateway, of whatever version it is, and returns when it is gone: its calls have their outcomes and
// its ledger is closed. It reports false when there was none.
func (c *Client) Stop(ctx context.Context) (stopped bool, err error) {
	var ended int
	conn, err := peer.Dial(c.Home.Socket())
	switch {
	case errors.Is(err, bailey.Denied):
		return false, err
	case err == nil:
		defer conn.Close()
		if err := askToStop(conn); err != nil {
			return false, err
		}
		stopped, ended = true, conn.PID
	}
	err = c.until(ctx, "waiting for the gateway's calls to end", func() (bool, error) {
		free, err := LockFile(c.Home.Lock())
		switch {
		case err == nil:
			free()
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return stopped && c.succeeded(ended), nil
		case !stopped: // no home, or none that was ever written: no gateway
			return true, nil
		}
		return true, c.unwritten(err)
	})
	return stopped, err
}

// succeeded tells whether another gateway than the one that ended serves the home by now, started by
// somebody else's call: it holds the home's lock, which it got when the other was gone.
func (c *Client) succeeded(ended int) bool {
	conn, err := peer.Dial(c.Home.Socket())
	if err != nil {
		return false
	}
	defer conn.Close()
	return conn.PID != ended
}

// askToStop returns nil when the gateway agreed or is gone.
func askToStop(conn *peer.Conn) error {
	if err := conn.WriteJSON(frameQuery, Query{Protocol: Protocol, Verb: stopVerb, Dir: "/"}); err != nil {
		return nil
	}
	kind, b, err := conn.ReadFrame()
	if err != nil || kind != frameError {
		return nil
	}
	var f failure
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	return f.err()
}

func (c *Client) start(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd, err := c.Start(c.Home, w)
	w.Close()
	if err != nil {
		return err
	}
	go cmd.Wait() // it outlives us; while we live it must not be a zombie
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(r, 64<<10)).ReadString('\x00')
		said <- strings.TrimRight(line, "\x00\n")
	}()
	slow, patience := time.After(slowStart), time.After(startPatience)
	for {
		select {
		case line := <-said:
			return c.startAnswer(line)
		case <-slow:
			c.say("starting the gateway; it verifies its ledger first")
		case <-patience:
			return &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("no word from the gateway within %v", startPatience),
				Hint: "it may still be verifying a long ledger: see " + c.Home.LogFile()}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Client) startAnswer(line string) error {
	if line == "ready" {
		return nil
	}
	var f failure
	if json.Unmarshal([]byte(line), &f) == nil && f.Message != "" {
		return f.err()
	}
	return &bailey.Error{Kind: bailey.Unavailable, Message: "the gateway ended while it started", Hint: "see " + c.Home.LogFile()}
}

func unreachable(err error) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: ErrUnreachable.Error(), Hint: bailey.HintOf(err), Err: cutOff{err}}
}

// cutOff is a cause that is ErrUnreachable as well.
type cutOff struct{ error }

func (c cutOff) Unwrap() []error { return []error{ErrUnreachable, c.error} }

// open connects and sends a query; the connection closes when ctx ends, unless keep is called before.
func (c *Client) open(ctx context.Context, q Query) (conn *peer.Conn, keep func() bool, done func(), err error) {
	conn, err = c.dial(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	keep = context.AfterFunc(ctx, func() { conn.Close() })
	done = func() { keep(); conn.Close() }
	q.Protocol = Protocol
	if q.Operator == "" && q.Verb != httpVerb {
		q.Token = c.Token // an operator is none, and who comes by HTTP shows it there
	}
	if q.Dir, err = os.Getwd(); err != nil {
		done()
		return nil, nil, nil, err
	}
	b, err := json.Marshal(q)
	if err == nil && len(b) > maxQuery {
		err = &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the inputs are %d bytes, a call takes %d", len(b), maxQuery),
			Hint: "pass less, or name a file"}
	}
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	if err := conn.WriteFrame(frameQuery, b); err != nil {
		done()
		return nil, nil, nil, unheard{lost(ctx, err)}
	}
	return conn, keep, done, nil
}

// lost says what is known when the gateway went away in mid-call.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, syscall.EPIPE) {
		return context.Cause(ctx) // a broken pipe was the gateway's end, whatever its signal did to ctx
	}
	if bailey.KindOf(err) == bailey.Invalid {
		return err
	}
	return &bailey.Error{Kind: bailey.Unavailable, Message: "the gateway ended in mid-call: the call may have run",
		Hint: "bailey receipts list shows it as interrupted once a gateway runs again", Err: cutOff{err}}
}

// Look asks a verb that merely looks and decodes its answer into out.
func (c *Client) Look(ctx context.Context, q Query, out any) error {
	return c.converse(ctx, q, nil, nil, out)
}

// Call makes a call; stdout and stderr, when set, get its output as it comes.
func (c *Client) Call(ctx context.Context, call CallQuery, stdout, stderr io.Writer) (Reply, error) {
	var r Reply
	call.Stream = stdout != nil
	err := c.converse(ctx, Query{Verb: "call", Session: c.Session, Call: &call}, stdout, stderr, &r)
	return r, err
}

// unheard is why a query was certainly not acted upon: the gateway ended before it had read all of it, for a reset
// is what the kernel makes of bytes that nobody read (af_unix.c, unix_release_sock). One that was killed can seem to
// listen for some milliseconds more, while a process that it was starting still holds its socket.
type unheard struct{ error }

func (u unheard) Unwrap() error { return u.error }

// maxUnheard is how often a client says its query again, a fiftieth of a second apart, to whoever listens then.
const maxUnheard = 50

func (c *Client) converse(ctx context.Context, q Query, stdout, stderr io.Writer, out any) error {
	return untilHeard(ctx, func() error { return c.ask(ctx, q, stdout, stderr, out) })
}

func untilHeard(ctx context.Context, ask func() error) error {
	for range maxUnheard {
		err := ask()
		if why := (unheard{}); !errors.As(err, &why) || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ask()
}

func (c *Client) ask(ctx context.Context, q Query, stdout, stderr io.Writer, out any) error {
	conn, _, done, err := c.open(ctx, q)
	if err != nil {
		return err
	}
	defer done()
	var waits *Notice // what the call waits for; nil once it says anything else
	for heard := false; ; heard = true {
		kind, b, err := conn.ReadFrame()
		switch {
		case err != nil && waits != nil && ctx.Err() == nil:
			return stranded(*waits, err)
		case err != nil && !heard && errors.Is(err, syscall.ECONNRESET):
			return unheard{lost(ctx, err)}
		case err != nil:
			return lost(ctx, err)
		}
		waits = nil
		switch kind {
		case frameStdout:
			_, err = stdout.Write(b)
		case frameStderr:
			_, err = stderr.Write(b)
		case frameNotice:
			waits, err = c.notice(b)
		default:
			return lastWord(kind, b, out)
		}
		if err != nil {
			return err // closing the connection ends the call
		}
	}
}

func (c *Client) notice(b []byte) (*Notice, error) {
	var n Notice
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, err
	}
	if c.Waits != nil {
		c.Waits(n)
	}
	return &n, nil
}

// stranded is what became of a call that waited when the gateway ended.
func stranded(n Notice, err error) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("the gateway ended while the call waited for approval %s", n.Approval),
		Hint: fmt.Sprintf("the question stays open, and the same call takes up what is granted; bailey approvals show %s tells whether it ran", n.Approval), Err: cutOff{err}}
}

// MCP opens a connection that carries MCP from here on, and outlives ctx.
func (c *Client) MCP(ctx context.Context) (rw io.ReadWriteCloser, err error) {
	err = untilHeard(ctx, func() error {
		rw, err = c.carrier(ctx, Query{Verb: "mcp", Session: c.Session})
		return err
	})
	return rw, err
}

func (c *Client) carrier(ctx context.Context, q Query) (io.ReadWriteCloser, error) {
	conn, keep, _, err := c.open(ctx, q)
	if err != nil {
		return nil, err
	}
	kind, b, err := conn.ReadFrame()
	switch {
	case errors.Is(err, syscall.ECONNRESET):
		conn.Close()
		return nil, unheard{lost(ctx, err)}
	case err != nil:
		conn.Close()
		return nil, lost(ctx, err)
	case kind != frameResult:
		conn.Close()
		return nil, lastWord(kind, b, nil)
	}
	if keep(); ctx.Err() != nil {
		conn.Close()
		return nil, context.Cause(ctx)
	}
	return conn, nil
}
