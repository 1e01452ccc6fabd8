package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"bailey"
)

// Name is the name of one of the six events in the protocol.
type Name string

const (
	OnUserPromptSubmit       Name = "UserPromptSubmit"       // a person's prompt is about to go to the model
	OnAssistantMessageRender Name = "AssistantMessageRender" // the model's message is about to be shown
	OnPreToolUse             Name = "PreToolUse"             // policy allowed a call, and no person was asked about it yet
	OnPostToolUse            Name = "PostToolUse"            // a call has ended
	OnSessionStart           Name = "SessionStart"
	OnSessionEnd             Name = "SessionEnd"
)

// Names returns the names of all events.
func Names() []Name {
	return []Name{OnUserPromptSubmit, OnAssistantMessageRender, OnPreToolUse, OnPostToolUse, OnSessionStart,
		OnSessionEnd}
}

// Blocks reports whether exit code 2 of a hook blocks the event. If not, that code is a soft failure.
func (n Name) Blocks() bool { return n == OnUserPromptSubmit || n == OnPreToolUse }

// Tool reports whether the event belongs to a tool, so that a matcher can apply.
func (n Name) Tool() bool { return n == OnPreToolUse || n == OnPostToolUse }

// Event is the subject of a hook: one of the six types below, never nil.
type Event interface {
	Name() Name
	In() Session
	// with returns the event with its text, input or output replaced.
	withUpdate(updated any) (Event, bool)
}

// Session is the session of an event. Every event has one.
type Session struct {
	ID  bailey.SessionID
	Dir string // the client's working directory
}

func (s Session) In() Session { return s }

// UserPromptSubmit may change the prompt, and block it.
type UserPromptSubmit struct {
	Session
	Prompt string
}

// AssistantMessageRender may change the displayed message.
type AssistantMessageRender struct {
	Session
	Content string
}

// PreToolUse may change the tool's input, and block the call. A changed input is checked and decided again.
type PreToolUse struct {
	Session
	ToolName  string
	ToolInput map[string]any // decoded JSON; numbers as json.Number
}

// PostToolUse may change the tool's result. A changed result is redacted again.
type PostToolUse struct {
	Session
	ToolName   string
	ToolInput  map[string]any
	ToolResult any // decoded JSON; numbers as json.Number
	IsError    bool
}

// SessionStart and SessionEnd have no content that could be changed.
type (
	SessionStart struct{ Session }
	SessionEnd   struct{ Session }
)

func (UserPromptSubmit) Name() Name       { return OnUserPromptSubmit }
func (AssistantMessageRender) Name() Name { return OnAssistantMessageRender }
func (PreToolUse) Name() Name             { return OnPreToolUse }
func (PostToolUse) Name() Name            { return OnPostToolUse }
func (SessionStart) Name() Name           { return OnSessionStart }
func (SessionEnd) Name() Name             { return OnSessionEnd }

func (e UserPromptSubmit) withUpdate(u any) (Event, bool) {
	s, ok := u.(string)
	e.Prompt = s
	return e, ok
}

func (e AssistantMessageRender) withUpdate(u any) (Event, bool) {
	s, ok := u.(string)
	e.Content = s
	return e, ok
}

func (e PreToolUse) withUpdate(u any) (Event, bool) {
	m, ok := u.(map[string]any)
	e.ToolInput = m
	return e, ok && m != nil
}

func (e PostToolUse) withUpdate(u any) (Event, bool) {
	e.ToolResult = u
	return e, u != nil
}

func (e SessionStart) withUpdate(any) (Event, bool) { return e, false }
func (e SessionEnd) withUpdate(any) (Event, bool)   { return e, false }

// MaxFrame limits a frame in either direction, and hooks.json, in bytes. maxDepth limits the nesting of arrays and
// objects in them, and maxValues the number of values: in memory a value takes a hundred times its bytes in the text.
const (
	MaxFrame  = 1 << 20
	maxDepth  = 256
	maxValues = 1 << 16
)

// wireEvent has the keys of all events, in output order.
type wireEvent struct {
	Name       Name             `json:"hook_event_name"`
	Session    bailey.SessionID `json:"session_id"`
	Dir        string           `json:"cwd"`
	Prompt     *string          `json:"prompt,omitempty"`
	Content    *string          `json:"content,omitempty"`
	ToolName   *string          `json:"toolName,omitempty"`
	ToolInput  *map[string]any  `json:"toolInput,omitempty"`
	ToolResult *any             `json:"toolResult,omitempty"`
	IsError    *bool            `json:"isError,omitempty"`
}

