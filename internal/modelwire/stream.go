package modelwire

import (
	"bytes"
	"io"
	"slices"

	"bailey"
)

// Stream edits a reply that arrives in events. It writes each event as soon as it is complete, with the texts that are
// decided; an event that does not change is written byte for byte. A text that is held back at the end of its block is
// written as one more event before the block ends; if events have numbers, it repeats the number of the last piece.
// Pings, comments and unknown events pass at once. It must not be used by several goroutines.
type Stream struct {
	endpoint Endpoint
	w        io.Writer
	editor   Editor
	events   eventReader
	array    arrayReader
	channels []*channel
	tools    map[string]string // tool by the key of its block
	calls    map[string]string // identifier of the call by the key of its block
	nodes    []node
	out      []byte
	usage    Usage
	named    bool // the present event has a name
	err      error

	repeat  *repeated // nil: the next event must be read completely
	fed     *channel  // of the last piece
	piece   int       // node of the last piece
	pieces  int       // of the present event
	bytes   int64     // of the texts that came in pieces
	whole   int64     // of the texts that came whole, which most providers repeat at the end
	changes int       // of the present event: channels that began or ended, names of tools, whole texts
}

// channel is one text that arrives in pieces.
type channel struct {
	key   string
	out   bytes.Buffer
	w     io.WriteCloser           // a plain text; nil if it stays
	json  *partial                 // a JSON text
	shape func(text string) []byte // makes the data of an event of our own
}

// NewStream returns a Stream that writes to w. e must be the endpoint of the request. The caller must Close it.
func NewStream(e Endpoint, w io.Writer, editor Editor) *Stream {
	return &Stream{endpoint: e, w: w, editor: editor, tools: map[string]string{},
		calls: map[string]string{}}
}

// Usage returns what the reply said of itself so far.
func (s *Stream) Usage() Usage {
	u := s.usage
	u.ToolNames = slices.Clone(u.ToolNames)
	u.TextBytes = max(s.bytes, s.whole)
	return u
}

// Write processes the next bytes of the reply. It writes at most once to the writer. An error is final.
func (s *Stream) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.endpoint.Array {
		s.array.held = append(s.array.held, p...)
		s.readArray(false)
	} else {
		s.events.addBytes(p)
		s.passRepeated()
		for e := s.events.nextEvent(); e != nil; e = s.events.nextEvent() {
			s.editEvent(e)
			s.passRepeated()
		}
	}
	if max(len(s.events.held), len(s.array.held)) > MaxBody {
		s.keepError(bailey.Invalid.Wrapf(ErrTooLarge, "Repeat the request.",
			"an event of the reply has more than %d bytes", MaxBody))
	}
	s.flushOut()
	if s.err != nil {
		return 0, s.err
	}
	return len(p), nil
}

// Close writes all that is held back, and the last event even if it is incomplete. It does not close the writer.
func (s *Stream) Close() error {
	if s.err == errClosed {
		return nil
	}
	if s.err != nil {
		return s.err
	}
	if s.endpoint.Array {
		s.readArray(true)
	} else {
		s.closeEvents()
	}
	s.flushOut()
	if s.err != nil {
		return s.err
	}
	s.err = errClosed
	return nil
}

// closeEvents writes the bytes after the last blank line, and ends all channels. An event of our own must not continue
// a line that is incomplete.
func (s *Stream) closeEvents() {
	e := s.events.restEvent()
	if e == nil {
		s.endChannels("")
		return
	}
	if _, err := parseDocument(e.data, nil); err != nil {
		s.endChannels("")
		s.out = append(s.out, e.raw...)
		return
	}
	s.editEvent(e)
	out := s.out
	s.out = nil
	s.endChannels("")
	if len(s.out) > 0 {
		out = append(out, "\n\n"...)
	}
	s.out = append(out, s.out...)
}

var errClosed = bailey.Invalid.Wrap(io.ErrClosedPipe, "the reply has ended", "")

// flushOut writes the output.
func (s *Stream) flushOut() {
	if len(s.out) == 0 {
		return
	}
	_, err := s.w.Write(s.out)
	s.keepError(err)
	s.out = s.out[:0]
}

// keepError keeps the first error.
func (s *Stream) keepError(err error) {
	if s.err == nil {
		s.err = err
	}
}

// editEvent writes an event with its texts edited.
func (s *Stream) editEvent(e *event) {
	if data := bytes.TrimSpace(e.data); len(data) == 0 || data[0] != '{' {
		if string(data) == "[DONE]" {
			s.endChannels("")
		}
		s.out = append(s.out, e.raw...)
		return
	}
	s.named = e.named
	s.repeat, s.pieces, s.changes = nil, 0, 0
	edited := s.editData(e.data)
	if edited == nil {
		s.keepForm(e, &document{e.data, s.nodes})
		s.out = append(s.out, e.raw...)
		return
	}
	s.out = e.appendEdited(s.out, edited)
}

