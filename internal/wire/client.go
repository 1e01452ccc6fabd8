package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
	Start func(h Home, ready *os.File) (*os.Process, error)
	// Calls is the path of the socket that an agent inside the wall has. Empty: the home's is dialled, and a gateway started.
	Calls string
	// Session is the bearer of the session that calls and MCP connections belong to. Empty: each is one of its own.
	Session string
	// Token is the bearer of the agent whose calls they are. Empty: whoever has no name of its own.
	Token string
	// Stdin reads what the tool of a call by its own name reads, at most so many bytes and one. Nil: there is none.
	Stdin func(ctx context.Context, most int) ([]byte, error)
	// Waits is told of the question that a call waits for, once. Nil: nobody is.
	Waits func(Notice)
	// Progress hears why the client waits. Nil: nobody.
	Progress func(string)
}

// Here is the client of whoever runs in this environment: inside the wall or outside, in a session or none, with a token or none. start is
// its Start.
func Here(start func(Home, *os.File) (*os.Process, error), progress func(string)) (*Client, error) {
	if path := Inside(); path != "" {
		return &Client{Calls: path, Session: "the wall's"}, nil // which bearer it is, they know outside
	}
	home, err := FindHome()
	if err != nil {
		return nil, err
	}
	return &Client{Home: home, Start: start, Session: os.Getenv(SessionVariable), Token: os.Getenv(TokenVariable), Progress: progress}, nil
}

// Inside is the one socket that an agent inside the wall has, "" outside. The place tells, not a variable: nobody but root
// makes one there, and whatever says that this is inside would have an agent's hook believe it.
func Inside() string {
	if info, err := os.Lstat(CallsSocket); err == nil && info.Mode()&os.ModeSocket != 0 {
		return CallsSocket
	}
	return ""
}

// Dial connects; the first client starts the gateway.
func (c *Client) Dial(ctx context.Context) (*peer.Conn, error) {
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

func unreachable(err error) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: ErrUnreachable.Error(), Hint: bailey.HintOf(err), Err: CutOff{err}}
}

// CutOff is a cause that is ErrUnreachable as well.
type CutOff struct{ Err error }

func (c CutOff) Error() string   { return c.Err.Error() }
func (c CutOff) Unwrap() []error { return []error{ErrUnreachable, c.Err} }

// open connects and sends a query; the connection closes when ctx ends, unless keep is called before.
func (c *Client) open(ctx context.Context, q Query) (conn *peer.Conn, keep func() bool, done func(), err error) {
	conn, err = c.Dial(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	keep = context.AfterFunc(ctx, func() { conn.Close() })
	done = func() { keep(); conn.Close() }
	q.Protocol = Protocol
	if q.Operator == "" && q.Verb != HTTPVerb {
		q.Token = c.Token // an operator is none, and who comes by HTTP shows it there
	}
	if q.Dir, err = os.Getwd(); err != nil {
		done()
		return nil, nil, nil, err
	}
	b, err := json.Marshal(q)
	if err == nil && len(b) > MaxQuery {
		err = &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the inputs are %d bytes, a call takes %d", len(b), MaxQuery),
			Hint: "pass less, or name a file"}
	}
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	if err := conn.WriteFrame(FrameQuery, b); err != nil {
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
		Hint: "bailey receipts list shows it as interrupted once a gateway runs again", Err: CutOff{err}}
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
		case FrameStdout:
			_, err = stdout.Write(b)
		case FrameStderr:
			_, err = stderr.Write(b)
		case FrameNotice:
			waits, err = c.notice(b)
		case FrameInput:
			err = c.stdin(ctx, conn, b)
		default:
			return LastWord(kind, b, out)
		}
		if err != nil {
			return err // closing the connection ends the call
		}
	}
}

// stdin sends what the tool reads; b is what the gateway takes of it.
func (c *Client) stdin(ctx context.Context, conn *peer.Conn, b []byte) error {
	var bound InputBound
	if err := json.Unmarshal(b, &bound); err != nil {
		return err
	}
	if c.Stdin == nil {
		return &bailey.Error{Kind: bailey.Internal, Message: "the call reads stdin, and there is none"}
	}
	text, err := c.Stdin(ctx, bound.Most)
	if err != nil {
		return err
	}
	if err := conn.WriteFrame(FrameInput, text); err != nil {
		return lost(ctx, err)
	}
	return nil
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
		Hint: fmt.Sprintf("the question stays open, and the same call takes up what is granted; bailey approvals show %s tells whether it ran", n.Approval), Err: CutOff{err}}
}

// MCP opens a connection that carries MCP from here on, and outlives ctx.
func (c *Client) MCP(ctx context.Context) (io.ReadWriteCloser, error) {
	return c.Carry(ctx, Query{Verb: "mcp", Session: c.Session})
}

// HTTP opens a connection that carries HTTP/1.1 from here on, and outlives ctx. says is what the listener says of itself.
func (c *Client) HTTP(ctx context.Context, says json.RawMessage) (io.ReadWriteCloser, error) {
	return c.Carry(ctx, Query{Verb: HTTPVerb, Front: says})
}

// Carry asks for a connection that carries something else from here on, and outlives ctx.
func (c *Client) Carry(ctx context.Context, q Query) (conn *peer.Conn, err error) {
	err = untilHeard(ctx, func() error {
		conn, err = c.carry(ctx, q)
		return err
	})
	return conn, err
}

func (c *Client) carry(ctx context.Context, q Query) (*peer.Conn, error) {
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
	case kind != FrameResult:
		conn.Close()
		return nil, LastWord(kind, b, nil)
	}
	if keep(); ctx.Err() != nil {
		conn.Close()
		return nil, context.Cause(ctx)
	}
	return conn, nil
}

// LastWord decodes a result into out, or returns the error that came instead.
func LastWord(kind byte, b []byte, out any) error {
	switch kind {
	case FrameResult:
		return json.Unmarshal(b, out)
	case FrameError:
		var f Failure
		if err := json.Unmarshal(b, &f); err != nil {
			return err
		}
		return f.Err()
	}
	return fmt.Errorf("the gateway sent a frame of unknown kind %q", kind)
}
