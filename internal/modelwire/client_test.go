package modelwire

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// answer is a reply of a model in pieces, with the input of one call.
type answer struct {
	text, args, custom []string
}

func whole(pieces []string) string { return strings.Join(pieces, "") }

func quoted(s string) string { return string(quoteText(nil, s)) }

// streams makes the stream of an answer in each dialect, as the provider sends it.
var streams = map[Dialect]func(answer) string{
	Anthropic:       anthropicStream,
	OpenAIResponses: responsesStream,
	OpenAIChat:      chatStream,
	Gemini:          geminiStream,
}

func endpointOf(d Dialect) Endpoint { return Endpoint{Dialect: d, Operation: Generate} }

func sseEvent(data string) string {
	var e struct{ Type string }
	json.Unmarshal([]byte(data), &e)
	return "event: " + e.Type + "\ndata: " + data + "\n\n"
}

func anthropicStream(a answer) string {
	var b strings.Builder
	put := func(format string, args ...any) { b.WriteString(sseEvent(fmt.Sprintf(format, args...))) }
	put(`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"usage":{"input_tokens":10,"output_tokens":1}}}`)
	put(`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`)
	put(`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"[REDACTED_PASSWORD_1]"}}`)
	put(`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2lnbmF0dXJl"}}`)
	put(`{"type":"content_block_stop","index":0}`)
	put(`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`)
	put(`{"type": "ping"}`)
	for _, p := range a.text {
		put(`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":%s}}`, quoted(p))
	}
	put(`{"type":"content_block_stop","index":1}`)
	put(`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"Edit","input":{}}}`)
	for _, p := range a.args {
		put(`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":%s}}`, quoted(p))
	}
	put(`{"type":"content_block_stop","index":2}`)
	put(`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":42}}`)
	put(`{"type":"message_stop"}`)
	return b.String()
}

func responsesStream(a answer) string {
	var b strings.Builder
	n := 0
	put := func(format string, args ...any) {
		data := fmt.Sprintf(format, args...)
		b.WriteString(sseEvent(fmt.Sprintf(`%s,"sequence_number":%d}`, strings.TrimSuffix(data, "}"), n)))
		n++
	}
	message := fmt.Sprintf(`{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"text":%s}]}`, quoted(whole(a.text)))
	call := fmt.Sprintf(`{"id":"fc_1","type":"function_call","status":"completed","arguments":%s,"call_id":"call_1","name":"Edit"}`, quoted(whole(a.args)))
	custom := fmt.Sprintf(`{"id":"ctc_1","type":"custom_tool_call","status":"completed","input":%s,"call_id":"call_2","name":"apply_patch"}`, quoted(whole(a.custom)))
	reasoning := `{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"[REDACTED_PASSWORD_1]"}],"encrypted_content":"gAAAA[REDACTED_PASSWORD_1]"}`
	put(`{"type":"response.created","response":{"id":"resp_1","object":"response","model":"gpt-x","status":"in_progress","instructions":"keep [REDACTED_PASSWORD_1]","output":[]}}`)
	put(`{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}`)
	put(`{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"[REDACTED_PASSWORD_1]"}`)
	put(`{"type":"response.output_item.done","output_index":0,"item":%s}`, reasoning)
	put(`{"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}`)
	put(`{"type":"response.content_part.added","item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","annotations":[],"text":""}}`)
	for _, p := range a.text {
		put(`{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":%s,"logprobs":[],"obfuscation":"xyz"}`, quoted(p))
	}
	put(`{"type":"response.output_text.done","item_id":"msg_1","output_index":1,"content_index":0,"text":%s}`, quoted(whole(a.text)))
	put(`{"type":"response.content_part.done","item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","annotations":[],"text":%s}}`, quoted(whole(a.text)))
	put(`{"type":"response.output_item.done","output_index":1,"item":%s}`, message)
	put(`{"type":"response.output_item.added","output_index":2,"item":{"id":"fc_1","type":"function_call","status":"in_progress","arguments":"","call_id":"call_1","name":"Edit"}}`)
	for _, p := range a.args {
		put(`{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":2,"delta":%s}`, quoted(p))
	}
	put(`{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":2,"arguments":%s}`, quoted(whole(a.args)))
	put(`{"type":"response.output_item.done","output_index":2,"item":%s}`, call)
	put(`{"type":"response.output_item.added","output_index":3,"item":{"id":"ctc_1","type":"custom_tool_call","status":"in_progress","input":"","call_id":"call_2","name":"apply_patch"}}`)
	for _, p := range a.custom {
		put(`{"type":"response.custom_tool_call_input.delta","item_id":"ctc_1","output_index":3,"delta":%s}`, quoted(p))
	}
	put(`{"type":"response.custom_tool_call_input.done","item_id":"ctc_1","output_index":3,"input":%s}`, quoted(whole(a.custom)))
	put(`{"type":"response.output_item.done","output_index":3,"item":%s}`, custom)
	put(`{"type":"response.completed","response":{"id":"resp_1","object":"response","model":"gpt-x","status":"completed","instructions":"keep [REDACTED_PASSWORD_1]","output":[%s,%s,%s,%s],"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":8},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":3}}}}`, reasoning, message, call, custom)
	return b.String()
}

