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
	"time"

	"bailey"
	"bailey/internal/peer"
)

// Client is the thin side: it connects, starts a gateway when there is none, and asks.
type Client struct {
	Home Home
	// Start runs a gateway for the home in the background: it writes "ready" or its complaint to the
	// descriptor it is given, and closes it.
	Start func(h Home, ready *os.File) (*exec.Cmd, error)
	// Progress hears why the client waits. Nil: nobody.
	Progress func(string)
}

// startPatience bounds how long a client waits for a gateway that verifies its ledger.
const startPatience = 2 * time.Minute

// dial connects; the first client starts the gateway.
func (c *Client) dial(ctx context.Context) (*peer.Conn, error) {
	conn, err := peer.Dial(c.Home.Socket())
	if err == nil || errors.Is(err, bailey.Denied) {
		return conn, err
	}
	if err := c.Home.Create(); err != nil {
		return nil, unreachable(err)
	}
	unlock, err := lockFile(c.Home.StartLock(), true)
	if err != nil {
		return nil, unreachable(err)
	}
	defer unlock()
	if conn, err := peer.Dial(c.Home.Socket()); err == nil {
		return conn, nil // somebody else started it meanwhile
	}
	if err := c.start(ctx); err != nil {
		return nil, unreachable(err)
	}
	if conn, err = peer.Dial(c.Home.Socket()); err != nil {
		return nil, unreachable(err)
	}
	return conn, nil
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
	slow, patience := time.After(2*time.Second), time.After(startPatience)
	for {
		select {
		case line := <-said:
			return startAnswer(line)
		case <-slow:
			if c.Progress != nil {
				c.Progress("starting the gateway; it verifies its ledger first")
			}
		case <-patience:
			return fmt.Errorf("no word from the gateway within %v; see %s", startPatience, c.Home.LogFile())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func startAnswer(line string) error {
	if line == "ready" {
		return nil
	}
	var f failure
	if json.Unmarshal([]byte(line), &f) == nil && f.Message != "" {
		return f.err()
	}
	return errors.New("the gateway ended while it started")
}

func unreachable(err error) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: ErrUnreachable.Error(), Hint: bailey.HintOf(err), Err: cutOff{err}}
}

// cutOff is a cause that is ErrUnreachable as well.
type cutOff struct{ error }

func (c cutOff) Unwrap() []error { return []error{ErrUnreachable, c.error} }

// open connects and sends a query; the connection closes when ctx ends.
func (c *Client) open(ctx context.Context, q Query) (*peer.Conn, func(), error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	done := func() { stop(); conn.Close() }
	q.Protocol = Protocol
	if q.Dir, err = os.Getwd(); err != nil {
		done()
		return nil, nil, err
	}
	if err := conn.WriteJSON(frameQuery, q); err != nil {
		done()
		return nil, nil, lost(ctx, err)
	}
	return conn, done, nil
}

// lost says what is known when the gateway went away in mid-call.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
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
	err := c.converse(ctx, Query{Verb: "call", Call: &call}, stdout, stderr, &r)
	return r, err
}

func (c *Client) converse(ctx context.Context, q Query, stdout, stderr io.Writer, out any) error {
	conn, done, err := c.open(ctx, q)
	if err != nil {
		return err
	}
	defer done()
	for {
		kind, b, err := conn.ReadFrame()
		if err != nil {
			return lost(ctx, err)
		}
		switch kind {
		case frameStdout:
			_, err = stdout.Write(b)
		case frameStderr:
			_, err = stderr.Write(b)
		case frameResult:
			return json.Unmarshal(b, out)
		case frameError:
			var f failure
			if err := json.Unmarshal(b, &f); err != nil {
				return err
			}
			return f.err()
		default:
			err = fmt.Errorf("the gateway sent a frame of unknown kind %q", kind)
		}
		if err != nil {
			return err // closing the connection ends the call
		}
	}
}

// MCP opens a connection that carries MCP from here on.
func (c *Client) MCP(ctx context.Context) (io.ReadWriteCloser, error) {
	conn, _, err := c.open(ctx, Query{Verb: "mcp"})
	if err != nil {
		return nil, err
	}
	kind, b, err := conn.ReadFrame()
	switch {
	case err != nil:
		conn.Close()
		return nil, lost(ctx, err)
	case kind == frameError:
		conn.Close()
		var f failure
		if err := json.Unmarshal(b, &f); err != nil {
			return nil, err
		}
		return nil, f.err()
	}
	return conn, nil
}
