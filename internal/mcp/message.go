package mcp

import (
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// message is a request or notification as the SDK reads it, or an answer, which counts if we asked ([conn.known]). The
// zero one is none of these, and is dropped.
type message struct {
	*jsonrpc.Request
	answer *jsonrpc.Response
	size   int
}

func (m message) call() bool { return m.Request != nil && m.IsCall() }

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
		return parseAnswer(raw, env), nil
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

// parseBatch reads an array of messages. raw has passed strict.
func parseBatch(raw []byte, allowed bool) (all []message, err error) {
	var raws []json.RawMessage
	err = json.Unmarshal(raw, &raws)
	switch {
	case err != nil:
	case !allowed:
		err = errors.New("a batch is not part of this revision of the protocol")
	case len(raws) == 0:
		err = errors.New("the batch is empty")
	}
	for i := 0; err == nil && i < len(raws); i++ {
		var m message
		m, err = parse(raws[i])
		all = append(all, m)
	}
	return all, err
}

// parseAnswer reads an answer. What is not exactly one is the zero message: nobody waits for that.
func parseAnswer(raw []byte, env map[string]json.RawMessage) message {
	if env["result"] != nil && env["error"] != nil || env["id"] == nil {
		return message{}
	}
	msg, err := jsonrpc.DecodeMessage(raw)
	r, ok := msg.(*jsonrpc.Response)
	if err != nil || !ok {
		return message{}
	}
	return message{answer: r, size: len(raw)}
}

// batches reports whether a revision has arrays of messages: they went with 2025-06-18. Who names none may speak any.
func batches(revision string) bool { return revision < "2025-06-18" }
