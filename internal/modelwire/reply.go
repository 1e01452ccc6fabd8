package modelwire

import "cmp"

// walkReply edits the texts of a whole reply.
func (w *walker) walkReply(e Endpoint, n int) {
	assistant := Where{Kind: Assistant}
	switch {
	case w.doc.kindOf(n) == '[': // Gemini's stream as an array, read whole
		w.doc.eachElement(n, func(_, v int) { w.walkReply(e, v) })
	case e.Operation == Models, e.Operation == Embed, e.Operation == CountTokens, e.Operation == Files:
	case e.Operation == Batches:
		message := w.doc.atPath(n, "result", "message")
		w.editContent(w.doc.memberOf(message, "content"), assistant)
	default:
		for _, key := range []string{"content", "output", "data"} {
			w.editContent(w.doc.memberOf(n, key), assistant)
		}
		w.doc.eachElement(w.doc.memberOf(n, "choices"), func(_, v int) {
			w.editContent(w.doc.memberOf(v, "message"), assistant)
		})
		w.doc.eachElement(w.doc.memberOf(n, "candidates"), func(_, v int) {
			w.editContent(w.doc.memberOf(v, "content"), assistant)
		})
	}
}

// addUsage joins the usage of another reply.
func (u *Usage) addUsage(o Usage) {
	u.Input += o.Input
	u.Output += o.Output
	u.CacheRead += o.CacheRead
	u.CacheWrite += o.CacheWrite
	u.Reasoning += o.Reasoning
	u.TextBytes += o.TextBytes
	u.ToolNames = append(u.ToolNames, o.ToolNames...)
	u.Model = cmp.Or(o.Model, u.Model)
	u.StopReason = cmp.Or(o.StopReason, u.StopReason)
	u.Error = cmp.Or(o.Error, u.Error)
}

// readUsage reads the counts of a whole reply.
func readUsage(dialect Dialect, d *document, n int, u *Usage) {
	if d.kindOf(n) == '[' {
		d.eachElement(n, func(_, v int) { readUsage(dialect, d, v, u) })
		return
	}
	if message := d.atPath(n, "result", "message"); message >= 0 {
		n = message
	}
	u.readCounts(dialect, d, n)
	u.readError(d, n)
	switch dialect {
	case Anthropic:
		u.setText(d, &u.StopReason, d.memberOf(n, "stop_reason"))
		d.eachElement(d.memberOf(n, "content"), func(_, v int) { u.readCall(d, v) })
	case OpenAIResponses:
		u.readResponse(d, n)
	case OpenAIChat:
		d.eachElement(d.memberOf(n, "choices"), func(_, v int) {
			u.setText(d, &u.StopReason, d.memberOf(v, "finish_reason"))
			d.eachElement(d.atPath(v, "message", "tool_calls"), func(_, c int) { u.readCall(d, c) })
		})
	case Gemini:
		u.readCandidates(d, n)
	}
}

// setText sets a field if the value is a string that is not empty.
func (u *Usage) setText(d *document, field *string, v int) {
	if s := d.textOf(v); s != "" {
		*field = s
	}
}

// readCounts reads the model and the counts of tokens in any dialect. A later count replaces an earlier one.
func (u *Usage) readCounts(dialect Dialect, d *document, n int) {
	u.setText(d, &u.Model, d.memberOf(n, "model"))
	u.setText(d, &u.Model, d.memberOf(n, "modelVersion"))
	usage := d.memberOf(n, "usage")
	if d.kindOf(usage) != '{' {
		usage = d.memberOf(n, "usageMetadata")
	}
	if d.kindOf(usage) != '{' {
		return
	}
	set := func(field *int64, path ...string) {
		if v := d.atPath(usage, path...); d.kindOf(v) == '0' {
			*field = d.integerOf(v)
		}
	}
	set(&u.CacheRead, "cache_read_input_tokens")
	set(&u.CacheWrite, "cache_creation_input_tokens")
	set(&u.Input, "input_tokens")
	if dialect == Anthropic && d.memberOf(usage, "input_tokens") >= 0 {
		u.Input += u.CacheRead + u.CacheWrite // counted apart
	}
	set(&u.Input, "prompt_tokens")
	set(&u.Input, "promptTokenCount")
	set(&u.Output, "output_tokens")
	set(&u.Output, "completion_tokens")
	set(&u.CacheRead, "input_tokens_details", "cached_tokens")
	set(&u.CacheRead, "prompt_tokens_details", "cached_tokens")
	set(&u.CacheRead, "cachedContentTokenCount")
	set(&u.Reasoning, "output_tokens_details", "reasoning_tokens")
	set(&u.Reasoning, "completion_tokens_details", "reasoning_tokens")
	set(&u.Reasoning, "thoughtsTokenCount")
	if v := d.memberOf(usage, "candidatesTokenCount"); v >= 0 || d.memberOf(usage, "thoughtsTokenCount") >= 0 {
		u.Output = d.integerOf(v) + u.Reasoning
	}
}

// readError reads the type of an error.
func (u *Usage) readError(d *document, n int) {
	e := d.memberOf(n, "error")
	if d.kindOf(e) != '{' {
		return
	}
	for _, key := range []string{"code", "status", "type"} {
		u.setText(d, &u.Error, d.memberOf(e, key))
	}
	if u.Error == "" {
		u.Error = "error"
	}
}

// addTool records the name of a tool that the answer calls, up to maxOpen.
func (u *Usage) addTool(name string) {
	if len(u.ToolNames) < maxOpen {
		u.ToolNames = append(u.ToolNames, name)
	}
}

// readCall records the name of a call of a tool.
func (u *Usage) readCall(d *document, n int) {
	name := d.textOf(d.memberOf(n, "name"))
	for _, key := range []string{"function", "custom", "functionCall", "function_call"} {
		if name == "" {
			name = d.textOf(d.atPath(n, key, "name"))
		}
	}
	switch kind := d.textOf(d.memberOf(n, "type")); {
	case name == "" && len(kind) > len("_call") && kind[len(kind)-len("_call"):] == "_call":
		u.addTool(kind)
	case name != "" && kind != "function_call_output":
		u.addTool(name)
	}
}

// readResponse reads the object of a response of OpenAI.
func (u *Usage) readResponse(d *document, n int) {
	u.setText(d, &u.StopReason, d.memberOf(n, "status"))
	u.setText(d, &u.StopReason, d.atPath(n, "incomplete_details", "reason"))
	u.ToolNames = nil
	d.eachElement(d.memberOf(n, "output"), func(_, v int) { u.readCall(d, v) })
}

// readCandidates reads the candidates of Gemini.
func (u *Usage) readCandidates(d *document, n int) {
	u.setText(d, &u.StopReason, d.atPath(n, "promptFeedback", "blockReason"))
	d.eachElement(d.memberOf(n, "candidates"), func(_, v int) {
		u.setText(d, &u.StopReason, d.memberOf(v, "finishReason"))
		d.eachElement(d.atPath(v, "content", "parts"), func(_, p int) { u.readCall(d, p) })
	})
}
