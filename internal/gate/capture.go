package gate

import (
	"bytes"
	"io"
	"math"

	"bailey"
)

// capture handles one output stream of a tool:
//
//	tool ▶ count ▶ redact ▶ cap ▶ writer of the call, or buffer
//
// The cap applies after redaction, so a secret that crosses the cap is replaced as a whole before the text is cut.
// Output beyond the cap is read and discarded, so the tool never blocks.
type capture struct {
	redact RedactingWriter
	limit  *limitedWriter
	keep   *limitedWriter // copy for the receipt; nil if the call has no writer of its own
	kept   []byte         // set by Close if the call has no writer of its own
	seen   int64          // bytes written by the tool
	cut    bool
	buf    bytes.Buffer
	passed bool // the call has a writer of its own
	more   func(n int)
}

// newCapture returns a capture that writes to to, or to a buffer if to is nil. It reports the size of each write to more.
func (c *callState) newCapture(to io.Writer, more func(n int)) *capture {
	p := &capture{more: more}
	if to == nil {
		to = &p.buf
	} else {
		p.passed = true
		p.keep = &limitedWriter{w: &p.buf, left: bailey.OutputCap}
		to = io.MultiWriter(to, p.keep)
	}
	p.limit = &limitedWriter{w: to, left: bailey.OutputCap}
	if p.passed && c.call.Whole {
		p.limit.left = math.MaxInt
	}
	if _, workflow := c.run.(*workflowRun); workflow {
		p.redact = redactedWriter{p.limit}
	} else {
		p.redact = c.Redactor.Writer(c.call.Session.ID, p.limit)
	}
	return p
}

func (p *capture) Write(b []byte) (int, error) {
	p.seen += int64(len(b))
	p.more(len(b))
	if p.limit.cut {
		return len(b), nil
	}
	if _, err := p.redact.Write(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close flushes the bytes that the redactor held back.
func (p *capture) Close() error {
	err := p.redact.Close()
	if p.cut = p.limit.cut || p.keep != nil && p.keep.cut; !p.passed {
		p.kept = p.buf.Bytes()
	}
	return err
}

// writeHeld writes the held output to to, if the call has a writer of its own.
func (p *capture) writeHeld(to io.Writer) error {
	if to == nil {
		return nil
	}
	p.buf, p.passed = bytes.Buffer{}, true
	_, err := io.MultiWriter(to, &p.buf).Write(p.kept)
	p.kept = nil
	return err
}

// receiptBody returns the output that the caller got, for the receipt. It returns nil if the output is empty.
func (p *capture) receiptBody() *bailey.Body {
	text := p.kept
	if p.passed {
		text = p.buf.Bytes()
	}
	if len(text) == 0 {
		return nil
	}
	return &bailey.Body{Length: len(text), Bytes: text}
}

func (p *capture) redactionCount() int { return p.redact.Count() }

// limitedWriter passes on at most left bytes and discards the rest without an error.
type limitedWriter struct {
	w    io.Writer
	left int
	cut  bool
}

func (l *limitedWriter) Write(b []byte) (int, error) {
	n := len(b)
	if len(b) > l.left {
		b, l.cut = b[:l.left], true
	}
	if len(b) == 0 {
		return n, nil
	}
	if _, err := l.w.Write(b); err != nil {
		return 0, err
	}
	l.left -= len(b)
	return n, nil
}

// redactAgain stores the output that a hook returned. If the hook changed the output, it is redacted and capped again;
// unchanged output is already redacted.
func (c *callState) redactAgain(p *capture, was, is []byte) {
	if p.kept = was; bytes.Equal(was, is) {
		return
	}
	is = c.Redactor.Again(c.call.Session.ID, is)
	p.kept, p.cut = is[:min(len(is), bailey.OutputCap)], p.cut || len(is) > bailey.OutputCap
}
