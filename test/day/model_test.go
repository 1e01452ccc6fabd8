//go:build linux

package day

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait: for the agent's next word, for a gateway to be gone.
const patience = 40 * time.Second

// A model is the far end of the agent's conversation: it answers /v1/messages as the API does, says what
// the story has it say, and hands over what the agent sent back.
type model struct {
	url   string
	heard chan turn  // what the agent sends, one for each request of its conversation
	says  chan reply // what the model answers it

	mu   sync.Mutex
	last string // id of the tool call whose result was answered last
	said reply  // with what: a client that asks again gets the same answer
}

// turn is what the agent sent: the tools it offers, and the result of the call before.
type turn struct {
	tools  []string
	answer answer
}

// answer is what came of one call, as the model sees it.
type answer struct {
	text string
	bad  bool
}

// reply is what the model says: words, or the wish to call a tool.
type reply struct {
	id, text, tool string
	input          map[string]any
}

func newModel(t *testing.T) *model {
	m := &model{heard: make(chan turn), says: make(chan reply)}
	server := httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(server.CloseClientConnections)
	m.url = server.URL
	return m
}

// message is what is read of a request to /v1/messages.
type message struct {
	Stream bool                    `json:"stream"`
	Tools  []struct{ Name string } `json:"tools"`
	Said   []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

func (m *model) serve(w http.ResponseWriter, r *http.Request) {
	var got message
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/v1/messages") || json.Unmarshal(body, &got) != nil {
		http.Error(w, `{"type":"error","error":{"type":"not_found_error","message":"not here"}}`, http.StatusNotFound)
		return
	}
	say := reply{text: "nothing to add"}
	if now, id, ok := got.turn(); ok {
		if say, ok = m.converse(r, now, id); !ok {
			return
		}
	}
	if got.Stream {
		stream(w, say)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(envelope([]any{map[string]any{"type": "text", "text": say.text}}, "end_turn"))
}

// converse passes a turn to the story and waits for what it wants said.
func (m *model) converse(r *http.Request, now turn, id string) (reply, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id != "" && id == m.last {
		return m.said, true
	}
	select {
	case m.heard <- now:
	case <-r.Context().Done():
		return reply{}, false
	}
	select {
	case m.said = <-m.says:
		m.last = id
		return m.said, true
	case <-r.Context().Done():
		return reply{}, false
	}
}

// turn reads a request of the agent's main conversation: the one that offers Bailey's tools. Others (a
// title for the session, say) are none of the story's.
func (got message) turn() (now turn, id string, ok bool) {
	for _, tool := range got.Tools {
		now.tools = append(now.tools, tool.Name)
		ok = ok || strings.HasPrefix(tool.Name, prefix)
	}
	if !ok {
		return turn{}, "", false
	}
	for _, said := range got.Said { // the last result counts: reminders of the client's own may follow it
		var blocks []struct {
			Type    string          `json:"type"`
			ID      string          `json:"tool_use_id"`
			Content json.RawMessage `json:"content"`
			Bad     bool            `json:"is_error"`
		}
		json.Unmarshal(said.Content, &blocks) // a plain text is no list and has no result
		for _, b := range blocks {
			if b.Type == "tool_result" {
				now.answer, id = answer{text: plain(b.Content), bad: b.Bad}, b.ID
			}
		}
	}
	return now, id, true
}

// plain joins the texts of a tool's result.
func plain(content json.RawMessage) string {
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

func envelope(content []any, why any) map[string]any {
	return map[string]any{"id": "msg_day", "type": "message", "role": "assistant", "model": "scripted", "content": content,
		"stop_reason": why, "stop_sequence": nil, "usage": map[string]int{"input_tokens": 1, "output_tokens": 1}}
}

// stream says a reply in the events of the streaming API.
func stream(w http.ResponseWriter, say reply) {
	w.Header().Set("Content-Type", "text/event-stream")
	block, delta, why := map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": say.text}, "end_turn"
	if say.tool != "" {
		input, _ := json.Marshal(say.input)
		block = map[string]any{"type": "tool_use", "id": say.id, "name": say.tool, "input": map[string]any{}}
		delta, why = map[string]any{"type": "input_json_delta", "partial_json": string(input)}, "tool_use"
	}
	for _, e := range []map[string]any{
		{"type": "message_start", "message": envelope([]any{}, nil)},
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
