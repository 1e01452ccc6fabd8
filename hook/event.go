package hook

import (
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
