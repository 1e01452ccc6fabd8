package modelwire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func show(_ Where, s string) string { return shown.Replace(s) }

const token = "[REDACTED_PASSWORD_1]"

// TestReplies restores whole replies. A token in a string that begins with KEEP- must stay.
func TestReplies(t *testing.T) {
	for _, c := range []struct {
		path, in string
		want     Usage
	}{
		{"/v1/messages", `{"id":"KEEP-TOKEN","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"KEEP-TOKEN","signature":"KEEP-TOKEN"},
			{"type":"text","text":"a TOKEN","citations":[{"type":"char_location","cited_text":"KEEP-TOKEN","start_char_index":1}]},
			{"type":"tool_use","id":"KEEP-TOKEN","name":"Bash","input":{"command":"TOKEN","KEEP-TOKEN":1.0}},{"type":"of_tomorrow","x":"TOKEN"}],
			"stop_reason":"tool_use","usage":{"input_tokens":3,"cache_read_input_tokens":4,"cache_creation_input_tokens":5,"output_tokens":6}}`,
			Usage{Model: "m", Input: 12, Output: 6, CacheRead: 4, CacheWrite: 5, StopReason: "tool_use", ToolNames: []string{"Bash"}}},
		{"/v1/messages", `{"type":"error","error":{"type":"overloaded_error","message":"KEEP-TOKEN"}}`, Usage{Error: "overloaded_error"}},
		{"/v1/messages/count_tokens", `{"input_tokens":17}`, Usage{}},
		{"/v1/responses", `{"model":"m","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"error":null,"instructions":"KEEP-TOKEN","output":[{"type":"reasoning","summary":[{"text":"KEEP-TOKEN"}]},
			{"type":"message","role":"assistant","content":[{"type":"output_text","text":"TOKEN","annotations":[{"title":"KEEP-TOKEN"}],"logprobs":[{"token":"KEEP-TOKEN"}]}]},
			{"type":"function_call","name":"f","arguments":"{\"a\" : \"TOKEN\"}"},{"type":"local_shell_call","action":{"command":["TOKEN"]}}],
			"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":2},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":1}}}`,
			Usage{Model: "m", Input: 9, Output: 5, CacheRead: 2, Reasoning: 1, StopReason: "max_output_tokens", ToolNames: []string{"f", "local_shell_call"}}},
		{"/v1/responses/compact", `{"output":[{"role":"user","type":"message","content":[{"type":"input_text","text":"TOKEN"}]},{"type":"compaction","encrypted_content":"KEEP-TOKEN"}]}`, Usage{}},
		{"/v1/chat/completions", `{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"TOKEN","reasoning_content":"KEEP-TOKEN","tool_calls":[{"id":"KEEP-TOKEN","type":"function","function":{"name":"f","arguments":"{\"a\":\"TOKEN\"}"}}]},"finish_reason":"tool_calls","logprobs":{"x":"KEEP-TOKEN"}}],"usage":{"prompt_tokens":5,"completion_tokens":6}}`,
			Usage{Model: "m", Input: 5, Output: 6, StopReason: "tool_calls", ToolNames: []string{"f"}}},
		{"/v1/embeddings", `{"data":[{"embedding":[0.10,-1e-5],"x":"KEEP-TOKEN"}],"usage":{"prompt_tokens":5}}`, Usage{Input: 5}},
		{"/v1/models", `{"data":[{"id":"KEEP-TOKEN","display_name":"KEEP-TOKEN"}]}`, Usage{}},
		{"/v1beta/models/g:generateContent", `{"candidates":[{"content":{"role":"model","parts":[{"text":"KEEP-TOKEN","thought":true},{"text":"TOKEN"},{"functionCall":{"name":"f","args":{"a":["TOKEN"]}},"thoughtSignature":"KEEP-TOKEN"}]},"finishReason":"STOP","citationMetadata":{"x":"KEEP-TOKEN"}}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":6,"thoughtsTokenCount":7,"cachedContentTokenCount":1},"modelVersion":"g"}`,
			Usage{Model: "g", Input: 5, Output: 13, CacheRead: 1, Reasoning: 7, StopReason: "STOP", ToolNames: []string{"f"}}},
		{"/v1beta/models/g:streamGenerateContent", `[{"candidates":[{"content":{"parts":[{"text":"TOKEN"}]}}]},{"candidates":[{"finishReason":"SAFETY"}],"modelVersion":"g"}]`, Usage{Model: "g", StopReason: "SAFETY"}},
		{"/v1beta/models/g:generateContent", `{"promptFeedback":{"blockReason":"SAFETY"}}`, Usage{StopReason: "SAFETY"}},
		{"/v1beta/models/g:generateContent", `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}`, Usage{Error: "RESOURCE_EXHAUSTED"}},
	} {
		in := strings.ReplaceAll(c.in, "TOKEN", token)
		want := strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(in, "KEEP-"+token, "\x00"), token, "hunter2"), "\x00", "KEEP-"+token)
		method := map[bool]string{true: "GET", false: "POST"}[c.path == "/v1/models"]
		got, u, err := Restore(recognised(t, method, c.path), []byte(in), show)
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s", c.path, err, firstDifference(string(got), want))
		}
		if (u.TextBytes > 0) != strings.Contains(strings.ReplaceAll(c.in, "KEEP-TOKEN", ""), "TOKEN") {
			t.Errorf("%s: %d bytes of text", c.path, u.TextBytes)
		}
		u.TextBytes = 0
		if fmt.Sprintf("%+v", u) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s\n got %+v\nwant %+v", c.path, u, c.want)
		}
	}
}

