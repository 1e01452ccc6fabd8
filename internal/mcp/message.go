package mcp

import (
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"bailey/internal/strictjson"
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
		return message{}, errors.New(`the message lacks "jsonrpc": "2.0"`)
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

// maxDepth limits the nesting of arrays and objects in a message.
const maxDepth = 64

// errSyntax means that the bytes are not JSON.
var errSyntax = errors.New("the line is not one JSON value in UTF-8")

// checkStrictJSON refuses JSON that two parsers could interpret differently, or that is too expensive.
func checkStrictJSON(data []byte) error {
	err := strictjson.Check(data, maxDepth)
	if errors.Is(err, strictjson.ErrSyntax) {
		return errSyntax
	}
	return err
}

// decodeArguments decodes the arguments of a tools/call. Missing arguments are an empty object.
func decodeArguments(raw json.RawMessage) (map[string]any, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return map[string]any{}, nil
	}
	if err := checkStrictJSON(raw); err != nil {
		return nil, err
	}
	var input map[string]any
	if err := strictjson.Decode(raw, &input); err != nil || input == nil {
		return nil, errors.New("the arguments are not an object")
	}
	return input, nil
}

// maxID limits the id of a request, in bytes of JSON.
const maxID = 256

// maxSafe is the largest integer that every JSON parser represents exactly (RFC 8259, section 6).
const maxSafe = 1<<53 - 1

// parseID parses the id of a request. MCP allows strings and integers, but not null.
func parseID(raw []byte) (id jsonrpc.ID, ok bool) {
	if len(raw) == 0 || len(raw) > maxID || !utf8.Valid(raw) {
		return id, false
	}
	if raw[0] == '"' {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return id, false
		}
		id, _ = jsonrpc.MakeID(s)
		return id, true
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n > maxSafe || n < -maxSafe || !json.Valid(raw) {
		return id, false
	}
	id, _ = jsonrpc.MakeID(float64(n))
	return id, true
}

// idFinder finds the member "id" of the outermost object in text that arrives in pieces and may be incomplete or invalid.
// With it the refusal of a message that was too long to keep can still contain its id.
type idFinder struct {
	depth           int
	quoted, escaped bool
	value           bool   // after the colon
	key             string // key of the current member
	text            []byte // current key or value, truncated
	id              []byte
	found           int
}

func (f *idFinder) Write(p []byte) (int, error) {
	for _, b := range p {
		f.scanByte(b)
	}
	return len(p), nil
}

func (f *idFinder) scanByte(b byte) {
	switch {
	case f.quoted:
		f.keepByte(b)
		f.quoted = f.escaped || b != '"'
		f.escaped = !f.escaped && b == '\\'
	case b == '"':
		f.quoted = true
		f.keepByte(b)
	case b == '{', b == '[':
		f.keepByte(b)
		f.depth++
	case b == '}', b == ']':
		if f.depth == 1 {
			f.endMember()
		}
		f.depth--
		f.keepByte(b)
	case f.depth == 1 && b == ':' && !f.value:
		f.key, f.text, f.value = string(f.text), nil, true
	case f.depth == 1 && b == ',':
		f.endMember()
	case b != ' ' && b != '\t' && b != '\r' && b != '\n':
		f.keepByte(b)
	}
}

func (f *idFinder) keepByte(b byte) {
	if f.depth == 1 && len(f.text) <= maxID {
		f.text = append(f.text, b)
	}
}

// endMember finishes the current member.
func (f *idFinder) endMember() {
	if f.value && f.key == `"id"` {
		f.found++
		f.id = f.text
	}
	f.key, f.text, f.value = "", nil, false
}

// ID returns the JSON of the id. It returns nil if there is no id, more than one, or an invalid one.
func (f *idFinder) ID() json.RawMessage {
	if _, ok := parseID(f.id); f.found != 1 || !ok {
		return nil
	}
	return f.id
}
