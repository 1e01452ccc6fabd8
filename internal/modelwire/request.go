package modelwire

import (
	"bytes"
	"context"
	"slices"
	"strings"
)

// Edit is [Edit] with a cache. generation must change whenever text may return something else than before, for example
// because a secret was learned.
func (c *Cache) Edit(e Endpoint, generation int, body []byte, text TextFunc) ([]byte, Summary, error) {
	return c.EditWithin(context.Background(), e, generation, body, text)
}

// EditWithin is [Cache.Edit]. If ctx ends, it edits no further text and returns the cause.
func (c *Cache) EditWithin(ctx context.Context, e Endpoint, generation int, body []byte,
	text TextFunc) ([]byte, Summary, error) {
	var sum Summary
	sum.Model = e.Model
	sum.Stream = e.Streams
	if len(bytes.TrimSpace(body)) == 0 {
		return body, sum, nil
	}
	if e.Opaque {
		return nil, sum, unreadableBody("files are not read")
	}
	doc, err := parseDocument(body, nil)
	if err != nil {
		return nil, sum, err
	}
	if doc.kindOf(0) != '{' {
		return nil, sum, unreadableBody("it is no JSON object")
	}
	w := walker{ctx: ctx, doc: doc, text: text, sum: &sum, cache: c, generation: generation, tools: map[string]string{}}
	w.walkRequest(e, 0)
	return w.assembleBody(), sum, w.err
}

// settings are top-level members that a model does not read, or that the provider compares or uses as they are.
var settings = []string{
	"model", "stream", "metadata", "cache_control", "thinking", "container", "mcp_servers", "tool_choice", "service_tier",
	"output_config", "output_format", "betas", "anthropic_beta", "anthropic_version",
	"response_format", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user", "previous_response_id",
	"conversation", "include", "reasoning", "reasoning_effort", "text", "modalities", "audio", "stream_options",
	"truncation", "verbosity", "encoding_format", "generationConfig", "generation_config", "safetySettings",
	"safety_settings", "toolConfig", "tool_config", "cachedContent", "cached_content", "labels", "taskType", "task_type",
	"endpoint", "completion_window", "input_file_id", "output_expires_after",
}

// walkRequest edits the object of a request.
func (w *walker) walkRequest(e Endpoint, n int) {
	w.readSettings(e, n)
	w.doc.eachMember(n, func(key string, _, v int) {
		switch key {
		case "system", "instructions", "systemInstruction", "system_instruction":
			w.editContent(v, Where{Kind: System})
		case "messages", "contents":
			w.walkConversation(v)
		case "input":
			w.walkInput(e, v)
		case "tools", "functions":
			w.editTools(v)
		case "requests":
			w.walkBatch(e, v)
		case "generateContentRequest", "generate_content_request":
			if w.doc.kindOf(v) != '{' {
				w.editContent(v, Where{})
			}
			w.walkRequest(e, v)
		case "content", "prediction":
			edit := func() {
				w.editContent(v, Where{Kind: map[bool]Kind{true: Assistant, false: User}[key == "prediction"]})
			}
			if e.Operation == Embed {
				w.collectPrompt(edit)
			} else {
				edit()
			}
		case "prompt":
			w.editPrompt(v)
		default:
			if !slices.Contains(settings, key) {
				w.editContent(v, Where{})
			}
		}
	})
	w.editStops(n)
}

// editStops edits the texts at which Gemini's model stops. They are in an object that otherwise stays as it is.
func (w *walker) editStops(n int) {
	for _, key := range []string{"generationConfig", "generation_config"} {
		config := w.doc.memberOf(n, key)
		w.editContent(w.doc.memberOf(config, "stopSequences"), Where{})
		w.editContent(w.doc.memberOf(config, "stop_sequences"), Where{})
	}
}

// editPrompt edits the variables of a prompt that the provider keeps, or a prompt that is a text.
func (w *walker) editPrompt(n int) {
	if w.doc.kindOf(n) != '{' {
		w.editContent(n, Where{Kind: User})
		return
	}
	w.doc.eachMember(w.doc.memberOf(n, "variables"), func(_ string, _, v int) { w.editContent(v, Where{Kind: User}) })
}

// walkBatch edits the requests of a batch.
func (w *walker) walkBatch(e Endpoint, n int) {
	if w.doc.kindOf(n) != '[' {
		w.editContent(n, Where{})
	}
	w.doc.eachElement(n, func(_, v int) {
		switch {
		case w.doc.kindOf(v) != '{':
			w.editContent(v, Where{})
		case w.doc.memberOf(v, "params") < 0:
			w.walkRequest(e, v)
		default:
			w.doc.eachMember(v, func(key string, _, m int) {
				if key == "params" && w.doc.kindOf(m) == '{' {
					w.walkRequest(e, m)
				} else if !isOpaqueKey(key) {
					w.editContent(m, Where{})
				}
			})
		}
	})
}

