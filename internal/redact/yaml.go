package redact

import "bytes"

// yamlBlock is a YAML block scalar (1.2.2, section 8.1) under the name of a secret:
//
//	password: |
//	  …
//
// Each of its lines is a value. It ends at a line that is not indented more than the name. In a diff, all lines have
// one more sign at their start.
type yamlBlock struct {
	ask    valueKind // of the name; nothing if not in a block
	name   [maxName]byte
	length int // of the name
	indent int // of the line with the name
	judged int // start of the line that was examined last
}

// maxHeader limits the text between the name of a block and the end of its line.
const maxHeader = 128

// beginsBlock reports whether a block begins at a | or > at i, after a name that expects a secret.
func (f *finder) beginsBlock(b []byte, i int, final bool) (begins, open bool) {
	s, size := &f.sep, f.last.end-f.last.start
	if f.ask > forToken || size > maxName || i-f.last.end > maxName ||
		s.colons != 1 || !s.space || s.eq > 0 || s.opened != 0 || s.lines > 0 || s.element || s.pipe || s.call != 0 ||
		s.comma {
		return false, false
	}
	j := i + 1
	for j < len(b) && j-i < 3 && (b[j] == '-' || b[j] == '+' || classes[b[j]]&digit != 0) {
		j++
	}
	for j < len(b) && j-i < maxHeader && classes[b[j]]&blank != 0 {
		j++
	}
	if j < len(b) && b[j] == '#' && classes[b[j-1]]&blank != 0 {
		for j < len(b) && j-i < maxHeader && classes[b[j]]&line == 0 {
			j++
		}
	}
	if j < len(b) && b[j] == '\r' {
		j++
	}
	if j == len(b) {
		return false, !final
	}
	if b[j] != '\n' {
		return false, false
	}
	f.block = yamlBlock{ask: f.ask, length: size, judged: -1}
	copy(f.block.name[:], b[f.last.start:f.last.end])
	before := lineBefore(b, f.last.start)
	f.block.indent = len(before) - len(bytes.TrimLeft(before, " -+"))
	f.next, f.ask, f.sep = j+1, nothing, separator{}
	return true, false
}

// inBlock reports whether f is at the start of a line of a block that was not yet examined.
func (f *finder) inBlock(b []byte) bool {
	return f.block.ask != nothing && f.tail == "" && f.next > 0 && f.next != f.block.judged && b[f.next-1] == '\n'
}

// blockLine decides on the line of a block at next. It returns true if it must wait for more bytes.
func (f *finder) blockLine(b []byte, final bool, add func(span)) bool {
	s, i := &f.block, f.next
	limit := min(len(b), i+maxValue)
	end := limit
	if n := bytes.IndexByte(b[i:limit], '\n'); n >= 0 {
		end = i + n
	} else if limit == len(b) && limit < i+maxValue && !final {
		return true
	}
	text := bytes.TrimRight(b[i:end], " \t\r")
	v, stop := i, i+len(text)
	if v < stop && (b[v] == '+' || b[v] == '-') {
		v++
	}
	for v < stop && b[v] == ' ' {
		v++
	}
	s.judged = i
	if v == stop {
		return false
	}
	if v-i <= s.indent {
		s.ask = nothing
		return false
	}
	if bytes.ContainsAny(b[v:stop], " \t") &&
		(s.ask != forSecret || b[v] == '#' || bytes.ContainsAny(b[v:stop], "=:")) {
		return false // a line of a file, whose secrets are found by their own names
	}
	q := &candidate{ask: s.ask, sep: separator{n: 2, colons: 1, space: true, opened: '"'}, name: s.name[:s.length],
		b: b, v: v, closed: true}
	found, category := q.judgeValue(f, stop)
	if found.end == found.start {
		return false
	}
	category = f.refineCategory(category, b[v:stop])
	add(span{v, stop, category})
	if stop-i >= maxValue {
		f.tail = category
	}
	f.next, f.open, f.ask, f.sep, f.last = stop, 0, nothing, separator{}, byteRange{v, v}
	return false
}
