package modelwire

import "bytes"

// event is one server-sent event (HTML, section 9.2.6) as it came, with its fields.
type event struct {
	raw   []byte   // with the blank line
	lines [][]byte // of raw, with their ends
	data  []byte   // the values of the data fields, joined by newlines
	name  string   // the value of the last event field
	named bool
}

// eventReader splits a stream into events, however it is cut.
type eventReader struct {
	held    []byte
	room    []byte // the memory that held is in, for the next bytes
	seen    int    // bytes of held that were searched
	line    int    // start of the line in held that is not complete
	started bool   // the byte order mark was searched
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// maxRoom limits the memory that is kept for the next bytes.
const maxRoom = 1 << 20

// addBytes adds bytes of the stream. All events that were returned before become invalid.
func (r *eventReader) addBytes(p []byte) {
	if cap(r.room) > maxRoom && len(r.held) < maxRoom/2 {
		r.room = nil
	}
	r.held = append(append(r.room[:0], r.held...), p...)
	r.room = r.held
}

// nextEvent returns the next event of the stream, or nil if more bytes are needed.
func (r *eventReader) nextEvent() *event {
	for r.seen < len(r.held) {
		c := r.held[r.seen]
		if c != '\n' && c != '\r' {
			n := bytes.IndexAny(r.held[r.seen:], "\r\n")
			if n < 0 {
				r.seen = len(r.held)
				return nil
			}
			r.seen += n
			continue
		}
		start := r.line
		if start == 0 && bytes.HasPrefix(r.held, byteOrderMark) && !r.started {
			start = len(byteOrderMark)
		}
		blank := r.seen == start
		if c == '\r' && !blank && r.seen+1 == len(r.held) {
			return nil // a newline may follow
		}
		r.seen++
		// After a blank line, the newline may come later. Alone, it is an event without data, which passes.
		if c == '\r' && r.seen < len(r.held) && r.held[r.seen] == '\n' {
			r.seen++
		}
		r.line = r.seen
		if blank {
			return r.cutEvent(r.seen)
		}
	}
	return nil
}

// cutEvent returns the first n held bytes as an event.
func (r *eventReader) cutEvent(n int) *event {
	raw := r.held[:n:n]
	r.held = r.held[n:]
	r.seen, r.line = 0, 0
	e := &event{raw: raw}
	if !r.started {
		raw = bytes.TrimPrefix(raw, byteOrderMark)
	}
	r.started = true
	e.parseFields(raw)
	return e
}

// restEvent returns the bytes after the last event as an event.
func (r *eventReader) restEvent() *event {
	if len(r.held) == 0 {
		return nil
	}
	return r.cutEvent(len(r.held))
}

// parseFields reads the fields.
func (e *event) parseFields(raw []byte) {
	values := 0
	for len(raw) > 0 {
		n := bytes.IndexAny(raw, "\r\n") + 1
		if n == 0 {
			n = len(raw)
		} else if raw[n-1] == '\r' && n < len(raw) && raw[n] == '\n' {
			n++
		}
		line := raw[:n]
		raw = raw[n:]
		e.lines = append(e.lines, line)
		field, value, _ := bytes.Cut(trimLineEnd(line), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if values++; values == 1 {
				e.data = value
				continue
			}
			e.data = append(append(e.data[:len(e.data):len(e.data)], '\n'), value...)
		case "event":
			e.name, e.named = string(value), true
		}
	}
}

func trimLineEnd(line []byte) []byte { return bytes.TrimRight(line, "\r\n") }

// appendEdited appends the event with other data. All other lines stay.
func (e *event) appendEdited(out, data []byte) []byte {
	out = append(out, e.raw[:len(e.raw)-lengthOf(e.lines)]...) // the byte order mark
	done := false
	for _, line := range e.lines {
		field, _, _ := bytes.Cut(trimLineEnd(line), []byte(":"))
		if string(field) != "data" {
			out = append(out, line...)
			continue
		}
		if done {
			continue
		}
		done = true
		end := line[len(trimLineEnd(line)):]
		for i, value := range bytes.Split(data, []byte("\n")) {
			if i > 0 && len(end) == 0 {
				out = append(out, '\n')
			}
			out = append(append(append(out, "data: "...), value...), end...)
		}
	}
	return out
}

func lengthOf(lines [][]byte) (n int) {
	for _, line := range lines {
		n += len(line)
	}
	return n
}
