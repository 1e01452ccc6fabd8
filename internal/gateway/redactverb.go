package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"

	"bailey"
	"bailey/internal/peer"
	"bailey/internal/redact"
)

// redactVerb streams text through the gateway, which has the detectors and the map of what they found.
const redactVerb = "redact"

// RestoreEvent is the ledger's kind of entry for a session whose texts an operator gets back. It is durable before
// the first of them leaves, and holds none. Its data is a [Restoring].
const RestoreEvent = "redact.restore"

// Restoring is who had which session's texts given back.
type Restoring struct {
	Session  bailey.SessionID `json:"session"`
	Operator Operator         `json:"operator"`
	Person   string           `json:"person"`
}

// RedactMode is what becomes of the input.
type RedactMode string

const (
	Hide    RedactMode = "hide"    // comes out with tokens
	Lines   RedactMode = "lines"   // the same for lines of JSON, see jsonLines
	Report  RedactMode = "report"  // nothing comes out, and nothing is kept
	Restore RedactMode = "restore" // comes out with tokens given back; for operators
)

// RedactQuery is what a client wants of the input it is about to send.
type RedactQuery struct {
	Mode    RedactMode       `json:"mode"`
	Session bailey.SessionID `json:"session,omitempty"` // a kept one; empty for a new one
}

// maxPiece bounds a frame of input or output, in bytes: neither side holds more of a stream than a few.
const maxPiece = 64 << 10

// redaction is one stream on its way. Its reader and its writer have all the time they want: what stalls is the
// person's own pager or source, and holds nothing but this connection.
type redaction struct {
	q       RedactQuery
	session bailey.SessionID
	table   *redact.Table
	tally   tally
	in      io.WriteCloser // what the mode makes of the input
	back    *redact.Restorer
}

// redact answers one stream. What it carries is written nowhere but back.
func (g *Gateway) redact(ctx context.Context, conn *peer.Conn, q Query, from bailey.Call) {
	r, err := g.newRedaction(ctx, conn, q, from)
	if err == nil {
		err = conn.WriteFrame(frameResult, nil)
	}
	if err == nil {
		err = r.pass(conn)
	}
	if q.Redact.Session != "" && r != nil {
		g.Kept.keep(r.session, r.table) // again: it may have been pushed out meanwhile, and what came out names it
	}
	if err != nil {
		conn.WriteJSON(frameError, newFailure(err))
		return
	}
	result := r.result()
	if r.q.Mode != Report && g.Kept.keep(r.session, r.table) {
		result.Session = r.session
	}
	if conn.WriteJSON(frameResult, result) != nil && q.Redact.Session == "" {
		g.Kept.drop(r.session) // nobody knows of it
	}
}

// newRedaction finds or makes the session and records a restoring, before anything is read.
func (g *Gateway) newRedaction(ctx context.Context, conn *peer.Conn, q Query, from bailey.Call) (*redaction, error) {
	r := &redaction{q: *q.Redact}
	switch {
	case g.Kept == nil:
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "this gateway keeps no map of what it hides", Hint: "bailey gateway stop ends it, the next call starts another"}
	case r.q.Mode == Restore && r.q.Session == "":
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "restoring wants the session whose tokens they are", Hint: "bailey redact printed it: --session s-…"}
	case r.q.Mode == Report && r.q.Session != "":
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "a report has no session: nothing is kept of it", Hint: "leave --session out"}
	case r.q.Mode == Restore:
		if err := q.Operator.may("redact --restore"); err != nil {
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
	case Hide:
		hide(out)
	case Report:
		hide(io.Discard)
	case Lines:
		r.in = &jsonLines{table: r.table, tally: &r.tally, w: out}
	case Restore:
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
		case kind == frameEnd:
			return r.in.Close()
		case kind != frameInput:
			return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("a frame of kind %q is no input", kind)}
		}
		if _, err := r.in.Write(b); err != nil {
			return err
		}
	}
}

func (r *redaction) result() Redacted {
	out := r.tally.result()
	if r.back != nil {
		out.Restored, out.Left = r.back.Given(), r.back.Left()
	}
	return out
}

// pieces writes output in frames that are no longer than those of input.
type pieces struct{ conn *peer.Conn }

func (p pieces) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), maxPiece)
		if err := p.conn.WriteFrame(frameStdout, rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(b), nil
}
