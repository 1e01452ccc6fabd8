package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"bailey"
)

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
			"use what JSON has: text, numbers, booleans, lists, maps")
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
		return nil, t.errorAt(root.at, fmt.Sprintf("hook_event_name is %.64q, which is no event", name),
			"the events are "+joinNames(Names()))
	}
	for _, key := range needs {
		if !root.hasMember(key) {
			return nil, t.errorAt(root.at, fmt.Sprintf("a frame of %s has the key %s, and this one has not", name, key),
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
