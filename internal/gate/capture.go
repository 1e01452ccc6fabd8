package gate

import (
	"bytes"
	"io"
	"math"

	"bailey"
)

// capture is one output stream of a tool on its way out:
//
//	tool ▶ count ▶ redact ▶ cap ▶ the call's writer, or what is kept
//
// The cap comes after redaction, so that a secret that straddles it is a whole token before it is cut.
// What is beyond the cap is drained, so that the tool never blocks.
type capture struct {
	redact RedactingWriter
	limit  *limited
	keep   *limited // what of it the receipt keeps; nil while the call has no writer of its own
	kept   []byte   // when the call has no writer of its own, after Close
	seen   int64    // bytes the tool wrote
	cut    bool
	buf    bytes.Buffer
	passed bool // the call has a writer of its own
	more   func(n int)
}

// capture makes one; more is told of all that the tool writes.
func (c *course) capture(to io.Writer, more func(n int)) *capture {
	p := &capture{more: more}
	if to == nil {
		to = &p.buf
	} else {
		p.passed = true
		p.keep = &limited{w: &p.buf, left: bailey.OutputCap}
		to = io.MultiWriter(to, p.keep)
	}
	p.limit = &limited{w: to, left: bailey.OutputCap}
	if p.passed && c.call.Whole {
		p.limit.left = math.MaxInt
	}
	if _, workflow := c.run.(*chain); workflow {
		p.redact = clean{p.limit}
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

// Close flushes what the redactor held back.
func (p *capture) Close() error {
	err := p.redact.Close()
	if p.cut = p.limit.cut || p.keep != nil && p.keep.cut; !p.passed {
		p.kept = p.buf.Bytes()
	}
	return err
}

// deliver writes what was held back, where the call has a writer of its own.
func (p *capture) deliver(to io.Writer) error {
	if to == nil {
		return nil
	}
	p.buf, p.passed = bytes.Buffer{}, true
	_, err := io.MultiWriter(to, &p.buf).Write(p.kept)
	p.kept = nil
	return err
}

// body is what the caller got, for the receipt; nil when that is nothing.
func (p *capture) body() *bailey.Body {
	text := p.kept
	if p.passed {
		text = p.buf.Bytes()
	}
	if len(text) == 0 {
		return nil
	}
	return &bailey.Body{Length: len(text), Bytes: text}
}

func (p *capture) redactions() int { return p.redact.Count() }

// limited passes at most left bytes on and drops the rest, without an error.
type limited struct {
	w    io.Writer
	left int
	cut  bool
}

func (l *limited) Write(b []byte) (int, error) {
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

// redactAgain keeps what a hook returned, redacted, and only then: output that no hook touched is redacted already.
func (c *course) redactAgain(p *capture, was, is []byte) {
	if p.kept = was; bytes.Equal(was, is) {
		return
	}
	is = c.Redactor.Again(c.call.Session.ID, is)
	p.kept, p.cut = is[:min(len(is), bailey.OutputCap)], p.cut || len(is) > bailey.OutputCap
}
