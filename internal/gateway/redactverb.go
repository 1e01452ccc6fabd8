package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/peer"
	"bailey/internal/redact"
)

// RestoreEvent is the kind of the ledger entry for a session whose texts are restored for an operator. It must be
// durable before the first text is sent, and contains no text. Its data is a [Restoring].
const RestoreEvent = "redact.restore"

// Restoring records which operator had the texts of which session restored.
type Restoring struct {
	Session  bailey.SessionID  `json:"session"`
	Operator localapi.Operator `json:"operator"`
	Person   string            `json:"person"`
}

// redaction is one redact stream. Its reads and writes have no time limit: if the user's pager or source stalls, it
// blocks only this connection.
type redaction struct {
	q       localapi.RedactQuery
	session bailey.SessionID
	table   *redact.Table
	tally   tally
	in      io.WriteCloser // destination of the input, depending on the mode
	back    *redact.Restorer
}

// redact serves one stream. It writes the text only to the client.
func (g *Gateway) redact(ctx context.Context, conn *peer.Conn, q localapi.Query, from bailey.Call) {
	select {
	case g.streams <- struct{}{}:
		defer func() { <-g.streams }()
	default:
		conn.WriteJSON(localapi.FrameError, localapi.NewFailure(errBusy))
		return
	}
	r, err := g.newRedaction(ctx, conn, q, from)
	if err == nil {
		err = conn.WriteFrame(localapi.FrameResult, nil)
	}
	if err == nil {
		err = r.pass(conn)
	}
	if q.Redact.Session != "" && r != nil {
		// keep it again: it may have been removed meanwhile, but the output refers to it
		g.Kept.keep(r.session, r.table, true)
	}
	bad := badLine{}
	if err != nil && !errors.As(err, &bad) {
		conn.WriteJSON(localapi.FrameError, localapi.NewFailure(err))
		return
	}
	result := r.result()
	if r.q.Mode != localapi.Report && g.Kept.keep(r.session, r.table, q.Redact.Session != "" || result.Escaped > 0) {
		result.Session = r.session
	}
	if err != nil { // the texts answered before can be restored
		why := localapi.NewFailure(err)
		result.Fault = &why
	}
	if conn.WriteJSON(localapi.FrameResult, result) != nil && q.Redact.Session == "" {
		g.Kept.drop(r.session) // no client knows of it
	}
}

// newRedaction finds or creates the session and records a restoring, before any input is read.
func (g *Gateway) newRedaction(ctx context.Context, conn *peer.Conn, q localapi.Query, from bailey.Call) (*redaction, error) {
	r := &redaction{q: *q.Redact}
	switch {
	case g.Kept == nil:
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "this gateway keeps no map of what it hides", Hint: "bailey gateway stop ends it, the next call starts another"}
	case r.q.Mode == localapi.Restore && r.q.Session == "":
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "restoring wants the session whose tokens they are", Hint: "bailey redact printed it: --session s-…"}
	case r.q.Mode == localapi.Report && r.q.Session != "":
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "a report has no session: nothing is kept of it", Hint: "leave --session out"}
	case r.q.Mode == localapi.Restore:
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

func (r *redaction) begin(out io.Writer) error {
	hide := func(to io.Writer) {
		w := r.table.Writer(to)
		w.Tell(func(f redact.Finding) { r.tally.add(f, f.Line) })
		r.in = w
	}
	switch r.q.Mode {
	case localapi.Hide:
		hide(out)
	case localapi.Report:
		hide(io.Discard)
	case localapi.Lines:
		r.in = &jsonLines{table: r.table, tally: &r.tally, w: out}
	case localapi.Restore:
		r.back = r.table.Restorer(out)
		r.in = r.back
	default:
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("redact has no mode %q", string(r.q.Mode)), Hint: "client and gateway may be of two versions: bailey gateway stop"}
	}
	return nil
}

// pass reads input until its end. It writes each frame before it reads the next, so a client that does not read its
// output is not read either.
func (r *redaction) pass(conn *peer.Conn) error {
	for {
		kind, b, err := conn.ReadFrameWithin(apitype.MaxPiece)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return &bailey.Error{Kind: bailey.Invalid, Message: "the input broke off"}
		case err != nil:
			return err
		case kind == localapi.FrameEnd:
			return r.in.Close()
		case kind != localapi.FrameInput:
			return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("a frame of kind %q is no input", kind)}
		}
		if _, err := r.in.Write(b); err != nil {
			return err
		}
	}
}

func (r *redaction) result() apitype.Redacted {
	out := r.tally.result()
	if w, ok := r.in.(*redact.Writer); ok {
		out.Escaped = w.Escapes()
	}
	if r.back != nil {
		out.Restored, out.Left, out.Missed = r.back.Given(), r.back.Left(), r.back.Missed()
	}
	return out
}

// pieces writes output in frames of at most maxPiece bytes.
type pieces struct{ conn *peer.Conn }

func (p pieces) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), apitype.MaxPiece)
		if err := p.conn.WriteFrame(localapi.FrameStdout, rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(b), nil
}
