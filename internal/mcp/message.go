package mcp

import (
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// message is a request or notification as the SDK reads it; the zero one is an answer to something we
// never asked, and is dropped.
type message struct {
	*jsonrpc.Request
	size int
}

func (m message) call() bool { return m.Request != nil && m.IsCall() }

// known drops the zero messages.
func known(msgs ...message) (out []jsonrpc.Message) {
	for _, m := range msgs {
		if m.Request != nil {
			out = append(out, m.Request)
		}
	}
	return out
}

// parse checks a message's envelope by exact keys (encoding/json into a struct would take "ID" for "id"
// where the SDK does not) and then lets the SDK read it. raw has passed strict.
func parse(raw []byte) (message, error) {
	var env map[string]json.RawMessage
	if json.Unmarshal(raw, &env) != nil || env == nil {
		return message{}, errors.New("the message is not an object")
	}
	var version, method string
	if json.Unmarshal(env["jsonrpc"], &version) != nil || version != "2.0" {
		return message{}, errors.New(`the message does not say "jsonrpc": "2.0"`)
	}
	id, hasID := env["id"]
	if _, ok := parseID(id); hasID && !ok {
		return message{}, errors.New("the id is neither a string of at most 256 bytes nor an integer of at most 53 bits")
	}
	if _, ok := env["method"]; !ok {
		if env["result"] == nil && env["error"] == nil {
			return message{}, errors.New("the message has neither method nor result")
		}
		return message{}, nil
	}
	if json.Unmarshal(env["method"], &method) != nil || string(env["method"]) == "null" {
		return message{}, errors.New("the method is not a string")
	}
	msg, err := jsonrpc.DecodeMessage(raw)
	req, ok := msg.(*jsonrpc.Request)
	if err != nil || !ok || req.Method != method || req.IsCall() != hasID {
		return message{}, errors.New("the message is not a JSON-RPC request")
	}
	return message{Request: req, size: len(raw)}, nil
}
