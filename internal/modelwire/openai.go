package modelwire

import (
	"bytes"
	"strings"

	"bailey"
)

// editResponseEvent edits an event of OpenAI Responses.
func (s *Stream) editResponseEvent(w *walker) {
	d := &w.doc
	kind := d.textOf(d.memberOf(0, "type"))
	item := "item " + string(d.rawValue(d.memberOf(0, "output_index"))) + " "
	switch {
	case kind == "response.output_item.added":
		s.startItem(w, item, d.memberOf(0, "item"))
	case strings.Contains(kind, "reasoning"), strings.Contains(kind, "audio"), strings.Contains(kind, "image"):
	case strings.HasSuffix(kind, ".delta"):
		s.editItemDelta(w, item, kind)
	case kind == "error":
		s.endChannels("")
		s.usage.setText(d, &s.usage.Error, d.memberOf(0, "code"))
		s.usage.readError(d, 0)
		if s.usage.Error == "" {
			s.usage.Error = "error"
		}
	case strings.HasSuffix(kind, ".done"), kind == "response.content_part.added":
		s.editDone(w, item, kind)
	case d.kindOf(d.memberOf(0, "response")) == '{':
		s.editSnapshot(w, kind, d.memberOf(0, "response"))
	}
}

// startItem reads the beginning of an item of the output.
func (s *Stream) startItem(w *walker, item string, n int) {
	d := &w.doc
	kind := d.textOf(d.memberOf(n, "type"))
	name := d.textOf(d.memberOf(n, "name"))
	if name == "" && strings.HasSuffix(kind, "_call") {
		name = kind
	}
	s.nameTool(item, name)
	w.editContent(n, Where{Kind: Assistant})
}

// editItemDelta edits a piece of an item. Only arguments are JSON; the input of a custom tool is free text.
func (s *Stream) editItemDelta(w *walker, item, kind string) {
	d := &w.doc
	key := item + string(d.rawValue(d.memberOf(0, "content_index"))) + " " + strings.TrimSuffix(kind, ".delta")
	where := Where{Kind: Assistant}
	if s.tools[item] != "" {
		where = Where{Kind: ToolInput, Tool: s.tools[item]}
	}
	n := d.memberOf(0, "delta")
	if n < 0 {
		return
	}
	from, to := d.nodes[n].start, d.nodes[n].end
	data := bytes.Clone(d.b)
	c := s.channelFor(key, where, strings.HasSuffix(kind, "_arguments.delta"))
	s.feedPiece(c, w, n, false, func(text string) []byte {
		return append(quoteText(append([]byte(nil), data[:from]...), text), data[to:]...)
	})
}

// editDone edits an event that repeats a whole text, and ends the text's channel.
func (s *Stream) editDone(w *walker, item, kind string) {
	d := &w.doc
	if kind == "response.output_item.done" {
		s.endChannels(item)
		w.editContent(d.memberOf(0, "item"), Where{Kind: Assistant})
		return
	}
	s.endChannels(item + string(d.rawValue(d.memberOf(0, "content_index"))) + " " + strings.TrimSuffix(kind, ".done"))
	where := Where{Kind: Assistant}
	if s.tools[item] != "" {
		where = Where{Kind: ToolInput, Tool: s.tools[item]}
	}
	w.editContent(d.memberOf(0, "part"), where)
	w.editNested(d.memberOf(0, "arguments"), where)
	for _, key := range []string{"text", "refusal", "input", "code"} {
		w.editString(d.memberOf(0, key), where)
	}
}

// editSnapshot edits the whole response. The first ones repeat the request, which stays as the model saw it.
func (s *Stream) editSnapshot(w *walker, kind string, n int) {
	s.usage.readCounts(OpenAIResponses, &w.doc, n)
	switch kind {
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		s.endChannels("")
		s.usage.readResponse(&w.doc, n)
		s.usage.readError(&w.doc, n)
	}
	w.editContent(w.doc.memberOf(n, "output"), Where{Kind: Assistant})
}

