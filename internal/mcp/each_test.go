package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"bailey"
)

// hostsGate has a tool that can be called for several hosts. The host web3 fails.
func hostsGate() *gate {
	g := yard()
	g.tools = append(g.tools, Tool{ID: "source.run", Description: "runs",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"host":{"type":"string"},"command":{"type":"string"}},"required":["host","command"],"additionalProperties":false}`),
		Each: &Each{Input: "host", List: "hosts", About: "several hosts", Expand: func(names []string) ([]string, error) {
			switch names[0] {
			case "env=test":
				return []string{"web1", "web2", "web3"}, nil
			case "env=all":
				return make([]string, maxEach+1), nil
			case "env=none":
				return nil, errors.New("no prepared host has the label")
			}
			return names, nil
		}}})
	g.do["source.run"] = func(_ context.Context, c bailey.Call) bailey.Result {
		host, _ := c.Input["host"].(string)
		if _, left := c.Input["hosts"]; left || host == "web3" || c.Patience != 0 {
			return bailey.Result{Receipt: "r-bad", Status: bailey.Refused, Err: bailey.Denied.New("not for "+host, ""),
				Decision: bailey.Decision{Reason: "forbidden"}}
		}
		return bailey.Result{Receipt: bailey.ReceiptID("r-" + host), Status: bailey.OK, Executed: true, Stdout: []byte("up " + host),
			Decision: bailey.Decision{Effect: bailey.Allow}}
	}
	return g
}

// TestEach checks that a list becomes one call for each value, each with its own receipt, and that their answers stand in
// the order of the values.
func TestEach(t *testing.T) {
	g := hostsGate()
	w := dial(t, g)
	w.hello("2025-06-18")
	list := w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if !strings.Contains(list, `"hosts":{"description":"several hosts"`) || !strings.Contains(list, `"required":["command"]`) {
		t.Errorf("the tool is listed as %s", list)
	}
	call := func(arguments string) string {
		return w.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"source_run","arguments":` + arguments + `}}`)
	}
	got := call(`{"hosts":["web2","web1"],"command":"uptime"}`)
	for _, part := range []string{`"text":"== web2"},{"type":"text","text":"up web2"},{"type":"text","text":"== web1"},{"type":"text","text":"up web1"}`,
		`"receiptId":"r-web2"`, `"receiptId":"r-web1"`} {
		if !strings.Contains(got, part) || strings.Contains(got, `"isError":true`) {
			t.Errorf("lacks %s: %s", part, got)
		}
	}
	if got := call(`{"hosts":["env=test"],"command":"uptime"}`); !strings.Contains(got, `"isError":true`) || !strings.Contains(got, "up web1") || !strings.Contains(got, "not for web3") {
		t.Errorf("one of three fails: %s", got)
	}
	if n := len(g.got()); n != 5 {
		t.Errorf("%d calls, want 5", n)
	}
	for arguments, says := range map[string]string{
		`{"hosts":["env=none"],"command":"x"}`:           "no prepared host has the label",
		`{"hosts":["env=all"],"command":"x"}`:            "33 values, more than 32",
		`{"hosts":[],"command":"x"}`:                     "give either host, or hosts",
		`{"hosts":"web1","command":"x"}`:                 "give either host, or hosts",
		`{"hosts":[1],"command":"x"}`:                    "must be a list of names",
		`{"hosts":["web1"],"host":"web1","command":"x"}`: "give either host, or hosts",
	} {
		if got := call(arguments); !strings.Contains(got, says) {
			t.Errorf("%s: %s", arguments, got)
		}
	}
	if got := call(`{"host":"web1","command":"uptime"}`); !strings.Contains(got, "not for web1") { // its patience is not 0
		t.Errorf("one host: %s", got)
	}
	if n := len(g.got()); n != 6 {
		t.Errorf("%d calls, want 6", n)
	}
}
