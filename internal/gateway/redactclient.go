package gateway

import (
	"context"
	"io"

	"bailey"
	"bailey/internal/peer"
	"bailey/internal/wire"
)

// Redact streams in through the gateway to out. It sends and prints at the same time, and holds a piece of each. When
// it returns early, with an error, a read of in or a write to out may not be over. With the error for a bad line comes
// what the lines before came to, and its Fault is set.
func Redact(ctx context.Context, c *wire.Client, q wire.RedactQuery, op wire.Operator, in io.Reader, out io.Writer) (r Redacted, err error) {
	conn, err := c.Carry(ctx, wire.Query{Verb: wire.RedactVerb, Redact: &q, Operator: op})
	if err != nil {
		return r, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
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

// drain writes output until the gateway's last word.
func drain(ctx context.Context, conn *peer.Conn, out io.Writer, r *Redacted) error {
	for {
		kind, b, err := conn.ReadFrame()
		if err != nil {
			return broken(ctx, err)
		}
		if kind != wire.FrameStdout {
			err := wire.LastWord(kind, b, r)
			if err == nil && r.Fault != nil {
				err = r.Fault.Err()
			}
			return err
		}
		if _, err := out.Write(b); err != nil {
			return &bailey.Error{Kind: bailey.Unavailable, Message: "the output was not written", Hint: "look at where it goes; what came out is not all", Err: err}
		}
	}
}

// broken says what is known when the gateway went away in mid-stream.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return midStream{&bailey.Error{Kind: bailey.Unavailable, Message: "the gateway ended in mid-stream: what came out is not all",
		Hint: "its sessions ended with it; redact the whole text again", Err: wire.CutOff{Err: err}}}
}

// midStream is told in its own words: addresses of sockets are for who unwraps it.
type midStream struct{ err *bailey.Error }

func (m midStream) Error() string { return m.err.Message }
func (m midStream) Unwrap() error { return m.err }

// pour sends all of in, and its end. That the gateway takes no more is not its error: the gateway's last word says why.
func pour(in io.Reader, conn *peer.Conn) error {
	b := make([]byte, maxPiece)
	for {
		n, err := in.Read(b)
		if n > 0 && conn.WriteFrame(wire.FrameInput, b[:n]) != nil {
			return nil
		}
		switch {
		case err == io.EOF:
			conn.WriteFrame(wire.FrameEnd, nil)
			return nil
		case err != nil:
			return &bailey.Error{Kind: bailey.Unavailable, Message: "the input cannot be read to its end", Hint: "look at where it comes from", Err: err}
		}
	}
}
