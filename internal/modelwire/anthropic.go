package modelwire

import "strconv"

// editMessageEvent edits an event of Anthropic Messages.
func (s *Stream) editMessageEvent(w *walker) {
	d := &w.doc
	index := string(d.rawValue(d.memberOf(0, "index")))
	block := "block " + index + " "
	switch d.textOf(d.memberOf(0, "type")) {
	case "message_start":
		message := d.memberOf(0, "message")
		s.usage.readCounts(Anthropic, d, message)
		w.editContent(d.memberOf(message, "content"), Where{Kind: Assistant})
	case "content_block_start":
		s.startBlock(w, block, index, d.memberOf(0, "content_block"))
	case "content_block_delta":
		s.editDelta(w, block, index)
	case "content_block_stop":
		s.endChannels(block)
	case "message_delta":
		s.endChannels("")
		s.usage.readCounts(Anthropic, d, 0)
		s.usage.setText(d, &s.usage.StopReason, d.atPath(0, "delta", "stop_reason"))
	case "message_stop":
		s.endChannels("")
	case "error":
		s.endChannels("")
		s.usage.readError(d, 0)
	}
}

// startBlock reads the beginning of a block of content. Its text or input is usually empty.
func (s *Stream) startBlock(w *walker, block, index string, n int) {
	d := &w.doc
	s.endChannels(block)
	s.nameTool(block, d.textOf(d.memberOf(n, "name")))
	if text := d.memberOf(n, "text"); d.kindOf(text) == '"' && len(d.rawValue(text)) > 2 {
		c := s.channelFor(block+"text", Where{Kind: Assistant}, false)
		s.feedPiece(c, w, text, false, deltaShape(index, "text_delta", "text"))
		return
	}
	w.editContent(n, Where{Kind: Assistant})
}

// editDelta edits a piece of a block.
func (s *Stream) editDelta(w *walker, block, index string) {
	d := &w.doc
	delta := d.memberOf(0, "delta")
	switch kind := d.textOf(d.memberOf(delta, "type")); kind {
	case "text_delta":
		c := s.channelFor(block+"text", Where{Kind: Assistant}, false)
		s.feedPiece(c, w, d.memberOf(delta, "text"), false, deltaShape(index, kind, "text"))
	case "input_json_delta":
		c := s.channelFor(block+"json", Where{Kind: ToolInput, Tool: s.tools[block]}, true)
		s.feedPiece(c, w, d.memberOf(delta, "partial_json"), false, deltaShape(index, kind, "partial_json"))
	}
}

// deltaShape returns a function that makes a delta of a block.
func deltaShape(index, kind, key string) func(string) []byte {
	return func(text string) []byte {
		if _, err := strconv.Atoi(index); err != nil {
			index = "0"
		}
		out := append([]byte(`{"type":"content_block_delta","index":`), index...)
		out = append(out, `,"delta":{"type":"`+kind+`","`+key+`":`...)
		return append(quoteText(out, text), "}}"...)
	}
}
