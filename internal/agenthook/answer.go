// Package agenthook decides calls that agents announce before they make them themselves, outside any cage. It translates an
// announced call into capability calls. Each of them goes through the gate as a dry run, with its own receipt, and the
// strictest answer holds. The effects of a program while it runs are not observed.
package agenthook

import (
	"context"
	"fmt"
	"strings"

	"bailey"
	"bailey/internal/shellparse"
	"bailey/pack"
)

// Door is the name of this interface in receipts.
const Door = "hook"

// The capabilities of the base pack that stand for an agent's own tools.
const (
	read  bailey.CapabilityID = "file.read"
	edit  bailey.CapabilityID = "file.edit"
	write bailey.CapabilityID = "file.write"
	shell bailey.CapabilityID = "shell.exec"
	fetch bailey.CapabilityID = "web.fetch"
	other bailey.CapabilityID = "tool.call"
)

// Own returns the capabilities that stand for an agent's own tools.
func Own() []bailey.CapabilityID {
	return []bailey.CapabilityID{read, edit, write, shell, fetch, other}
}

// Config holds the dependencies of a judge. Every field must be set.
type Config struct {
	Do      func(context.Context, bailey.Call) bailey.Result
	Catalog func() []*pack.Capability
	Ours    func(tool string) bool // whether Bailey's MCP interface has a tool of that name
	Home    string                 // the user's home directory
	Root    bool                   // the user is root, to whom sudo means nothing
	Masks   []string               // canonical paths that must stay hidden
	Verbs   []string               // all commands of bailey, the first word of each
	Open    []string               // commands that agents may use, one word or two; all others need an operator
}

// Event is the call that an agent is about to make.
type Event struct {
	Tool  string            // tool name as the agent uses it
	Input map[string]string // the relevant inputs of the call
	Dir   string            // working directory, absolute
}

// Verdict is the answer. The zero Verdict denies.
type Verdict struct {
	Effect   bailey.Effect      `json:"effect"`
	Silent   bool               `json:"silent,omitempty"` // Bailey has no opinion: the agent applies its own rules
	Reason   string             `json:"reason,omitempty"`
	Receipts []bailey.ReceiptID `json:"receipts,omitempty"`
}

// maxCalls limits the calls of one event.
const maxCalls = 16

// plannedCall is one call that an event is translated into.
type plannedCall struct {
	id      bailey.CapabilityID
	input   map[string]any
	dir     string
	about   string       // origin in the event, for the reason text
	instead *plannedCall // the call to ask about if no rule covers this one
}

// Judge decides an event. from identifies the caller.
func (c Config) Judge(ctx context.Context, from bailey.Call, e Event) Verdict {
	parts, v := c.translateEvent(e)
	if len(parts) == 0 {
		return v
	}
	if len(parts) > maxCalls {
		return Verdict{Reason: fmt.Sprintf("it would need %d calls, more than %d; do it in several steps", len(parts),
			maxCalls)}
	}
	v = Verdict{Effect: bailey.Allow}
	for _, p := range parts {
		one := c.askGate(ctx, from, p)
		v.Receipts = append(v.Receipts, one.Receipts...)
		if one.Effect < v.Effect || v.Reason == "" {
			v.Reason = one.Reason
		}
		if v.Effect = v.Effect.Stricter(one.Effect); v.Effect == bailey.Deny {
			return v
		}
	}
	return v
}

// askGate sends a call through the gate. If the gate refuses the call before it evaluates a rule, the answer is deny. If no
// rule covers the call, or its input is invalid, ask tries the more general call in p.instead, if there is one.
func (c Config) askGate(ctx context.Context, from bailey.Call, p plannedCall) Verdict {
	call := from
	call.Capability, call.Input, call.Text, call.Dir = p.id, p.input, true, p.dir
	call.Door, call.DryRun, call.Own = Door, true, true
	res := c.Do(ctx, call)
	v := Verdict{Effect: res.Decision.Effect, Reason: explainAnswer(p, res)}
	if res.Receipt != "" {
		v.Receipts = []bailey.ReceiptID{res.Receipt}
	}
	if res.Err != nil {
		v.Effect = bailey.Deny
	}
	if p.instead != nil && v.Effect == bailey.Deny &&
		(bailey.KindOf(res.Err) == bailey.Invalid || res.Decision.Made() && len(res.Decision.Rules) == 0) {
		general := c.askGate(ctx, from, *p.instead)
		general.Receipts = append(v.Receipts, general.Receipts...)
		return general
	}
	return v
}

// explainAnswer returns one line that explains the answer to its reader.
func explainAnswer(p plannedCall, res bailey.Result) string {
	why, hint := res.Decision.Reason, res.Decision.Hint
	if res.Err != nil {
		why, hint = res.Err.Error(), bailey.HintOf(res.Err)
	}
	var rules []string
	for _, r := range res.Decision.Rules {
		rules = append(rules, string(r.ID))
	}
	line := "Bailey: " + string(p.id)
	if len(rules) > 0 {
		line += " (" + strings.Join(rules, ", ") + ")"
	}
	if why != "" {
		line += ": " + why
	}
	if p.about != "" {
		line += " — " + p.about
	}
	if hint != "" && res.Err != nil {
		line += "; " + hint
	}
	if res.Receipt != "" {
		line += "; receipt " + string(res.Receipt)
	}
	return line
}

func denyVerdict(format string, args ...any) Verdict {
	return Verdict{Reason: "Bailey: " + fmt.Sprintf(format, args...)}
}

// translateLine translates a command line into calls.
func (c Config) translateLine(e Event) ([]plannedCall, Verdict) {
	text := e.Input["command"]
	if text == "" {
		return nil, denyVerdict("the command is empty or missing")
	}
	commands, err := shellparse.ParseAs(text, c.Home, c.Root)
	if err != nil {
		// The effect of the line is unknown. A masked path or an operator command found in the text is denied; for the
		// rest, a person must read the line.
		commands = []shellparse.Command{{Text: text, Opaque: err.Error()}}
	}
	var parts []plannedCall
	for _, one := range commands {
		parts = append(parts, c.translateCommand(one, e.Dir)...)
	}
	if len(parts) == 0 {
		return nil, Verdict{Silent: true} // only comments
	}
	return parts, Verdict{}
}
