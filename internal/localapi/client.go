package localapi

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

// Endpoint names a query or a command of the gateway, with the types of its request and of its answer. Both are encoded
// as JSON. Package apitype declares all endpoints.
type Endpoint[Request, Answer any] struct {
	Name    string
	Command bool // it changes state, so a request must state the right of an operator
}

// NewQuery returns an endpoint that only reads.
func NewQuery[Request, Answer any](name string) Endpoint[Request, Answer] {
	return Endpoint[Request, Answer]{Name: name}
}

// NewCommand returns an endpoint that changes state, and that only operators may use.
func NewCommand[Request, Answer any](name string) Endpoint[Request, Answer] {
	return Endpoint[Request, Answer]{Name: name, Command: true}
}

// None is the request or the answer of an endpoint that has none.
type None struct{}

// Ask sends a request to the gateway and returns its answer. It starts a gateway if c can.
func (e Endpoint[Request, Answer]) Ask(ctx context.Context, c *Client, r Request) (Answer, error) {
	return e.Do(ctx, c, "", r)
}

// AskInSession is like Ask, for an endpoint that belongs to the client's session.
func (e Endpoint[Request, Answer]) AskInSession(ctx context.Context, c *Client, r Request) (a Answer, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	err = c.askUntilHeard(ctx, Query{Verb: e.Name, Request: body, Session: c.Session}, nil, nil, &a)
	return a, err
}

// Do is like Ask, by the right of an operator.
func (e Endpoint[Request, Answer]) Do(ctx context.Context, c *Client, op Operator, r Request) (a Answer, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	err = c.askUntilHeard(ctx, Query{Verb: e.Name, Request: body, Operator: op}, nil, nil, &a)
	return a, err
}

// Client connects to a gateway, starts one if none runs, and sends queries.
type Client struct {
	Home Home
	// Start runs a gateway for the home in the background. The gateway must write "ready" or its error to the given
	// descriptor and close it. If Start is nil, no gateway is started and no file is created.
	Start func(h Home, ready *os.File) (*os.Process, error)
	// Calls is the path of the only socket inside the agent jail. If it is empty, the client connects to the home's
	// socket and starts a gateway if necessary.
	Calls string
	// Session is the bearer of the session of calls and MCP connections. If it is empty, each has its own session.
	Session string
	// Token is the bearer of the agent that makes the calls. If it is empty, they belong to the unnamed agent.
	Token string
	// Stdin reads standard input, at most most+1 bytes, for a tool called by its own name. If it is nil, the call has
	// no standard input.
	Stdin func(ctx context.Context, most int) ([]byte, error)
	// Waits, if set, is called once with the approval that a call waits for.
	Waits func(Notice)
	// Progress, if set, is called with the reason for a wait.
	Progress func(string)
}

// Here returns the client for this process: inside or outside the agent jail, with or without a session and a token.
// start becomes its Start.
func Here(start func(Home, *os.File) (*os.Process, error), progress func(string)) (*Client, error) {
	if path := Inside(); path != "" {
		return &Client{Calls: path, Session: "the wall's"}, nil // the bearer is known only outside the jail
	}
	home, err := FindHome()
	if err != nil {
		return nil, err
	}
	return &Client{Home: home, Start: start, Session: os.Getenv(SessionVariable), Token: os.Getenv(TokenVariable),
		Progress: progress}, nil
}

// Inside returns the path of the only socket inside the agent jail, or "" outside. The location decides, not a
// variable, because only root can create a socket there. If an attacker could fake it, an agent's hook would believe
// that it runs inside the jail.
func Inside() string {
	if info, err := os.Lstat(CallsSocket); err == nil && info.Mode()&os.ModeSocket != 0 {
		return CallsSocket
	}
	return ""
}