// TestBatchResults restores the lines of a batch's results.
func TestBatchResults(t *testing.T) {
	e := recognised(t, "GET", "/v1/messages/batches/b1/results")
	line := `{"custom_id":"c","result":{"type":"succeeded","message":{"model":"m","content":[{"type":"text","text":"%s"}],"usage":{"input_tokens":2,"output_tokens":3}}}}`
	in := fmt.Sprintf(line+"\r\n"+line+"\n", token, "x") + `{"custom_id":"d","result":{"type":"errored","error":{"type":"error"}}}`
	got, u, err := Restore(e, []byte(in), show)
	if want := strings.ReplaceAll(in, token, "hunter2"); err != nil || string(got) != want || u.Input != 4 || u.Output != 6 {
		t.Errorf("%v %+v\n%s", err, u, got)
	}
	if _, _, err := Restore(e, []byte("{}\nnot json\n"), show); !errors.Is(err, ErrUnreadable) {
		t.Error(err)
	}
}

// TestRecognise checks the endpoints, and that all others are refused.
func TestRecognise(t *testing.T) {
	for _, c := range []struct {
		request string
		want    string
	}{
		{"POST /v1/messages", "anthropic generate"}, {"POST /v1/messages?beta=true", "anthropic generate"}, {"POST /v1/messages/count_tokens", "anthropic count-tokens"},
		{"GET /v1/models", "anthropic models"}, {"GET /v1/models/claude-x", "anthropic models"}, {"GET /v1/models?limit=1000", "anthropic models"},
		{"POST /v1/messages/batches", "anthropic batches"}, {"GET /v1/messages/batches/b/results", "anthropic batches lines"}, {"POST /v1/messages/batches/b/cancel", "anthropic batches"},
		{"POST /v1/files", "anthropic files opaque"}, {"GET /v1/files/f/content", "anthropic files opaque"}, {"DELETE /v1/files/f", "anthropic files opaque"},
		{"POST /v1/responses", "openai-responses generate"}, {"POST /backend-api/codex/responses", "openai-responses generate"}, {"POST /v1/responses/compact", "openai-responses compact"},
		{"POST /v1/responses/input_tokens", "openai-responses count-tokens"}, {"GET /v1/responses/resp_1", "openai-responses stored"}, {"GET /v1/responses/resp_1?stream=true", "openai-responses stored streams"},
		{"GET /v1/responses/resp_1/input_items", "openai-responses stored"}, {"POST /v1/responses/resp_1/cancel", "openai-responses stored"},
		{"POST /v1/chat/completions", "openai-chat generate"}, {"POST /chat/completions", "openai-chat generate"}, {"POST /api/v1/chat/completions", "openai-chat generate"}, {"POST /v1beta/openai/chat/completions", "openai-chat generate"},
		{"POST /v1/embeddings", "openai-chat embed"}, {"POST /v1/batches", "openai-chat batches"}, {"GET /v1/batches/b", "openai-chat batches"},
		{"POST /v1beta/models/gemini-x:generateContent", "gemini generate gemini-x"}, {"POST /v1/models/gemini-x:generateContent?key=k", "gemini generate gemini-x"},
		{"POST /v1beta/models/g:streamGenerateContent?alt=sse", "gemini generate g streams"}, {"POST /v1beta/models/g:streamGenerateContent", "gemini generate g streams array"},
		{"POST /v1beta/models/g:countTokens", "gemini count-tokens g"}, {"POST /v1beta/models/g:embedContent", "gemini embed g"}, {"POST /v1beta/models/g:batchEmbedContents", "gemini embed g"},
		{"POST /v1beta/tunedModels/g:generateContent", "gemini generate g"}, {"GET /v1beta/models", "gemini models"},
		{"GET /v1/messages", ""}, {"POST /v1/complete", ""}, {"POST /v1/completions", ""}, {"POST /v1/images/generations", ""}, {"POST /v1/audio/speech", ""}, {"GET /v1/responses", ""},
		{"POST /v1/messages/../files", ""}, {"POST /v1//messages", ""}, {"POST /v1/%6dessages", ""}, {"POST /v1/messages/x", ""}, {"POST /", ""}, {"POST ", ""}, {"POST v1/messages", ""},
		{"POST /v2/messages", ""}, {"POST /x/v1/messages", ""}, {"POST /v1/MESSAGES", ""}, {"POST /v1beta/models/g:predict", ""}, {"POST /v1beta/models/a/b:generateContent", ""}, {"POST /v1beta/models/:generateContent", ""},
		{"POST /v1beta/models/g:streamGenerateContent?alt=proto", ""}, {"POST /v1beta/models/g:streamGenerateContent?alt=sse&alt=json", ""}, {"POST /v1beta/models/g:streamGenerateContent?alt=%zz", ""},
		{"POST /v1beta/cachedContents", ""}, {"POST /v1beta/messages", ""}, {"PUT /v1/messages", ""}, {"POST /v1/models", ""}, {"POST /v1/conversations", ""}, {"CONNECT /v1/messages", ""},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		e, ok := Recognise(method, path)
		got := strings.Join(strings.Fields(fmt.Sprint(e.Dialect, " ", e.Operation, " ", e.Model, flags(e))), " ")
		if !ok {
			got = ""
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.request, got, c.want)
		}
	}
}