// editChunk edits an event of Chat Completions.
func (s *Stream) editChunk(w *walker) {
	d := &w.doc
	s.usage.readCounts(OpenAIChat, d, 0)
	if d.kindOf(d.memberOf(0, "error")) == '{' {
		s.endChannels("")
		s.usage.readError(d, 0)
	}
	d.eachElement(d.memberOf(0, "choices"), func(_, v int) {
		index := string(d.rawValue(d.memberOf(v, "index")))
		choice := "choice " + index + " "
		reason := d.textOf(d.memberOf(v, "finish_reason"))
		s.editChoice(w, choice, index, d.memberOf(v, "delta"), reason != "")
		if reason != "" {
			s.usage.StopReason = reason
			s.endChannels(choice)
		}
	})
}

// editChoice edits the pieces of one choice.
func (s *Stream) editChoice(w *walker, choice, index string, delta int, last bool) {
	d := &w.doc
	for _, key := range []string{"content", "refusal"} {
		n := d.memberOf(delta, key)
		if d.kindOf(n) != '"' {
			w.editContent(n, Where{Kind: Assistant})
			continue
		}
		c := s.channelFor(choice+key, Where{Kind: Assistant}, false)
		s.feedPiece(c, w, n, last, chunkShape(d.b, index, `"`+key+`":`, ""))
	}
	calls := d.memberOf(delta, "tool_calls")
	if d.kindOf(calls) == '[' {
		s.endChannels(choice + "content")
	}
	d.eachElement(calls, func(_, v int) { s.editCallPiece(w, choice, index, v, last) })
	if call := d.memberOf(delta, "function_call"); d.kindOf(call) == '{' { // before there were tools
		key := choice + "function"
		s.nameTool(key, d.textOf(d.memberOf(call, "name")))
		c := s.channelFor(key, Where{Kind: ToolInput, Tool: s.tools[key]}, true)
		s.feedPiece(c, w, d.memberOf(call, "arguments"), last, chunkShape(d.b, index, `"function_call":{"arguments":`, "}"))
	}
}

// editCallPiece edits a piece of a call of a tool.
func (s *Stream) editCallPiece(w *walker, choice, index string, n int, last bool) {
	d := &w.doc
	number := string(d.rawValue(d.memberOf(n, "index")))
	if number == "" {
		number = "0"
	}
	key := choice + "tool " + number + " "
	if id := d.textOf(d.memberOf(n, "id")); id != "" && s.calls[key] != id {
		if len(s.calls) >= maxOpen && s.calls[key] == "" {
			s.keepError(bailey.Invalid.Wrapf(ErrTooLarge, "Repeat the request.",
				"the reply has more than %d calls", maxOpen))
			return
		}
		s.endChannels(key) // some providers give all calls the same index
		s.calls[key] = id
		delete(s.tools, key)
	}
	head := `"tool_calls":[{"index":` + number + `,`
	if call := d.memberOf(n, "function"); d.kindOf(call) == '{' {
		s.nameTool(key, d.textOf(d.memberOf(call, "name")))
		c := s.channelFor(key, Where{Kind: ToolInput, Tool: s.tools[key]}, true)
		s.feedPiece(c, w, d.memberOf(call, "arguments"), last, chunkShape(d.b, index, head+`"function":{"arguments":`, "}}]"))
	}
	if call := d.memberOf(n, "custom"); d.kindOf(call) == '{' {
		s.nameTool(key, d.textOf(d.memberOf(call, "name")))
		c := s.channelFor(key+"custom", Where{Kind: ToolInput, Tool: s.tools[key]}, false)
		s.feedPiece(c, w, d.memberOf(call, "input"), last, chunkShape(d.b, index, head+`"custom":{"input":`, "}}]"))
	}
}

// chunkShape returns a function that makes a chunk of the same answer as the chunk data.
func chunkShape(data []byte, index, before, after string) func(string) []byte {
	data = bytes.Clone(data)
	return func(text string) []byte {
		out := copyMembers(data, "id", "object", "created", "model")
		if index == "" {
			index = "0"
		}
		out = append(out, `"choices":[{"index":`+index+`,"delta":{`+before...)
		return append(quoteText(out, text), after+`},"finish_reason":null}]}`...)
	}
}

// copyMembers returns the beginning of an object with some members of the object data.
func copyMembers(data []byte, names ...string) []byte {
	out := []byte("{")
	doc, err := parseDocument(data, nil)
	if err != nil {
		return out
	}
	for _, name := range names {
		if raw := doc.rawValue(doc.memberOf(0, name)); raw != nil {
			out = append(append(append(out, `"`+name+`":`...), raw...), ',')
		}
	}
	return out
}