// Dial connects to the gateway and starts one if none runs.
func (c *Client) Dial(ctx context.Context) (*peer.Conn, error) {
	if c.Calls != "" {
		conn, err := peer.Trusting(c.Calls)
		if err != nil {
			return nil, unreachableError(bailey.Unavailable.Wrap(err, "the connection out of the agent jail is closed",
				"bailey wrap outside has ended, or is ending"))
		}
		return conn, nil
	}
	conn, err := peer.Dial(c.Home.Socket())
	if err == nil || errors.Is(err, bailey.Denied) {
		return conn, err
	}
	if c.Start == nil {
		return nil, unreachableError(err)
	}
	if err := c.Home.Create(); err != nil {
		return nil, unreachableError(err)
	}
	conn, err = c.startOrConnect(ctx)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, unreachableError(c.homeWriteError(err))
}

func unreachableError(err error) error {
	return bailey.Unavailable.Wrap(CutOff{err}, ErrUnreachable.Error(), bailey.HintOf(err))
}

// CutOff wraps an error that also is ErrUnreachable.
type CutOff struct{ Err error }

func (c CutOff) Error() string   { return c.Err.Error() }
func (c CutOff) Unwrap() []error { return []error{ErrUnreachable, c.Err} }

// sendQuery connects and sends a query. The connection closes when ctx ends, unless keep was called before. The caller must
// call done.
func (c *Client) sendQuery(ctx context.Context, q Query) (conn *peer.Conn, keep func() bool, done func(), err error) {
	conn, err = c.Dial(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	keep = context.AfterFunc(ctx, func() { conn.Close() })
	done = func() { keep(); conn.Close() }
	q.Protocol = Protocol
	if q.Operator == "" && q.Verb != HTTPVerb && q.Verb != ModelVerb {
		q.Token = c.Token // an operator is not an agent, and HTTP clients send their token over HTTP
	}
	if q.Dir, err = os.Getwd(); err != nil {
		done()
		return nil, nil, nil, err
	}
	b, err := json.Marshal(q)
	if err == nil && len(b) > MaxQuery {
		err = bailey.Invalid.Errorf("pass less, or name a file",
			"the inputs have %d bytes, but a call may have at most %d", len(b), MaxQuery)
	}
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	if err := conn.WriteFrame(FrameQuery, b); err != nil {
		done()
		return nil, nil, nil, unheardError{lostError(ctx, err)}
	}
	return conn, keep, done, nil
}

// lostError returns the error for a connection that failed during a call.
func lostError(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, syscall.EPIPE) {
		return context.Cause(ctx) // if the pipe broke, the gateway ended, even if its signal also ended ctx
	}
	if bailey.KindOf(err) == bailey.Invalid {
		return err
	}
	return bailey.Unavailable.Wrap(CutOff{err}, "the gateway stopped during the call: the call may have run",
		"run bailey receipts list when a gateway runs again; it shows the call as interrupted")
}

// Call makes a call. stdout and stderr, if set, receive the output as it arrives.
func (c *Client) Call(ctx context.Context, call CallQuery, stdout, stderr io.Writer) (Reply, error) {
	var r Reply
	call.Stream = stdout != nil
	err := c.askUntilHeard(ctx, Query{Verb: "call", Session: c.Session, Call: &call}, stdout, stderr, &r)
	return r, err
}

// unheardError is an error after which a query certainly had no effect: the gateway ended before it had read the whole
// query. The kernel resets a connection with unread bytes (af_unix.c, unix_release_sock). A killed gateway can seem to
// listen for some milliseconds more, while a process that it was starting still holds its socket.
type unheardError struct{ error }

func (u unheardError) Unwrap() error { return u.error }

// maxUnheard is how often a client repeats its query, every 20 ms, to the gateway that listens then.
const maxUnheard = 50

func (c *Client) askUntilHeard(ctx context.Context, q Query, stdout, stderr io.Writer, out any) error {
	return untilHeard(ctx, func() error { return c.askOnce(ctx, q, stdout, stderr, out) })
}