// editData returns the data of an event with its texts edited, or nil if none changed. Data that cannot be read stays.
func (s *Stream) editData(data []byte) []byte {
	doc, err := parseDocument(data, s.nodes)
	if err != nil {
		return nil
	}
	s.nodes = doc.nodes
	w := &walker{doc: doc, text: s.editor.Text, reply: true, sum: &Summary{}}
	switch s.endpoint.Dialect {
	case Anthropic:
		s.editMessageEvent(w)
	case OpenAIResponses:
		s.editResponseEvent(w)
	case OpenAIChat:
		s.editChunk(w)
	case Gemini:
		s.editCandidates(w)
	}
	s.changes += w.sum.Texts
	s.whole += w.sum.TextBytes
	if len(w.patches) == 0 {
		return nil
	}
	return w.assembleBody()
}

// maxOpen limits the texts that are open and the tools that are called in one reply, because a provider numbers them
// as it likes.
const maxOpen = 1000

// nameTool records the tool that a block calls. A block with two names is an error, because the input could be restored
// for one of them and used by the other.
func (s *Stream) nameTool(block, name string) {
	if name == "" || s.tools[block] == name {
		return
	}
	if s.tools[block] != "" {
		s.keepError(bailey.Invalid.Wrap(ErrUnreadable, "a call in the reply has two names", "Repeat the request."))
		return
	}
	if len(s.tools) >= maxOpen {
		s.keepError(bailey.Invalid.Wrapf(ErrTooLarge, "Repeat the request.",
			"the reply calls more than %d tools", maxOpen))
		return
	}
	s.changes++
	s.tools[block] = name
	s.usage.addTool(name)
}

// channelFor returns the channel with a key, or a new one.
func (s *Stream) channelFor(key string, where Where, isJSON bool) *channel {
	for _, c := range s.channels {
		if c.key == key {
			return c
		}
	}
	if len(s.channels) >= maxOpen {
		s.keepError(bailey.Invalid.Wrapf(ErrTooLarge, "Repeat the request.",
			"the reply has more than %d texts at the same time", maxOpen))
	}
	c := &channel{key: key}
	if isJSON {
		c.json = newPartial(where, s.editor.Writer, &c.out)
	} else {
		c.w = s.editor.Writer(where, &c.out)
	}
	s.changes++
	s.channels = append(s.channels, c)
	return c
}

// feedPiece passes the string n, a piece of the channel's text, and replaces it by the text that is decided. If it is
// the last piece, the channel ends. shape makes an event of the channel.
func (s *Stream) feedPiece(c *channel, w *walker, n int, last bool, shape func(text string) []byte) {
	if w.doc.kindOf(n) != '"' {
		return
	}
	before := w.doc.textOf(n)
	s.fed, s.piece = c, n
	s.pieces++
	s.bytes += int64(len(before))
	c.shape = shape
	switch {
	case c.json != nil:
		c.json.writePiece(before)
		s.keepError(c.json.err)
	case c.w != nil:
		_, err := io.WriteString(c.w, before)
		s.keepError(err)
	default:
		c.out.WriteString(before)
	}
	if last {
		s.finishChannel(c)
	}
	if c.out.String() != before {
		w.replaceValue(n, quoteText(nil, c.out.String()))
	}
	c.out.Reset()
}

// finishChannel lets a channel write what it holds back, and forgets it.
func (s *Stream) finishChannel(c *channel) {
	s.repeat = nil
	s.changes++
	if c.json != nil {
		c.json.finishText()
		s.keepError(c.json.err)
	} else if c.w != nil {
		s.keepError(c.w.Close())
	}
	s.channels = slices.DeleteFunc(s.channels, func(o *channel) bool { return o == c })
}

// endChannels ends all channels whose key begins with prefix, and writes an event for each that held back a text.
func (s *Stream) endChannels(prefix string) {
	for i := 0; i < len(s.channels); {
		c := s.channels[i]
		if len(c.key) < len(prefix) || c.key[:len(prefix)] != prefix {
			i++
			continue
		}
		s.finishChannel(c)
		if c.out.Len() > 0 && c.shape != nil {
			s.writeOwn(c.shape(c.out.String()))
		}
	}
}

// writeOwn writes an event of our own.
func (s *Stream) writeOwn(data []byte) {
	if s.endpoint.Array {
		s.array.insertElement(s, data)
		return
	}
	if s.named {
		if doc, err := parseDocument(data, nil); err == nil {
			s.out = append(append(append(s.out, "event: "...), doc.textOf(doc.memberOf(0, "type"))...), '\n')
		}
	}
	s.out = append(append(append(s.out, "data: "...), data...), "\n\n"...)
}
