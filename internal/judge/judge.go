// Package judge decides what agents ask about before they do it themselves, outside of any cage. What an agent is about to
// do becomes calls of capabilities, and each goes through the gate as a dry run, with a receipt of its own; the strictest
// answer holds. What a program does once it runs, nobody sees.
package judge

import (
	"context"
	"fmt"
	"strings"

	"bailey"
	"bailey/internal/command"
	"bailey/pack"
)

// Door is what receipts call it.
const Door = "hook"

// The capabilities of pack base that stand for an agent's own tools.
const (
	read  bailey.CapabilityID = "file.read"
	edit  bailey.CapabilityID = "file.edit"
	write bailey.CapabilityID = "file.write"
	shell bailey.CapabilityID = "shell.exec"
	fetch bailey.CapabilityID = "web.fetch"
	other bailey.CapabilityID = "tool.call"
)

// Own are the capabilities that stand for an agent's own tools.
func Own() []bailey.CapabilityID {
	return []bailey.CapabilityID{read, edit, write, shell, fetch, other}
}

// Config is what decides. Every field is needed.
type Config struct {
	Do      func(context.Context, bailey.Call) bailey.Result
	Catalog func() []*pack.Capability
	Ours    func(tool string) bool // whether Bailey's MCP door has a tool of that name
	Home    string                 // the user's home directory
	Masks   []string               // what must stay hidden, canonical
	Verbs   []string               // all of bailey's, the first word of each
	Open    []string               // those that agents may use, one word or two; all others are an operator's
}

// Event is what an agent is about to do.
type Event struct {
	Tool  string            // as the agent calls it
	Input map[string]string // those of its inputs that matter
	Dir   string            // where it works, absolute
}

// Verdict is the answer. The zero Verdict denies.
type Verdict struct {
	Effect   bailey.Effect      `json:"effect"`
	Silent   bool               `json:"silent,omitempty"` // it is none of ours: the agent goes by its own rules
	Reason   string             `json:"reason,omitempty"`
	Receipts []bailey.ReceiptID `json:"receipts,omitempty"`
}

// maxCalls bounds the calls of one event.
const maxCalls = 16

// part is one call that an event comes to.
type part struct {
	id      bailey.CapabilityID
	input   map[string]any
	dir     string
	about   string // what it is of the event, for the reason
	instead *part  // asked where no rule speaks of this one
}

// Judge decides an event. from holds who asks.
func (c Config) Judge(ctx context.Context, from bailey.Call, e Event) Verdict {
	parts, v := c.parts(e)
	if len(parts) == 0 {
		return v
	}
	if len(parts) > maxCalls {
		return Verdict{Reason: fmt.Sprintf("it comes to %d calls, more than %d; do it in several steps", len(parts), maxCalls)}
	}
	v = Verdict{Effect: bailey.Allow}
	for _, p := range parts {
		one := c.ask(ctx, from, p)
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

// ask takes a call through the gate. What the gate refuses before any rule was asked is denied; what no rule speaks of is
// asked about in the more general way, if there is one.
func (c Config) ask(ctx context.Context, from bailey.Call, p part) Verdict {
	call := from
	call.Capability, call.Input, call.Text, call.Dir = p.id, p.input, true, p.dir
	call.Door, call.DryRun, call.Own = Door, true, true
	res := c.Do(ctx, call)
	v := Verdict{Effect: res.Decision.Effect, Reason: reason(p, res)}
	if res.Receipt != "" {
		v.Receipts = []bailey.ReceiptID{res.Receipt}
	}
	if res.Err != nil {
		v.Effect = bailey.Deny
	}
	if p.instead != nil && v.Effect == bailey.Deny && (bailey.KindOf(res.Err) == bailey.Invalid || res.Decision.Made() && len(res.Decision.Rules) == 0) {
		general := c.ask(ctx, from, *p.instead)
		general.Receipts = append(v.Receipts, general.Receipts...)
		return general
	}
	return v
}

// reason is one line for whoever reads the answer.
func reason(p part, res bailey.Result) string {
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

func deny(format string, args ...any) Verdict {
	return Verdict{Reason: "Bailey: " + fmt.Sprintf(format, args...)}
}

// line is what a command line comes to.
func (c Config) line(e Event) ([]part, Verdict) {
	text := e.Input["command"]
	if text == "" {
		return nil, deny("the command is empty or was not told")
	}
	commands, err := command.Parse(text, c.Home)
	if err != nil {
		// Nobody knows what it is: what can be found in the text is denied, and the rest a person has to read.
		commands = []command.Command{{Text: text, Opaque: err.Error()}}
	}
	var parts []part
	for _, one := range commands {
		parts = append(parts, c.command(one, e.Dir)...)
	}
	if len(parts) == 0 {
		return nil, Verdict{Silent: true} // nothing but comments
	}
	return parts, Verdict{}
}