func flags(e Endpoint) (s string) {
	for name, set := range map[string]bool{"streams": e.Streams, "lines": e.Lines, "opaque": e.Opaque} {
		if set {
			s += " " + name
		}
	}
	if e.Array {
		s += " array"
	}
	return s
}

// TestErrorBody checks the shapes of errors.
func TestErrorBody(t *testing.T) {
	for _, c := range []struct {
		dialect Dialect
		status  int
		kind    string
		want    string
	}{
		{Anthropic, 429, "billing_error", `{"type":"error","error":{"type":"billing_error","message":"a \"b\"\n"}}`},
		{Anthropic, 529, "", `{"type":"error","error":{"type":"overloaded_error","message":"a \"b\"\n"}}`},
		{Anthropic, 413, "", `{"type":"error","error":{"type":"request_too_large","message":"a \"b\"\n"}}`},
		{OpenAIChat, 429, "insufficient_quota", `{"error":{"message":"a \"b\"\n","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`},
		{OpenAIResponses, 400, "", `{"error":{"message":"a \"b\"\n","type":"invalid_request_error","param":null,"code":null}}`},
		{Gemini, 429, "", `{"error":{"code":429,"message":"a \"b\"\n","status":"RESOURCE_EXHAUSTED"}}`},
	} {
		if got := string(ErrorBody(c.dialect, c.status, c.kind, "a \"b\"\n")); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.dialect, got, c.want)
		}
	}
	for _, d := range []Dialect{Anthropic, OpenAIChat, OpenAIResponses, Gemini} {
		for status := 400; status < 600; status++ {
			body := ErrorBody(d, status, "", "m")
			if _, u, err := Restore(endpointOf(d), body, show); !json.Valid(body) || err != nil || u.Error == "" {
				t.Fatalf("%s %d: %s %+v %v", d, status, body, u, err)
			}
		}
	}
}
