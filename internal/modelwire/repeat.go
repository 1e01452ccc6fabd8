package modelwire

import (
	"bytes"
	"unicode/utf8"
)

// Most events of a stream differ from the event before them only in one piece of text. If that event was read completely,
// and changed nothing but the text of a channel, then so does the next one, and it need not be parsed: an event with the
// same bytes around the piece is the same JSON, as long as the piece contains nothing that could end its string. Such an
// event passes as it came if the channel would write the piece as it is and holds nothing back.

// Passer is a writer of an [Editor] that can tell that it would write a piece as it is. PassPiece must not write p. If it
// returns true, it counts p as written; otherwise it must change nothing. The bytes of p are whole characters.
type Passer interface{ PassPiece(p []byte) bool }

// repeated is the form of the last event, if the next one may repeat it.
type repeated struct {
	around  [][]byte // the bytes around the gaps: one more than gaps
	gaps    []byte   // kinds: a piece of text, another string, or a number
	channel *channel
	named   bool
}

// Kinds of gaps.
const (
	gapPiece  = 'p' // inside a string that is a piece of a channel's text
	gapString = 's' // inside a string that is not read
	gapNumber = '0'
)

// spare are members that differ in each event of OpenAI and are not read.
var spare = []string{"sequence_number", "obfuscation"}

// matchHead returns the length of the event at the start of b and its piece, if it repeats the form.
func (r *repeated) matchHead(b []byte) (n int, piece []byte, ok bool) {
	for i, around := range r.around {
		if !bytes.HasPrefix(b[n:], around) {
			return 0, nil, false
		}
		n += len(around)
		if i == len(r.gaps) {
			return n, piece, true
		}
		size := gapLen(b[n:], r.gaps[i])
		if size < 0 {
			return 0, nil, false
		}
		if r.gaps[i] == gapPiece {
			piece = b[n : n+size]
		}
		n += size
	}
	return 0, nil, false
}

// gapLen returns the length of the gap at the start of b, or -1 if it is not simple.
func gapLen(b []byte, kind byte) int {
	n := 0
	if kind == gapNumber {
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			n++
		}
		if n == 0 || n > 15 || n > 1 && b[0] == '0' {
			return -1
		}
		return n
	}
	ascii := true
	for ; n < len(b) && b[n] != '"'; n++ {
		if b[n] < ' ' || b[n] == '\\' {
			return -1
		}
		ascii = ascii && b[n] < utf8.RuneSelf
	}
	if n == len(b) || !ascii && !utf8.Valid(b[:n]) {
		return -1
	}
	return n
}

// passRepeated writes the events at the start of what is held that repeat the last one.
func (s *Stream) passRepeated() {
	r := s.repeat
	if r == nil || s.err != nil {
		return
	}
	for {
		n, piece, ok := r.matchHead(s.events.held)
		if !ok || !r.channel.passPiece(piece) {
			return
		}
		s.named = r.named
		s.bytes += int64(len(piece))
		s.out = append(s.out, s.events.held[:n]...)
		s.events.skipBytes(n)
	}
}

// passPiece reports whether the channel would write a piece as it is, and counts it.
func (c *channel) passPiece(p []byte) bool {
	switch {
	case c.json != nil:
		return c.json.passPiece(p)
	case c.w == nil:
		return true
	}
	w, ok := c.w.(Passer)
	return ok && w.PassPiece(p)
}

// passPiece is [channel.passPiece] for JSON: inside a string that is a value.
func (p *partial) passPiece(b []byte) bool {
	t := &p.text
	switch {
	case p.broken:
		return true
	case !p.inText || p.isKey || len(p.escape) > 0 || p.err != nil:
		return false
	case t.w == nil:
		return true
	case len(t.parts) > 0 || len(t.written) > 0:
		return false
	}
	w, ok := t.w.(Passer)
	return ok && w.PassPiece(b)
}

// keepForm records the form of an event that only passed one piece on, unchanged. It does nothing for an event that is
// written in an unusual way.
func (s *Stream) keepForm(e *event, d *document) {
	if s.pieces != 1 || s.changes != 0 || s.err != nil || e.raw[len(e.raw)-1] != '\n' {
		return
	}
	from := bytes.Index(e.raw, e.data) // -1 if they are in several lines
	if from < 0 {
		return
	}
	r := &repeated{channel: s.fed, named: e.named}
	gaps := map[int]byte{s.piece: gapPiece}
	if s.endpoint.Dialect == OpenAIResponses || s.endpoint.Dialect == OpenAIChat {
		for _, name := range spare {
			switch n := d.memberOf(0, name); d.kindOf(n) {
			case '"':
				gaps[n] = gapString
			case '0':
				gaps[n] = gapNumber
			}
		}
	}
	pos := 0
	for i := range d.nodes {
		kind, ok := gaps[i]
		if !ok {
			continue
		}
		start, end := from+int(d.nodes[i].start), from+int(d.nodes[i].end)
		if kind != gapNumber {
			start, end = start+1, end-1
		}
		r.around = append(r.around, bytes.Clone(e.raw[pos:start]))
		r.gaps = append(r.gaps, kind)
		pos = end
	}
	r.around = append(r.around, bytes.Clone(e.raw[pos:]))
	s.repeat = r
}

// skipBytes removes events that were passed on.
func (r *eventReader) skipBytes(n int) {
	r.held = r.held[n:]
	r.seen, r.line = 0, 0
}
