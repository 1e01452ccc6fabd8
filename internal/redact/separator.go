package redact

// separator describes the bytes since the last word.
type separator struct {
	n                 uint16 // bytes
	lines, eq, colons uint8
	element, pipe     bool // > and |
	comma             bool
	quoted            bool // a quote closed the word
	space             bool
	valued            bool // the word value preceded: - name: NAME, value: …
	opened            byte // the quote that opened the value
	escaped           bool // a backslash preceded it
	call              byte // the bracket directly after the name: password("…"), passwd[] = "…"
	typed             bool // a type or a YAML anchor followed the colon
	amp               bool // an ampersand, which begins either
	bracket, operator bool
}

// noteByte records a byte, for use by any later word.
func (s *separator) noteByte(k class) {
	if s.n < 1<<15 {
		s.n++
	}
	switch {
	case k&(oper|colon) != 0:
		s.operator = true
	case k&line != 0:
		s.lines = min(s.lines+1, 100)
	case k&blank != 0:
		s.space = true
	default:
		s.bracket = true
	}
}

// extendSeparator processes a byte between a name and its value. It returns false if the byte cannot be part of a
// separator.
func (f *finder) extendSeparator(b []byte, i int, k class) bool {
	s := &f.sep
	c := b[i]
	if s.n > maxName || s.opened != 0 && s.separatesValue() {
		return false
	}
	switch {
	case k&blank != 0 || c == '?' || c == '\\' || c == ']' && !s.separatesValue():
		s.space = s.space || k&blank != 0
		s.escaped = c == '\\'
	case k&line != 0:
		return s.lines < 2 && (s.element && s.eq == 0 || s.eq+s.colons == 0 && !s.pipe && !s.valued)
	case c == '=':
		if s.colons > 0 && classes[b[i-1]]&blank != 0 && !s.typed { // it belongs to the value
			return false
		}
		if s.eq > 0 || s.opened != 0 {
			return false
		}
		s.eq++
	case c == ':' && f.ask != forLogin:
		s.colons++
	case c == '>' && b[i-1] == '-': // password -> …
		if !s.space {
			return false
		}
		s.colons++
	case c == '>':
		s.element = s.element || s.eq == 0
	case c == '&' && s.colons == 1 && s.eq == 0 && s.opened == 0:
		s.amp = true
	case c == '\'' && b[i-1] == '&' && s.amp: // a lifetime
	case (c == '(' || c == '{' || c == '[') && s.n == 0 && f.ask < forScheme:
		s.call = c
	case (c == ')' || c == '{') && s.call == '(' && s.opened == 0: // getToken() string { return "…" }
	case c == '|':
		s.pipe = true
	case c == ',':
		if !s.quoted || s.separatesValue() {
			return false
		}
		s.comma = true
	case k&quote != 0:
		if f.ask == forLogin {
			return false // the quotes are part of the argument
		}
		if s.n == 0 && f.ask == forArgument && f.last.end-f.last.start == 2 && b[f.last.start] == '-' { // -p"…"
			s.opened, s.space = c, true
			break
		}
		s.openOrClose(c)
	default:
		return false
	}
	return true
}

// openOrClose processes a quote. Directly after the name it closes the name; later it opens the value.
func (s *separator) openOrClose(c byte) {
	if !s.separatesValue() && (s.n == 0 || s.n == 1 && s.escaped) {
		s.quoted = true
		return
	}
	s.opened = c
}

// inElement reports whether the text is between the tags of an XML element.
func (s *separator) inElement() bool { return s.element && s.eq == 0 }

func (s *separator) separatesValue() bool {
	return s.eq > 0 || s.colons > 0 || s.element || s.pipe || s.comma
}

// isValueNext reports whether the next text is the value that the last word expects.
func (f *finder) isValueNext() bool {
	s := &f.sep
	if s.pipe && !s.space && s.eq+s.colons == 0 {
		return false
	}
	if s.eq > 1 || s.colons > 1 && s.eq == 0 || s.lines > 0 && !s.element && !s.valued {
		return false
	}
	if s.typed && s.eq == 0 && !s.amp {
		return false
	}
	return s.separatesValue() || s.space || s.call != 0 && s.opened != 0
}
