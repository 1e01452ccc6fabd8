package modelproxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/modelwire"
)

var assistantText = modelwire.Where{Kind: modelwire.Assistant}

// TestRender checks that hooks see each text of an answer once, redacted as the model wrote it, and that the client gets
// what they make of it, whole or in a stream, while thinking and the inputs of tools stay.
func TestRender(t *testing.T) {
	t.Parallel()
	var asked []string
	stream := false
	b := newBench(t, func(c *Config) {
		c.Render = func(context.Context, bailey.Call) func(string) string {
			return func(s string) string {
				asked = append(asked, s)
				return strings.ReplaceAll(s, "colour", "color") + " password=" + secret
			}
		}
	}, func(w http.ResponseWriter, _ *http.Request) {
		if !stream {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"content":[{"type":"thinking","thinking":"a colour"},{"type":"text","text":"the colour"},{"type":"tool_use","id":"t","name":"Write","input":{"content":"colour"}}]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, streamSays[0]+streamSays[1])
		for _, piece := range []string{"the co", "lo", "ur"} {
			io.WriteString(w, event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+piece+`"}}`))
		}
		io.WriteString(w, strings.Join(streamSays[3:], ""))
	})
	b.table.Learn("PASSWORD", secret)
	for _, stream = range []bool{false, true} {
		asked = nil
		body := plainAsk
		if stream {
			body = streamAsk
		}
		_, text := b.post(body, nil)
		if fmt.Sprint(asked) != "[the colour]" {
			t.Errorf("stream %v: the hooks were asked %q", stream, asked)
		}
		if !strings.Contains(text, "the color password=[REDACTED_PASSWORD_1]") || strings.Contains(text, secret) || strings.Contains(text, "the colour") {
			t.Errorf("stream %v: the client got %s", stream, text)
		}
		if !stream && (!strings.Contains(text, `"thinking":"a colour"`) || !strings.Contains(text, `{"content":"colour"}`)) {
			t.Errorf("the client got %s", text)
		}
	}
}

// TestRenderLong checks that a text that is too long for hooks passes, in a stream as in a copy of the whole.
func TestRenderLong(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, sayPlain)
	e := &replyEditor{table: b.table, render: func(string) string { return "short" }, rendered: map[string]string{}}
	for _, size := range []int{maxRender, maxRender + 1} {
		long, out := strings.Repeat("x", size), &strings.Builder{}
		w := e.Writer(assistantText, out)
		for i := 0; i < size; i += 1000 {
			io.WriteString(w, long[i:min(i+1000, size)])
		}
		if err := w.Close(); err != nil || out.String() != e.Text(assistantText, long) || (out.String() == "short") != (size == maxRender) {
			t.Errorf("%d bytes became %d, %v", size, out.Len(), err)
		}
	}
}
