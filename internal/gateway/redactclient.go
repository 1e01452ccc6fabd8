package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"bailey"
	"bailey/internal/peer"
)

// Redact streams in through the gateway to out. It sends and prints at the same time, and holds a piece of each. When
// it returns early, with an error, a read of in or a write to out may not be over.
func (c *Client) Redact(ctx context.Context, q RedactQuery, op Operator, in io.Reader, out io.Writer) (r Redacted, err error) {
	var conn *peer.Conn
	var done func()
	err = untilHeard(ctx, func() (err error) {
		conn, done, err = c.admitted(ctx, Query{Verb: redactVerb, Redact: &q, Operator: op})
		return err
	})
	if err != nil {
		return r, err
	}
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if err := pour(in, conn); err != nil {
			cancel(err)
		}
	}()
	ended := make(chan error, 1)
	var came Redacted
	go func() { ended <- drain(ctx, conn, out, &came) }()
	select {
	case err := <-ended:
		return came, err
	case <-ctx.Done():
		return r, context.Cause(ctx)
	}
}

// admitted sends the query and hears that the stream may begin.
func (c *Client) admitted(ctx context.Context, q Query) (*peer.Conn, func(), error) {
	conn, _, done, err := c.open(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	kind, b, err := conn.ReadFrame()
	switch {
	case err != nil && errors.Is(err, syscall.ECONNRESET):
		err = unheard{broken(ctx, err)}
	case err != nil:
		err = broken(ctx, err)
	case kind != frameResult:
		err = lastWord(kind, b, nil)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return conn, done, nil
}

// drain writes output until the gateway's last word.
func drain(ctx context.Context, conn *peer.Conn, out io.Writer, r *Redacted) error {
	for {
		kind, b, err := conn.ReadFrame()
		if err != nil {
			return broken(ctx, err)
		}
		if kind != frameStdout {
			return lastWord(kind, b, r)
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
}

// broken says what is known when the gateway went away in mid-stream.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &bailey.Error{Kind: bailey.Unavailable, Message: "the gateway ended in mid-stream: what came out is not all",
		Hint: "its sessions ended with it; redact the whole text again", Err: cutOff{err}}
}

// lastWord decodes a result into out, or returns the error that came instead.
func lastWord(kind byte, b []byte, out any) error {
	switch kind {
	case frameResult:
		return json.Unmarshal(b, out)
	case frameError:
		var f failure
		if err := json.Unmarshal(b, &f); err != nil {
			return err
		}
		return f.err()
	}
	return fmt.Errorf("the gateway sent a frame of unknown kind %q", kind)
}

// pour sends all of in, and its end. That the gateway takes no more is not its error: the gateway's last word says why.
func pour(in io.Reader, conn *peer.Conn) error {
	b := make([]byte, maxPiece)
	for {
		n, err := in.Read(b)
		if n > 0 && conn.WriteFrame(frameInput, b[:n]) != nil {
			return nil
		}
		switch {
		case err == io.EOF:
			conn.WriteFrame(frameEnd, nil)
			return nil
		case err != nil:
			return &bailey.Error{Kind: bailey.Unavailable, Message: "the input cannot be read to its end", Hint: "look at where it comes from", Err: err}
		}
	}
}
