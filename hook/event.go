package hook

import (
	"bailey"
)

// Name is one of the six events, as the wire has it.
type Name string

const (
	OnUserPromptSubmit       Name = "UserPromptSubmit"       // a person's prompt is about to go to the model
	OnAssistantMessageRender Name = "AssistantMessageRender" // the model's message is about to be shown
	OnPreToolUse             Name = "PreToolUse"             // a call was allowed by policy, and nobody asked about it yet
	OnPostToolUse            Name = "PostToolUse"            // a call has ended
	OnSessionStart           Name = "SessionStart"
	OnSessionEnd             Name = "SessionEnd"
)

// Names are all events.
func Names() []Name {
	return []Name{OnUserPromptSubmit, OnAssistantMessageRender, OnPreToolUse, OnPostToolUse, OnSessionStart, OnSessionEnd}
}

// Blocks reports whether a hook's exit code 2 blocks there. Elsewhere it is a soft failure.
func (n Name) Blocks() bool { return n == OnUserPromptSubmit || n == OnPreToolUse }

// Tool reports whether the event is a tool's, which a matcher may name.
func (n Name) Tool() bool { return n == OnPreToolUse || n == OnPostToolUse }

// Event is what a hook is asked about: one of the six types below, never nil.
type Event interface {
	Name() Name
	In() Session
	// with is the event with what a hook put in the place of its text, input or output.
	with(updated any) (Event, bool)
}

// Session is where an event came to pass. Every event has one.
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

// AssistantMessageRender may change what is shown.
type AssistantMessageRender struct {
	Session
	Content string
}

// PreToolUse may change the tool's input, and block the call. What was changed is checked and decided again.
type PreToolUse struct {
	Session
	ToolName  string
	ToolInput map[string]any // decoded JSON; numbers as json.Number
}

// PostToolUse may change the tool's result. What was changed is redacted again.
type PostToolUse struct {
	Session
	ToolName   string
	ToolInput  map[string]any
	ToolResult any // decoded JSON; numbers as json.Number
	IsError    bool
}

// SessionStart and SessionEnd have nothing that could be changed.
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

func (e UserPromptSubmit) with(u any) (Event, bool) {
	s, ok := u.(string)
	e.Prompt = s
	return e, ok
}

func (e AssistantMessageRender) with(u any) (Event, bool) {
	s, ok := u.(string)
	e.Content = s
	return e, ok
}

func (e PreToolUse) with(u any) (Event, bool) {
	m, ok := u.(map[string]any)
	e.ToolInput = m
	return e, ok && m != nil
}

func (e PostToolUse) with(u any) (Event, bool) {
	e.ToolResult = u
	return e, u != nil
}

func (e SessionStart) with(any) (Event, bool) { return e, false }
func (e SessionEnd) with(any) (Event, bool)   { return e, false }