func untilHeard(ctx context.Context, ask func() error) error {
	for range maxUnheard {
		err := ask()
		if why := (unheardError{}); !errors.As(err, &why) || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ask()
}

func (c *Client) askOnce(ctx context.Context, q Query, stdout, stderr io.Writer, out any) error {
	conn, _, done, err := c.sendQuery(ctx, q)
	if err != nil {
		return err
	}
	defer done()
	var waits *Notice // approval that the call waits for; nil after any other frame
	for heard := false; ; heard = true {
		kind, b, err := conn.ReadFrame()
		switch {
		case err != nil && waits != nil && ctx.Err() == nil:
			return strandedError(*waits, err)
		case err != nil && !heard && errors.Is(err, syscall.ECONNRESET):
			return unheardError{lostError(ctx, err)}
		case err != nil:
			return lostError(ctx, err)
		}
		waits = nil
		switch kind {
		case FrameStdout:
			_, err = stdout.Write(b)
		case FrameStderr:
			_, err = stderr.Write(b)
		case FrameNotice:
			waits, err = c.readNotice(b)
		case FrameInput:
			err = c.sendStdin(ctx, conn, b)
		default:
			return LastWord(kind, b, out)
		}
		if err != nil {
			return err // the closed connection ends the call
		}
	}
}

// sendStdin sends the tool's standard input. b has the limit that the gateway accepts.
func (c *Client) sendStdin(ctx context.Context, conn *peer.Conn, b []byte) error {
	var bound InputBound
	if err := json.Unmarshal(b, &bound); err != nil {
		return err
	}
	if c.Stdin == nil {
		return bailey.Internal.New("the call reads stdin, but there is none", "")
	}
	text, err := c.Stdin(ctx, bound.Most)
	if err != nil {
		return err
	}
	if err := conn.WriteFrame(FrameInput, text); err != nil {
		return lostError(ctx, err)
	}
	return nil
}

func (c *Client) readNotice(b []byte) (*Notice, error) {
	var n Notice
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, err
	}
	if c.Waits != nil {
		c.Waits(n)
	}
	return &n, nil
}

// strandedError returns the error for a call that waited for an approval when the gateway ended.
func strandedError(n Notice, err error) error {
	return bailey.Unavailable.Wrapf(CutOff{err},
		fmt.Sprintf("repeat the same call to use an approval given meanwhile: the question stays open; bailey approvals show %s tells whether it ran", n.Approval),
		"the gateway stopped while the call waited for approval %s", n.Approval)
}

// MCP opens a connection that carries MCP and outlives ctx.
func (c *Client) MCP(ctx context.Context) (io.ReadWriteCloser, error) {
	return c.Carry(ctx, Query{Verb: "mcp", Session: c.Session})
}

// HTTP opens a connection that carries HTTP/1.1 and outlives ctx. says is the listener's description of itself.
func (c *Client) HTTP(ctx context.Context, says json.RawMessage) (io.ReadWriteCloser, error) {
	return c.Carry(ctx, Query{Verb: HTTPVerb, Front: says})
}

// Model opens a connection that carries requests to models over HTTP/1.1 and outlives ctx. says is the listener's
// description of itself.
func (c *Client) Model(ctx context.Context, says json.RawMessage) (io.ReadWriteCloser, error) {
	return c.Carry(ctx, Query{Verb: ModelVerb, Front: says, Session: c.Session})
}

// Carry sends a query and returns a connection that then carries another protocol and outlives ctx. The caller must
// close it.
func (c *Client) Carry(ctx context.Context, q Query) (conn *peer.Conn, err error) {
	err = untilHeard(ctx, func() error {
		conn, err = c.openStream(ctx, q)
		return err
	})
	return conn, err
}

func (c *Client) openStream(ctx context.Context, q Query) (*peer.Conn, error) {
	conn, keep, _, err := c.sendQuery(ctx, q)
	if err != nil {
		return nil, err
	}
	kind, b, err := conn.ReadFrame()
	switch {
	case errors.Is(err, syscall.ECONNRESET):
		conn.Close()
		return nil, unheardError{lostError(ctx, err)}
	case err != nil:
		conn.Close()
		return nil, lostError(ctx, err)
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

// LastWord decodes a result into out, or returns the error that the frame holds.
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
