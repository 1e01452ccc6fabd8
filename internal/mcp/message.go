package mcp

import (
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// message is either a request or notification in the form of the SDK, or an answer, which counts only if the server
// asked ([conn.dropUnsolicited]). The zero message is neither, and is dropped.
type message struct {
	*jsonrpc.Request
	answer *jsonrpc.Response
	size   int
}

func (m message) needsResponse() bool { return m.Request != nil && m.IsCall() }

// parseMessage checks the envelope of a message by exact keys, then lets the SDK parse it. With a struct, encoding/json would
// accept "ID" for "id", but the SDK does not. raw must have passed strict.
func parseMessage(raw []byte) (message, error) {
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

// parseBatch parses an array of messages. raw must have passed strict.
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
		m, err = parseMessage(raws[i])
		all = append(all, m)
	}
	return all, err
}

// parseAnswer parses an answer. It returns the zero message for an invalid one, because no request waits for it.
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

// hasBatches reports whether a revision has batches, which 2025-06-18 removed. A client that names no revision may use
// any.
func hasBatches(revision string) bool { return revision < "2025-06-18" }