// walkInput edits the input of a response or of embeddings.
func (w *walker) walkInput(e Endpoint, n int) {
	switch {
	case w.doc.kindOf(n) == '[' && e.Operation != Embed:
		w.walkConversation(n)
	case e.Operation == Embed:
		w.doc.eachElement(n, func(_, v int) {
			if w.doc.kindOf(v) != '"' {
				w.refuseBody("the input is numbers of tokens, which cannot be read", "Send texts.")
			}
		})
		w.collectPrompt(func() { w.editContent(n, Where{Kind: User}) })
	default:
		w.sum.Messages = 1
		w.collectPrompt(func() { w.editContent(n, Where{Kind: User}) })
	}
}

// walkConversation edits the messages of a conversation.
func (w *walker) walkConversation(n int) {
	if w.doc.kindOf(n) != '[' {
		w.editContent(n, Where{Kind: User})
		return
	}
	var list []int
	w.doc.eachElement(n, func(_, v int) { list = append(list, v) })
	w.sum.Messages += len(list)
	w.readCalls(n)
	last := len(list) - 1
	for last >= 0 && kindOfRole(w.doc.textOf(w.doc.memberOf(list[last], "role"))) == System {
		last--
	}
	for i, v := range list {
		edit := func() { w.editContent(v, Where{Kind: User}) }
		if i == last {
			w.collectPrompt(edit)
		} else {
			edit()
		}
	}
}

// collectPrompt records the texts of the user that edit passes on as the last prompt.
func (w *walker) collectPrompt(edit func()) {
	w.prompt = &strings.Builder{}
	edit()
	if prompt := w.prompt.String(); w.sum.LastPrompt == "" {
		w.sum.LastPrompt = prompt
	} else if prompt != "" {
		w.sum.LastPrompt += "\n" + prompt
	}
	w.prompt = nil
}

// readCalls records the tool of each call, because the result of a call has only its identifier.
func (w *walker) readCalls(n int) {
	for v := n + 1; v < int(w.doc.nodes[n].next); v++ {
		if w.doc.nodes[v].kind != '{' {
			continue
		}
		name := w.doc.textOf(w.doc.memberOf(v, "name"))
		if name == "" {
			name = w.doc.textOf(w.doc.atPath(v, "function", "name"))
		}
		if name == "" {
			name = w.doc.textOf(w.doc.atPath(v, "custom", "name"))
		}
		if name == "" {
			continue
		}
		for _, key := range []string{"id", "call_id"} {
			if id := w.doc.textOf(w.doc.memberOf(v, key)); id != "" {
				w.tools[id] = name
			}
		}
	}
}

// readSettings fills in the summary.
func (w *walker) readSettings(e Endpoint, n int) {
	d, sum := &w.doc, w.sum
	switch model := d.textOf(d.memberOf(n, "model")); {
	case sum.Model == "":
		sum.Model = model
	case e.Operation == Batches && model != "" && model != sum.Model && model != "models/"+sum.Model:
		w.refuseBody("it names several models", "Send one request for each model.")
	}
	sum.Stream = sum.Stream || d.isTrue(d.memberOf(n, "stream"))
	for _, path := range [][]string{{"max_tokens"}, {"max_completion_tokens"}, {"max_output_tokens"},
		{"generationConfig", "maxOutputTokens"}, {"generation_config", "max_output_tokens"}} {
		sum.MaxTokens = max(sum.MaxTokens, d.integerOf(d.atPath(n, path...)))
	}
	for _, path := range [][]string{{"previous_response_id"}, {"conversation"}, {"conversation", "id"}, {"cachedContent"},
		{"cached_content"}, {"container"}, {"container", "id"}} {
		if s := d.textOf(d.atPath(n, path...)); s != "" && sum.Previous == "" {
			sum.Previous = s
		}
	}
	if sum.Session = d.textOf(d.memberOf(n, "prompt_cache_key")); e.Dialect == Anthropic {
		sum.Session = sessionOfUser(d.textOf(d.atPath(n, "metadata", "user_id")))
	}
}

// sessionOfUser returns the session in the user_id that Claude Code sends: a JSON object, or in earlier versions
// user_…_session_ID.
func sessionOfUser(user string) string {
	if doc, err := parseDocument([]byte(user), nil); err == nil {
		return doc.textOf(doc.memberOf(0, "session_id"))
	}
	_, session, _ := strings.Cut(user, "_session_")
	return session
}