// Encode returns the frame of an event: one line with its newline. Bytes that are not UTF-8 become U+FFFD.
func Encode(e Event) ([]byte, error) {
	w := wireEvent{Name: e.Name(), Session: e.In().ID, Dir: e.In().Dir}
	none := map[string]any{}
	switch e := e.(type) {
	case UserPromptSubmit:
		w.Prompt = &e.Prompt
	case AssistantMessageRender:
		w.Content = &e.Content
	case PreToolUse:
		w.ToolName, w.ToolInput = &e.ToolName, &e.ToolInput
		if e.ToolInput == nil {
			w.ToolInput = &none
		}
	case PostToolUse:
		w.ToolName, w.ToolInput, w.ToolResult, w.IsError = &e.ToolName, &e.ToolInput, &e.ToolResult, &e.IsError
		if e.ToolInput == nil {
			w.ToolInput = &none
		}
	}
	return encodeFrame(fmt.Sprintf("the frame of %s", e.Name()), w)
}

// encodeFrame refuses output that the other side would have to refuse.
func encodeFrame(what string, v any) ([]byte, error) {
	var b bytes.Buffer
	j := json.NewEncoder(&b)
	j.SetEscapeHTML(false)
	if err := j.Encode(v); err != nil {
		return nil, bailey.Invalid.Wrap(err, what+" cannot be written as JSON",
			"use only JSON values: text, numbers, booleans, lists, maps")
	}
	if _, _, err := parseObject(what, b.Bytes()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Decode parses the frame of an event. It ignores unknown keys.
func Decode(frame []byte) (Event, error) {
	t, root, err := parseObject("the frame", frame)
	if err != nil {
		return nil, err
	}
	var (
		s                         Session
		name, id                  string
		prompt, content, toolName string
		input                     map[string]any
		result                    any
		isError                   bool
	)
	err = t.readObject(root, "the frame", keyReaders{
		"hook_event_name": storeInto(t, &name, "a string"),
		"session_id":      storeInto(t, &id, "a string"),
		"cwd":             storeInto(t, &s.Dir, "a string"),
		"prompt":          storeInto(t, &prompt, "a string"),
		"content":         storeInto(t, &content, "a string"),
		"toolName":        storeInto(t, &toolName, "a string"),
		"toolInput":       storeInto(t, &input, "an object"),
		"toolResult":      func(n node) error { result = n.goValue(); return nil },
		"isError":         storeInto(t, &isError, "a boolean"),
	}, true)
	if err != nil {
		return nil, err
	}
	s.ID = bailey.SessionID(id)
	event, needs := map[Name]Event{
		OnUserPromptSubmit:       UserPromptSubmit{s, prompt},
		OnAssistantMessageRender: AssistantMessageRender{s, content},
		OnPreToolUse:             PreToolUse{s, toolName, input},
		OnPostToolUse:            PostToolUse{s, toolName, input, result, isError},
		OnSessionStart:           SessionStart{s},
		OnSessionEnd:             SessionEnd{s},
	}[Name(name)], requiredKeys[Name(name)]
	if event == nil {
		return nil, t.errorAt(root.at, fmt.Sprintf("hook_event_name is %.64q, which is not an event", name),
			"the events are "+joinNames(Names()))
	}
	for _, key := range needs {
		if !root.hasMember(key) {
			return nil, t.errorAt(root.at, fmt.Sprintf("a frame of %s must have the key %s, but this one does not", name, key),
				"add it")
		}
	}
	return event, nil
}

// requiredKeys lists the required keys of each event, without those of every frame.
var requiredKeys = map[Name][]string{
	OnUserPromptSubmit:       {"prompt"},
	OnAssistantMessageRender: {"content"},
	OnPreToolUse:             {"toolName", "toolInput"},
	OnPostToolUse:            {"toolName", "toolInput", "toolResult"},
}

func (n node) hasMember(key string) bool {
	for _, m := range n.members {
		if m.name == key {
			return true
		}
	}
	return false
}

func joinNames(names []Name) string {
	var list []string
	for _, n := range names {
		list = append(list, string(n))
	}
	return strings.Join(list, ", ")
}
