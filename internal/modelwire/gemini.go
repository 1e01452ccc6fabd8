package modelwire

import "bytes"

// editCandidates edits one event or element of a stream of Gemini.
func (s *Stream) editCandidates(w *walker) {
	d := &w.doc
	s.usage.readCounts(Gemini, d, 0)
	s.usage.readCandidates(d, 0)
	if d.kindOf(d.memberOf(0, "error")) == '{' {
		s.endChannels("")
		s.usage.readError(d, 0)
	}
	d.eachElement(d.memberOf(0, "candidates"), func(_, v int) {
		index := string(d.rawValue(d.memberOf(v, "index")))
		key := "candidate " + index + " "
		finished := d.textOf(d.memberOf(v, "finishReason")) != ""
		s.editParts(w, key, index, d.atPath(v, "content", "parts"), finished)
		if finished {
			s.endChannels(key)
		}
	})
}

// editParts edits the parts of one candidate. A text ends before a part that is no text, and with the candidate.
func (s *Stream) editParts(w *walker, key, index string, n int, finished bool) {
	d := &w.doc
	var parts []int
	d.eachElement(n, func(_, v int) { parts = append(parts, v) })
	for i, v := range parts {
		if !isTextPart(d, v) {
			s.endChannels(key)
			w.editContent(v, Where{Kind: Assistant})
			continue
		}
		last := finished
		if i+1 < len(parts) {
			last = !isTextPart(d, parts[i+1])
		}
		c := s.channelFor(key, Where{Kind: Assistant}, false)
		s.feedPiece(c, w, d.memberOf(v, "text"), last, candidateShape(d.b, index))
	}
}

func isTextPart(d *document, n int) bool {
	return d.kindOf(d.memberOf(n, "text")) == '"' && !d.isTrue(d.memberOf(n, "thought"))
}

// candidateShape returns a function that makes an event of the same answer as data.
func candidateShape(data []byte, index string) func(string) []byte {
	data = bytes.Clone(data)
	return func(text string) []byte {
		out := append(copyMembers(data, "modelVersion", "responseId"), `"candidates":[{"content":{"parts":[{"text":`...)
		out = append(quoteText(out, text), `}],"role":"model"}`...)
		if index != "" {
			out = append(out, `,"index":`+index...)
		}
		return append(out, "}]}"...)
	}
}

// arrayReader splits a stream that is one JSON array into its elements.
type arrayReader struct {
	held   []byte
	pos    int  // bytes of held that were read
	depth  int  // arrays and objects that are open
	inText bool // in a string
	escape bool // after a backslash
	plain  bool // it is no array, or the array has ended: all passes
	comma  bool // the last byte outside of the elements was a comma
	ending bool // between the last element and the end
}

// readArray writes the elements of the array that are complete.
func (s *Stream) readArray(final bool) {
	a := &s.array
	for ; a.pos < len(a.held) && !a.plain; a.pos++ {
		switch c := a.held[a.pos]; {
		case a.escape:
			a.escape = false
		case a.inText:
			a.escape, a.inText = c == '\\', c != '"'
		case c == '"':
			a.inText, a.comma = true, false
		case c == '{', c == '[':
			s.openElement(c)
		case c == '}', c == ']':
			s.closeElement()
		case a.depth <= 1:
			a.comma = c == ',' || a.comma && c <= ' '
			a.plain = a.depth == 0 && c > ' ' && c < 0x80
		}
	}
	if a.depth <= 1 && !a.inText || a.plain || final {
		if final && !a.plain {
			s.endArray()
		}
		s.out = append(s.out, a.held...)
		a.held, a.pos = nil, 0
	}
}

// openElement is called at an opening bracket. The separators before an element are written as they are.
func (s *Stream) openElement(c byte) {
	a := &s.array
	switch {
	case a.depth == 0 && c == '{':
		a.plain = true // an error instead of the array
		return
	case a.depth == 1:
		s.out = append(s.out, a.held[:a.pos]...)
		a.held, a.pos = a.held[a.pos:], 0
	}
	a.depth++
}

// closeElement is called at a closing bracket.
func (s *Stream) closeElement() {
	a := &s.array
	a.depth--
	switch a.depth {
	case 1:
		raw := a.held[: a.pos+1 : a.pos+1]
		a.held, a.pos = a.held[a.pos+1:], -1
		edited := s.editData(raw)
		if edited == nil {
			edited = raw
		}
		s.out = append(s.out, edited...)
		a.comma = false // it was before the element
	case 0, -1:
		s.endArray()
		a.plain = true
	}
}

// endArray is called after the last element.
func (s *Stream) endArray() {
	a := &s.array
	s.out = append(s.out, a.held[:a.pos]...)
	a.held, a.pos = a.held[a.pos:], 0
	a.ending = true
	s.endChannels("")
}

// insertElement writes an element of our own: before the present element, whose comma was written, or after the last
// one.
func (a *arrayReader) insertElement(s *Stream, data []byte) {
	switch {
	case !a.ending:
		s.out = append(append(s.out, data...), ',')
	case a.comma:
		s.out = append(s.out, data...)
		a.comma = false
	default:
		s.out = append(append(s.out, ','), data...)
	}
}
