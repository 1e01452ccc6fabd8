package mcp

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// FuzzServe sends any bytes and checks that Serve does not fail or hang, that each line of its answer is JSON, and that
// the gate gets only calls with a bounded, printable name.
func FuzzServe(f *testing.F) {
	hello := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n"
	for _, s := range []string{
		"", "\n", "garbage\n", hello, hello + `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		hello + `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"x"}}}`,
		hello + `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"eA"}}`,
		hello + `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
		hello + `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}]`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","inputResponses":{"x":{"roots":1}},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g := yard()
		out := &sink{}
		done := make(chan error, 1)
		go func() { done <- Serve(context.Background(), config(g), stream{strings.NewReader(string(data)), out}) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("Serve stays")
		}
		for line := range strings.Lines(out.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("answered %q", line)
			}
		}
		for _, c := range g.got() {
			if id := string(c.Capability); len(id) > 128 || printableText(id, 128) != id || c.Input == nil || c.Door != "mcp" || len(c.Client) > 128 {
				t.Errorf("the gate saw %+v", c)
			}
		}
	})
}

// sink keeps the output. conn writes one line at a time, and sink is read after Serve has ended.
type sink struct{ strings.Builder }

// stream reads from one source and writes to another.
type stream struct {
	io.Reader
	io.Writer
}

func (stream) Close() error { return nil }
