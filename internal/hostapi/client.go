package hostapi

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/peer"
)

// ErrUnreachable is the error of a client if no host answers, or if the connection to it is lost.
var ErrUnreachable = errors.New("the host of sandboxes is not reachable")

// Client connects to a host of sandboxes. Its methods may be called by several goroutines.
type Client struct {
	Socket string // path
	// Root is set if the host runs as root for several users. Otherwise it must run as this user.
	Root bool
	// Start starts a host that will listen on Socket, and returns when it does. If it is nil, none is started.
	Start func(ctx context.Context) error
}

// dialHost connects, and starts a host if none answers.
func (c *Client) dialHost(ctx context.Context) (*peer.Conn, error) {
	conn, err := c.dialSocket()
	switch {
	case err == nil || errors.Is(err, bailey.Denied):
		return conn, err
	case c.Start == nil:
		return nil, unreachableError(err)
	}
	if err := c.Start(ctx); err != nil {
		return nil, unreachableError(err)
	}
	if conn, err = c.dialSocket(); err != nil {
		return nil, unreachableError(err)
	}
	return conn, nil
}

func unreachableError(err error) error {
	hint := bailey.HintOf(err)
	if hint == "" {
		hint = "start bailey-host, and see its log if it ends"
	}
	return bailey.Unavailable.Wrap(cutOff{err}, ErrUnreachable.Error(), hint)
}

// cutOff wraps an error that also is ErrUnreachable.
type cutOff struct{ error }

func (c cutOff) Unwrap() []error { return []error{ErrUnreachable, c.error} }

// openQuery connects and sends a query. The connection closes when ctx ends; the caller must call done.
func (c *Client) openQuery(ctx context.Context, verb string, o Owner, request any) (conn *peer.Conn, done func(), err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, nil, err
	}
	if conn, err = c.dialHost(ctx); err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	done = func() { stop(); conn.Close() }
	if err := conn.WriteJSON(localapi.FrameQuery, Query{Protocol, verb, o, body}); err != nil {
		done()
		return nil, nil, lostError(ctx, err)
	}
	return conn, done, nil
}

func lostError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if bailey.KindOf(err) == bailey.Invalid {
		return err
	}
	return bailey.Unavailable.Wrap(cutOff{err}, "the host of sandboxes stopped during the operation",
		"look at the sandboxes with bailey sandbox list; the operation may have been performed")
}

// Ask performs the operation for an owner. If a host that is ending did not read the query, it asks the next one.
func (e Endpoint[Request, Answer]) Ask(ctx context.Context, c *Client, o Owner, r Request) (a Answer, err error) {
	for range maxUnheard {
		var unheard bool
		if a, unheard, err = e.askOnce(ctx, c, o, r); !unheard {
			return a, err
		}
		select {
		case <-ctx.Done():
			return a, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return a, err
}

// maxUnheard is how often a query is sent that no host has read.
const maxUnheard = 50

// askOnce sends the query to the host that listens now. unheard is set if the host closed the connection before it read
// the query: then the kernel resets the connection (af_unix.c, unix_release_sock).
func (e Endpoint[Request, Answer]) askOnce(ctx context.Context, c *Client, o Owner, r Request) (a Answer, unheard bool, err error) {
	conn, done, err := c.openQuery(ctx, e.Verb, o, r)
	if err != nil {
		return a, errors.Is(err, syscall.EPIPE) && ctx.Err() == nil, err
	}
	defer done()
	kind, b, err := conn.ReadFrame()
	if err != nil {
		return a, errors.Is(err, syscall.ECONNRESET) && ctx.Err() == nil, lostError(ctx, err)
	}
	err = localapi.LastWord(kind, b, &a)
	return a, false, err
}

// Attend creates a sandbox that lives as long as the returned function was not called. The host destroys it also when
// this process or the host itself ends, so it cannot be left behind. end returns when it is destroyed.
func (c *Client) Attend(ctx context.Context, o Owner, r CreateRequest) (made Sandbox, end func(context.Context) error,
	err error) {
	r.Attended = true
	var conn *peer.Conn
	for range maxUnheard {
		var done func()
		if conn, done, err = c.openQuery(ctx, Create.Verb, o, r); err == nil {
			made, err = readAttended(ctx, conn)
			if err == nil {
				break
			}
			done()
		}
		if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) || ctx.Err() != nil {
			return made, nil, err
		}
		select { // a host that is ending did not read the query
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err != nil {
		return made, nil, err
	}
	return made, func(ctx context.Context) error {
		defer conn.Close()
		_, err := Destroy.Ask(ctx, &Client{Socket: c.Socket, Root: c.Root}, o, Target{Sandbox: made.ID})
		if bailey.KindOf(err) == bailey.NotFound {
			return nil
		}
		return err
	}, nil
}

// readAttended reads the answer to a creation. The connection stays open.
func readAttended(ctx context.Context, conn *peer.Conn) (made Sandbox, err error) {
	kind, b, err := conn.ReadFrame()
	if err != nil {
		return made, lostError(ctx, err)
	}
	return made, localapi.LastWord(kind, b, &made)
}

// StopHost ends the host. Its sandboxes continue to run, and the next host adopts them.
func (c *Client) StopHost(ctx context.Context) error {
	without := &Client{Socket: c.Socket, Root: c.Root}
	_, err := Endpoint[None, None]{StopVerb}.Ask(ctx, without, Owner{}, None{})
	return err
}
