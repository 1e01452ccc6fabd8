package apitype

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/peer"
	"bailey/internal/redact"
)

// Redact sends in through the gateway and writes the result to out. It does both concurrently and buffers one piece of
// each. If it returns early with an error, a read of in or a write to out may still be running. If a line is invalid,
// the error is returned with the result for the lines before it, and Fault is set.
func Redact(ctx context.Context, c *localapi.Client, q localapi.RedactQuery, op localapi.Operator, in io.Reader,
	out io.Writer) (r Redacted, err error) {
	conn, err := c.Carry(ctx, localapi.Query{Verb: localapi.RedactVerb, Redact: &q, Operator: op})
	if err != nil {
		return r, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if err := sendInput(in, conn); err != nil {
			cancel(err)
		}
	}()
	ended := make(chan error, 1)
	var came Redacted
	go func() { ended <- readOutput(ctx, conn, out, &came) }()
	select {
	case err := <-ended:
		return came, err
	case <-ctx.Done():
		return r, context.Cause(ctx)
	}
}

// readOutput writes output until the last frame of the gateway.
func readOutput(ctx context.Context, conn *peer.Conn, out io.Writer, r *Redacted) error {
	for {
		kind, b, err := conn.ReadFrame()
		if err != nil {
			return streamError(ctx, err)
		}
		if kind != localapi.FrameStdout {
			err := localapi.LastWord(kind, b, r)
			if err == nil && r.Fault != nil {
				err = r.Fault.Err()
			}
			return err
		}
		if _, err := out.Write(b); err != nil {
			return bailey.Unavailable.Wrap(err, "cannot write the output",
				"check where it goes; the output is incomplete")
		}
	}
}

// streamError returns the error for a connection that failed during the stream.
func streamError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return midStream{bailey.Unavailable.Wrap(localapi.CutOff{Err: err},
		"the gateway stopped in the middle: the output is incomplete",
		"redact the whole text again; the session ended with the gateway")}
}

// midStream shows only its own message; a caller must unwrap it to see socket addresses.
type midStream struct{ err *bailey.Error }

func (m midStream) Error() string { return m.err.Message }

func (m midStream) Unwrap() error { return m.err }

// sendInput sends all of in and an end frame. A failed write is not its error: the gateway's last frame has the reason.
func sendInput(in io.Reader, conn *peer.Conn) error {
	b := make([]byte, MaxPiece)
	for {
		n, err := in.Read(b)
		if n > 0 && conn.WriteFrame(localapi.FrameInput, b[:n]) != nil {
			return nil
		}
		switch {
		case err == io.EOF:
			conn.WriteFrame(localapi.FrameEnd, nil)
			return nil
		case err != nil:
			return bailey.Unavailable.Wrap(err, "cannot read all of the input", "check where it comes from")
		}
	}
}

// KeptQuery names a redaction session that the gateway keeps.
type KeptQuery struct {
	Session bailey.SessionID `json:"session"`
}

// RuleCounts summarizes the custom rules, or returns "" if there are none.
func RuleCounts(c redact.Config) string {
	var parts []string
	count := func(n int, one, many string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	count(len(c.Patterns), "pattern", "patterns")
	count(len(c.Allow), "allowance", "allowances")
	count(len(c.Without), "category not hidden", "categories not hidden")
	if parts == nil {
		return ""
	}
	return strings.Join(parts, ", ") + ", in addition to the built-in detection"
}

// MaxPiece is the maximum size of an input or output frame in bytes. Neither side holds more than a few frames.
const MaxPiece = 64 << 10

// Redacted is the result of redacting or restoring. It contains no text.
type Redacted struct {
	Session    bailey.SessionID  `json:"session,omitempty"` // if it was kept
	Hidden     int               `json:"hidden"`            // findings
	Lost       int               `json:"lost,omitempty"`    // findings that cannot be restored because the map was full
	Escaped    int               `json:"escaped,omitempty"` // literal tokens
	Categories []Hidden          `json:"categories"`        // most findings first, never null
	Restored   int               `json:"restored,omitempty"`
	Left       int               `json:"left,omitempty"`   // tokens that were not restored
	Missed     []redact.Miss     `json:"missed,omitempty"` // the first of Left
	Fault      *localapi.Failure `json:"fault,omitempty"`  // of the line that ended the stream
}

// Hidden is the result for one category.
type Hidden struct {
	Category redact.Category `json:"category"`
	Finds    int             `json:"finds"`
	Distinct int             `json:"distinct"` // different texts; all lost ones count as one
	Line     int             `json:"line"`     // input line of the first finding, counted from one
}

// KeptSession is the public information about a map.
type KeptSession struct {
	Texts int       `json:"texts"` // texts that have a token
	Used  time.Time `json:"used"`
	Until time.Time `json:"until"`
}