func chatStream(a answer) string {
	var b strings.Builder
	put := func(delta, finish string) {
		fmt.Fprintf(&b, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"gpt-x\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", delta, finish)
	}
	put(`{"role":"assistant","content":""}`, "null")
	put(`{"reasoning_content":"[REDACTED_PASSWORD_1]"}`, "null")
	for _, p := range a.text {
		put(`{"content":`+quoted(p)+`}`, "null")
	}
	for i, p := range a.args {
		if i == 0 {
			put(`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"Edit","arguments":`+quoted(p)+`}}]}`, "null")
			continue
		}
		put(`{"tool_calls":[{"index":0,"function":{"arguments":`+quoted(p)+`}}]}`, "null")
	}
	for i, p := range a.custom {
		if i == 0 {
			put(`{"tool_calls":[{"index":1,"id":"call_2","type":"custom","custom":{"name":"apply_patch","input":`+quoted(p)+`}}]}`, "null")
			continue
		}
		put(`{"tool_calls":[{"index":1,"custom":{"input":`+quoted(p)+`}}]}`, "null")
	}
	put(`{}`, `"tool_calls"`)
	b.WriteString("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"gpt-x\",\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n")
	return b.String()
}

func geminiStream(a answer) string {
	var b strings.Builder
	put := func(parts, finish string) {
		fmt.Fprintf(&b, "data: {\"candidates\":[{\"content\":{\"parts\":[%s],\"role\":\"model\"}%s,\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":20,\"candidatesTokenCount\":6,\"thoughtsTokenCount\":3},\"modelVersion\":\"gemini-x\",\"responseId\":\"r1\"}\r\n\r\n", parts, finish)
	}
	put(`{"text":"[REDACTED_PASSWORD_1]","thought":true}`, "")
	for _, p := range a.text {
		put(`{"text":`+quoted(p)+`}`, "")
	}
	put(`{"functionCall":{"name":"Edit","args":`+whole(a.args)+`},"thoughtSignature":"c2ln"}`, `,"finishReason":"STOP"`)
	return b.String()
}

// seen is all that a client of a stream learns, joined as its SDK would.
type seen struct {
	text, args, custom string
	snapshots          map[string][]string // repeated texts by kind
	hidden             []string            // thinking and its like
}

type object = map[string]any

func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(object)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func str(v any) string { s, _ := v.(string); return s }

// readStream reads a stream as a client does.
func readStream(t testing.TB, d Dialect, out string) seen {
	t.Helper()
	s := seen{snapshots: map[string][]string{}}
	for _, block := range strings.Split(strings.ReplaceAll(out, "\r\n", "\n"), "\n\n") {
		_, data, ok := strings.Cut("\n"+block, "\ndata: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var e object
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%v in event %q", err, block)
		}
		switch d {
		case Anthropic:
			s.readMessage(e)
		case OpenAIResponses:
			s.readResponse(e)
		case OpenAIChat:
			s.readChunk(e)
		case Gemini:
			s.readCandidate(e)
		}
	}
	return s
}

func (s *seen) readMessage(e object) {
	switch str(at(e, "delta", "type")) {
	case "text_delta":
		s.text += str(at(e, "delta", "text"))
	case "input_json_delta":
		s.args += str(at(e, "delta", "partial_json"))
	case "thinking_delta":
		s.hidden = append(s.hidden, str(at(e, "delta", "thinking")))
	}
}

func (s *seen) readResponse(e object) {
	switch kind := str(e["type"]); kind {
	case "response.output_text.delta":
		s.text += str(e["delta"])
	case "response.function_call_arguments.delta":
		s.args += str(e["delta"])
	case "response.custom_tool_call_input.delta":
		s.custom += str(e["delta"])
	case "response.reasoning_summary_text.delta":
		s.hidden = append(s.hidden, str(e["delta"]))
	case "response.completed":
		for i := range 4 {
			s.readItem(at(e, "response", "output", i))
		}
		s.hidden = append(s.hidden, str(at(e, "response", "instructions"))[len("keep "):])
	default:
		for key, group := range map[string]string{"text": "text", "arguments": "args", "input": "custom"} {
			if v, ok := e[key]; ok {
				s.snapshots[group] = append(s.snapshots[group], str(v))
			}
		}
		if kind == "response.content_part.done" {
			s.snapshots["text"] = append(s.snapshots["text"], str(at(e, "part", "text")))
		}
		if kind == "response.output_item.done" {
			s.readItem(e["item"])
		}
	}
}

func (s *seen) readItem(item any) {
	switch str(at(item, "type")) {
	case "message":
		s.snapshots["text"] = append(s.snapshots["text"], str(at(item, "content", 0, "text")))
	case "function_call":
		s.snapshots["args"] = append(s.snapshots["args"], str(at(item, "arguments")))
	case "custom_tool_call":
		s.snapshots["custom"] = append(s.snapshots["custom"], str(at(item, "input")))
	case "reasoning":
		s.hidden = append(s.hidden, str(at(item, "summary", 0, "text")))
	}
}

func (s *seen) readChunk(e object) {
	delta := at(e, "choices", 0, "delta")
	s.text += str(at(delta, "content"))
	if v := str(at(delta, "reasoning_content")); v != "" {
		s.hidden = append(s.hidden, v)
	}
	s.args += str(at(delta, "tool_calls", 0, "function", "arguments"))
	s.custom += str(at(delta, "tool_calls", 0, "custom", "input"))
}

func (s *seen) readCandidate(e object) {
	parts, _ := at(e, "candidates", 0, "content", "parts").([]any)
	for _, p := range parts {
		if at(p, "thought") == true {
			s.hidden = append(s.hidden, str(at(p, "text")))
			continue
		}
		s.text += str(at(p, "text"))
		if args := at(p, "functionCall", "args"); args != nil {
			b, _ := json.Marshal(args)
			s.args += string(b)
		}
	}
}
