// Package scripted is a model for tests of agents. It answers the Messages API
// (https://docs.anthropic.com/en/api/messages) like the real one, with replies that the test provides.
package scripted

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Model is the other end of one agent's conversation.
type Model struct {
	// Prefix is the start of a tool name. A request counts as a turn of the conversation only if it offers such a tool.
	// Agents send other requests, for example for a title of the session, which get a fixed reply.
	Prefix string
	// Say returns the model's reply to a turn, or false if the agent has ended. It is called for one turn after the
	// other, and only once if the agent sends a turn again.
	Say func(context.Context, Turn) (Reply, bool)

	mu   sync.Mutex
	last string // id of the tool call whose result was answered last
	said Reply
}

// Turn holds the data that the agent sent: the tools it offers, and the result of the last call.
type Turn struct {
	Tools  []string
	Answer Answer
}

// Answer is the result of one call, as the model sees it. In the first turn it has the zero value.
type Answer struct {
	ID, Text string
	Bad      bool
}

// Reply is the model's reply: a text, or a tool call if Tool is set.
type Reply struct {
	ID, Text, Tool string
	Input          map[string]any
}

// message holds the fields of a request that are used.
type message struct {
	Stream bool                    `json:"stream"`
	Tools  []struct{ Name string } `json:"tools"`
	Said   []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var got message
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/v1/messages") || json.Unmarshal(body, &got) != nil {
		http.Error(w, `{"type":"error","error":{"type":"not_found_error","message":"not here"}}`, http.StatusNotFound)
		return
	}
	say := Reply{Text: "nothing to add"}
	if now, ok := got.parseTurn(m.Prefix); ok {
		if say, ok = m.replyTo(r.Context(), now); !ok {
			return
		}
	}
	if got.Stream {
		streamReply(w, say)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(messageJSON([]any{map[string]any{"type": "text", "text": say.Text}}, "end_turn"))
}

func (m *Model) replyTo(ctx context.Context, now Turn) (Reply, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id := now.Answer.ID; id != "" && id == m.last {
		return m.said, true
	}
	said, ok := m.Say(ctx, now)
	if ok {
		m.last, m.said = now.Answer.ID, said
	}
	return said, ok
}

func (got message) parseTurn(prefix string) (now Turn, ok bool) {
	for _, tool := range got.Tools {
		now.Tools = append(now.Tools, tool.Name)
		ok = ok || strings.HasPrefix(tool.Name, prefix)
	}
	if !ok {
		return Turn{}, false
	}
	for _, said := range got.Said { // the last result counts; reminders of the client may follow it
		var blocks []struct {
			Type    string          `json:"type"`
			ID      string          `json:"tool_use_id"`
			Content json.RawMessage `json:"content"`
			Bad     bool            `json:"is_error"`
		}
		json.Unmarshal(said.Content, &blocks) // fails if the content is a plain text, which contains no result
		for _, b := range blocks {
			if b.Type == "tool_result" {
				now.Answer = Answer{ID: b.ID, Text: Plain(b.Content), Bad: b.Bad}
			}
		}
	}
	return now, true
}

// Plain joins the texts of a tool's result.
func Plain(content json.RawMessage) string {
	var one string
	if json.Unmarshal(content, &one) == nil {
		return one
	}
	var blocks []struct{ Text string }
	json.Unmarshal(content, &blocks)
	var texts []string
	for _, b := range blocks {
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "\n")
}

func messageJSON(content []any, why any) map[string]any {
	return map[string]any{"id": "msg_scripted", "type": "message", "role": "assistant", "model": "scripted", "content": content,
		"stop_reason": why, "stop_sequence": nil, "usage": map[string]int{"input_tokens": 1, "output_tokens": 1}}
}

// streamReply sends a reply as events of the streaming API.
func streamReply(w http.ResponseWriter, say Reply) {
	w.Header().Set("Content-Type", "text/event-stream")
	block, delta, why := map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": say.Text}, "end_turn"
	if say.Tool != "" {
		input, _ := json.Marshal(say.Input)
		block = map[string]any{"type": "tool_use", "id": say.ID, "name": say.Tool, "input": map[string]any{}}
		delta, why = map[string]any{"type": "input_json_delta", "partial_json": string(input)}, "tool_use"
	}
	for _, e := range []map[string]any{
		{"type": "message_start", "message": messageJSON([]any{}, nil)},
		{"type": "content_block_start", "index": 0, "content_block": block},
		{"type": "content_block_delta", "index": 0, "delta": delta},
		{"type": "content_block_stop", "index": 0},
		{"type": "message_delta", "delta": map[string]any{"stop_reason": why, "stop_sequence": nil}, "usage": map[string]int{"output_tokens": 1}},
		{"type": "message_stop"},
	} {
		b, _ := json.Marshal(e)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], b)
	}
}
