package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"bailey"
)

// What init writes into a file of Claude Code, and where it may stand there.
const (
	serversKey = "mcpServers"
	serverName = "bailey"
)

// added says how much of a file is ours; undoing takes that much away.
type added string

const (
	addedFile    added = "file"    // there was no file
	addedServers added = "servers" // there was no mcpServers in it
	addedServer  added = "server"  // the one entry
)

// serverEntry is how Claude Code starts this program.
func serverEntry(command string) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.Encode(struct { // strings and lists have a JSON form
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
	}{command, []string{"serve"}, map[string]string{}})
	return bytes.TrimSpace(out.Bytes())
}

// addServer returns old with the entry in it and nothing else touched; old nil is a file that is not
// there. The same entry already there is old itself and "".
func addServer(old []byte, entry json.RawMessage) ([]byte, added, error) {
	if old == nil {
		text, err := json.MarshalIndent(map[string]any{serversKey: map[string]any{serverName: entry}}, "", "  ")
		return append(text, '\n'), addedFile, err
	}
	top, servers, err := findServers(old)
	if err != nil {
		return nil, "", err
	}
	if servers == nil {
		whole := json.RawMessage(fmt.Sprintf("{%q:%s}", serverName, entry))
		return top.insert(old, serversKey, whole), addedServers, nil
	}
	have, ok := servers.find(serverName)
	switch {
	case !ok:
		return servers.insert(old, serverName, entry), addedServer, nil
	case sameJSON(have.text(old), entry):
		return old, "", nil
	}
	return nil, "", &bailey.Error{Kind: bailey.Conflict, Message: "it has a server named " + serverName + " already, and another one",
		Hint: "bailey init --claude-code --undo removes it if init wrote it; otherwise remove it by hand, then init again"}
}

// removeServer returns old without what was added; nil means without the file.
func removeServer(old []byte, entry json.RawMessage, what added) ([]byte, error) {
	_, servers, err := findServers(old)
	if err != nil {
		return nil, err
	}
	if servers == nil {
		return nil, gone()
	}
	have, ok := servers.find(serverName)
	switch {
	case !ok:
		return nil, gone()
	case !sameJSON(have.text(old), entry):
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: "the server " + serverName + " in it is no longer what init wrote", Hint: "remove it by hand"}
	}
	now := servers.remove(old, serverName)
	top, servers, err := findServers(now)
	if err != nil || servers == nil || len(servers.members) > 0 || what == addedServer {
		return now, err
	}
	if now = top.remove(now, serversKey); what == addedFile && len(top.members) == 1 {
		return nil, nil
	}
	return now, nil
}

func gone() error {
	return &bailey.Error{Kind: bailey.NotFound, Message: "it has no server named " + serverName, Hint: "there is nothing to undo"}
}

func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// findServers returns the file's object and the one under mcpServers, nil when it has none.
func findServers(b []byte) (top, servers *object, err error) {
	start := len(b) - len(bytes.TrimLeft(b, " \t\r\n"))
	if !json.Valid(b) || b[start] != '{' {
		return nil, nil, malformed("it is not a JSON object")
	}
	if top, err = objectAt(b, start); err != nil {
		return nil, nil, err
	}
	if len(top.members) > 0 {
		lead := string(b[top.open+1 : top.members[0].name])
		if i := strings.LastIndexByte(lead, '\n'); i >= 0 && lead[i+1:] != "" {
			top.unit = lead[i+1:]
		}
	}
	m, ok := top.find(serversKey)
	if !ok {
		return top, nil, nil
	}
	if b[m.value] != '{' {
		return nil, nil, malformed(serversKey + " in it is not an object")
	}
	if servers, err = objectAt(b, m.value); err == nil {
		servers.unit = top.unit
	}
	return top, servers, err
}

func malformed(why string) error {
	return &bailey.Error{Kind: bailey.Invalid, Message: why, Hint: "correct the file, then init again; it was not touched"}
}

// object is where a JSON object stands in a text: offsets in bytes.
type object struct {
	open, close int    // of its braces
	unit        string // of indentation
	members     []member
}

type member struct {
	key             string
	name, value, to int // of the key's quote, the value, and behind it
}

func (m member) text(b []byte) []byte { return b[m.value:m.to] }

// objectAt reads the members of the object that begins at open; b is valid JSON.
func objectAt(b []byte, open int) (*object, error) {
	o := &object{open: open, unit: "  "}
	dec := json.NewDecoder(bytes.NewReader(b[open:]))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	for dec.More() {
		from := open + int(dec.InputOffset())
		m := member{name: from + bytes.IndexByte(b[from:], '"')}
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, err
		}
		m.key, _ = key.(string)
		m.to = open + int(dec.InputOffset())
		m.value = m.to - len(raw)
		if _, twice := o.find(m.key); twice && (m.key == serversKey || m.key == serverName) {
			return nil, malformed(fmt.Sprintf("it has %q twice", m.key))
		}
		o.members = append(o.members, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	o.close = open + int(dec.InputOffset()) - 1
	return o, nil
}

func (o *object) find(key string) (member, bool) {
	i := slices.IndexFunc(o.members, func(m member) bool { return m.key == key })
	if i < 0 {
		return member{}, false
	}
	return o.members[i], true
}

// insert adds a member at the end, in the manner of those before it: a line each, or all on one. Undone
// by remove, byte for byte.
func (o *object) insert(b []byte, key string, value json.RawMessage) []byte {
	at, comma, lead := o.open+1, "", ""
	if n := len(o.members); n > 0 {
		at, comma, lead = o.members[n-1].to, ",", string(b[o.open+1:o.members[0].name])
	} else if space := string(b[o.open+1 : o.close]); strings.Contains(space, "\n") {
		lead = strings.TrimRight(space, " \t") + space[strings.LastIndexByte(space, '\n')+1:] + o.unit
	}
	text := fmt.Sprintf("%q:%s", key, value)
	if i := strings.LastIndexByte(lead, '\n'); i >= 0 {
		var pretty bytes.Buffer
		if json.Indent(&pretty, value, lead[i+1:], o.unit) == nil {
			text = fmt.Sprintf("%q: %s", key, &pretty)
		}
	}
	return slices.Concat(b[:at], []byte(comma+lead+text), b[at:])
}

// remove takes a member away, and the comma and space that came with it.
func (o *object) remove(b []byte, key string) []byte {
	i := slices.IndexFunc(o.members, func(m member) bool { return m.key == key })
	from, to := o.open+1, o.members[i].to
	switch {
	case i > 0:
		from = o.members[i-1].to
	case len(o.members) > 1:
		from, to = o.members[0].name, o.members[1].name
	}
	return slices.Concat(b[:from], b[to:])
}
