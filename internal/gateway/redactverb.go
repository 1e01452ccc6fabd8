package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"

	"bailey"
	"bailey/internal/peer"
	"bailey/internal/redact"
	"bailey/internal/wire"
)

// RestoreEvent is the ledger's kind of entry for a session whose texts an operator gets back. It is durable before
// the first of them leaves, and holds none. Its data is a [Restoring].
const RestoreEvent = "redact.restore"

// Restoring is who had which session's texts given back.
type Restoring struct {
	Session  bailey.SessionID `json:"session"`
	Operator wire.Operator    `json:"operator"`
	Person   string           `json:"person"`
}

// maxPiece bounds a frame of input or output, in bytes: neither side holds more of a stream than a few.
const maxPiece = 64 << 10

// redaction is one stream on its way. Its reader and its writer have all the time they want: what stalls is the
// person's own pager or source, and holds nothing but this connection.
type redaction struct {
	q       wire.RedactQuery
	session bailey.SessionID
	table   *redact.Table
	tally   tally
	in      io.WriteCloser // what the mode makes of the input
	back    *redact.Restorer
}

// redact answers one stream. What it carries is written nowhere but back.
func (g *Gateway) redact(ctx context.Context, conn *peer.Conn, q wire.Query, from bailey.Call) {
	select {
	case g.streams <- struct{}{}:
		defer func() { <-g.streams }()
	default:
		conn.WriteJSON(wire.FrameError, wire.NewFailure(errBusy))
		return
	}
	r, err := g.newRedaction(ctx, conn, q, from)
	if err == nil {
		err = conn.WriteFrame(wire.FrameResult, nil)
	}
	if err == nil {
		err = r.pass(conn)
	}
	if q.Redact.Session != "" && r != nil {
		g.Kept.keep(r.session, r.table, true) // again: it may have been pushed out meanwhile, and what came out names it
	}
	bad := badLine{}
	if err != nil && !errors.As(err, &bad) {
		conn.WriteJSON(wire.FrameError, wire.NewFailure(err))
		return
	}
	result := r.result()
	if r.q.Mode != wire.Report && g.Kept.keep(r.session, r.table, q.Redact.Session != "" || result.Escaped > 0) {
		result.Session = r.session
	}
	if err != nil { // what was answered before can be given back
		why := wire.NewFailure(err)
		result.Fault = &why
	}
	if conn.WriteJSON(wire.FrameResult, result) != nil && q.Redact.Session == "" {
		g.Kept.drop(r.session) // nobody knows of it
	}
}

// newRedaction finds or makes the session and records a restoring, before anything is read.
func (g *Gateway) newRedaction(ctx context.Context, conn *peer.Conn, q wire.Query, from bailey.Call) (*redaction, error) {
	r := &redaction{q: *q.Redact}
	switch {
	case g.Kept == nil:
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "this gateway keeps no map of what it hides", Hint: "bailey gateway stop ends it, the next call starts another"}
	case r.q.Mode == wire.Restore && r.q.Session == "":
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "restoring wants the session whose tokens they are", Hint: "bailey redact printed it: --session s-…"}
	case r.q.Mode == wire.Report && r.q.Session != "":
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "a report has no session: nothing is kept of it", Hint: "leave --session out"}
	case r.q.Mode == wire.Restore:
		if err := may(q.Operator, "redact --restore"); err != nil {
			return nil, err
		}
	}
	var err error
	if r.session, r.table, err = g.Kept.table(r.q.Session); err != nil {
		return nil, err
	}
	if err := r.begin(pieces{conn}); err != nil {
		return nil, err
	}
	if r.back != nil {
		err = g.Note(ctx, RestoreEvent, Restoring{r.session, q.Operator, from.Principal.Person})
	}
	return r, err
}

// begin makes of the mode where the input goes.
func (r *redaction) begin(out io.Writer) error {
	hide := func(to io.Writer) {
		w := r.table.Writer(to)
		w.Tell(func(f redact.Finding) { r.tally.add(f, f.Line) })
		r.in = w
	}
	switch r.q.Mode {
	case wire.Hide:
		hide(out)
	case wire.Report:
		hide(io.Discard)
	case wire.Lines:
		r.in = &jsonLines{table: r.table, tally: &r.tally, w: out}
	case wire.Restore:
		r.back = r.table.Restorer(out)
		r.in = r.back
	default:
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("redact has no mode %q", string(r.q.Mode)), Hint: "client and gateway may be of two versions: bailey gateway stop"}
	}
	return nil
}

// pass takes input until its end. What is read is passed on before more is read, so a client that does not take its
// output is not read either.
func (r *redaction) pass(conn *peer.Conn) error {
	for {
		kind, b, err := conn.ReadFrameWithin(maxPiece)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return &bailey.Error{Kind: bailey.Invalid, Message: "the input broke off"}
		case err != nil:
			return err
		case kind == wire.FrameEnd:
			return r.in.Close()
		case kind != wire.FrameInput:
			return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("a frame of kind %q is no input", kind)}
		}
		if _, err := r.in.Write(b); err != nil {
			return err
		}
	}
}

func (r *redaction) result() Redacted {
	out := r.tally.result()
	if w, ok := r.in.(*redact.Writer); ok {
		out.Escaped = w.Escapes()
	}
	if r.back != nil {
		out.Restored, out.Left, out.Missed = r.back.Given(), r.back.Left(), r.back.Missed()
	}
	return out
}

// pieces writes output in frames that are no longer than those of input.
type pieces struct{ conn *peer.Conn }

func (p pieces) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), maxPiece)
		if err := p.conn.WriteFrame(wire.FrameStdout, rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(b), nil
}
