package modelproxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"bailey/internal/modelwire"
)

// TestPriceOf checks which price a model has: a date at the end of its name changes nothing, a longer name is another
// model, the settings come first, and an unknown model costs as much as the dearest.
func TestPriceOf(t *testing.T) {
	t.Parallel()
	own := []Price{{"mine-*", 1, 2, 3, 4}, {"claude-opus-4-5", 7, 7, 7, 7}}
	dearest := priceOf(nil, "unknown", "")
	for _, one := range []struct {
		asked, answered string
		input           float64
	}{
		{"claude-opus-4-1", "", 15}, {"claude-opus-4-1-20250805", "", 15}, {"claude-opus-4-1", "claude-opus-4-1-20250805", 15},
		{"claude-opus-4-5-20251101", "", 7}, {"claude-opus-4-5", "nonsense", 7}, {"mine-9", "", 1}, {"models/mine-9", "", 1},
		{"gpt-5-pro", "", dearest.Input}, {"gpt-5.9", "", dearest.Input}, {"", "", dearest.Input}, {"gpt-5-", "", dearest.Input},
		{"gpt-5-mini-2025-08-07", "", .25}, {"gpt-5-12", "", dearest.Input}, {"claude-haiku-4-5", "claude-opus-4-1", 15},
	} {
		if p := priceOf(own, one.asked, one.answered); p.Input != one.input {
			t.Errorf("%q, %q: %v, want %v", one.asked, one.answered, p.Input, one.input)
		}
	}
	if dearest.Output < 75 || dearest.CacheWrite < 18 {
		t.Errorf("the dearest is %+v", dearest)
	}
}

// TestCountUse checks tokens and prices: those of the provider, or those that the texts must have at least.
func TestCountUse(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Prices = func() []Price { return []Price{{"m", 1, 10, .5, 2}} } }, sayPlain)
	for _, one := range []struct {
		op              modelwire.Operation
		texts           int64
		u               modelwire.Usage
		in, cached, out int64
		estimated       bool
		price           int64
	}{
		{modelwire.Generate, 160, modelwire.Usage{Input: 100, CacheRead: 40, CacheWrite: 20, Output: 7, TextBytes: 20}, 40, 60, 7, false, 40 + 20 + 40 + 70},
		{modelwire.Generate, 1600, modelwire.Usage{TextBytes: 800}, 100, 0, 50, true, 600},
		{modelwire.Generate, 1600, modelwire.Usage{Input: 90, CacheRead: 90}, 10, 90, 0, true, 55},
		{modelwire.Generate, 0, modelwire.Usage{Input: -5, CacheRead: -1, Output: -1 << 62}, 0, 0, 0, false, 0},
		{modelwire.Generate, 0, modelwire.Usage{Input: 1 << 62, Output: 1 << 62}, maxTokens, 0, maxTokens, false, 11 * maxTokens},
		{modelwire.Embed, 160, modelwire.Usage{}, 10, 0, 0, true, 10},
		{modelwire.CountTokens, 160, modelwire.Usage{Input: 10}, 0, 0, 0, false, 0},
		{modelwire.Models, 0, modelwire.Usage{TextBytes: 1600}, 0, 0, 0, false, 0},
	} {
		x := &exchange{p: b.proxy, endpoint: modelwire.Endpoint{Operation: one.op}}
		x.sum.Model, x.sum.TextBytes = "m", one.texts
		x.countUse(one.u)
		if u := x.use; u.InputTokens != one.in || u.CachedTokens != one.cached || u.OutputTokens != one.out || u.Estimated != one.estimated || u.MicroUSD != one.price {
			t.Errorf("%s %+v: %+v", one.op, one.u, u)
		}
	}
}

// TestAttackNoUsage checks that a provider which reports no tokens, whole or in a stream, does not evade a budget.
func TestAttackNoUsage(t *testing.T) {
	t.Parallel()
	words := strings.Repeat("some words ", 100)
	stream := false
	b := newBench(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		if !stream {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"type":"message","content":[{"type":"text","text":"`+words+`"}],"usage":{"input_tokens":0,"output_tokens":0}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`))
		for _, word := range strings.SplitAfter(strings.TrimSpace(words), " ") {
			io.WriteString(w, event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+word+`"}}`))
		}
		io.WriteString(w, event("message_stop", `{"type":"message_stop"}`))
	})
	for _, stream = range []bool{false, true} {
		body := `{"model":"m","messages":[{"role":"user","content":"` + words + `"}]}`
		if stream {
			body = strings.Replace(body, "{", `{"stream":true,`, 1)
		}
		b.post(body, nil)
		if use := (<-b.uses).Model; use.InputTokens != 1100/16 || use.OutputTokens < 1098/16 || !use.Estimated || use.MicroUSD < 1000 {
			t.Errorf("stream %v: %+v", stream, use)
		}
	}
}
