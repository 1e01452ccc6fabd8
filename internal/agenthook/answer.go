// Package agenthook decides calls that agents announce before they make them themselves, outside any cage. It translates an
// announced call into capability calls. Each of them goes through the gate as a dry run, with its own receipt, and the
// strictest answer holds. The effects of a program while it runs are not observed.
package agenthook

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
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
	// Settings are the masked files that its reading tool may nevertheless read: they control the agent.
	Settings []string
	Grants   *Grants  // answers for sessions; nil: none
	Verbs    []string // all commands of bailey, the first word of each
	Open     []string // commands that agents may use, one word or two; all others need an operator
}

// Event is the call that an agent is about to make.
type Event struct {
	Tool  string            // tool name as the agent uses it
	Input map[string]string // the relevant inputs of the call
	Dir   string            // working directory, absolute
	// Shim is the path of bailey-shim, which runs a command line as a capability; "" if the agent's shell has none.
	Shim    string
	Session string // as the agent names it; "" if it has none
}

// Verdict is the answer. The zero Verdict denies.
type Verdict struct {
	Effect   bailey.Effect      `json:"effect"`
	Silent   bool               `json:"silent,omitempty"` // Bailey has no opinion: the agent applies its own rules
	Reason   string             `json:"reason,omitempty"`
	Receipts []bailey.ReceiptID `json:"receipts,omitempty"`
	// Line, if set, replaces the command line: parts of it run as capabilities, each in its jail. The verdict is about
	// this line.
	Line string `json:"line,omitempty"`

	Input map[string]json.RawMessage `json:"-"` // the complete input with this line, in the agent's format

	// Question can be answered for the session; "" if not.
	Question bailey.ApprovalID `json:"question,omitempty"`

	asked   []AskedCall // calls about which rules ask, if an answer for the session can cover them
	policy  string      // digest of the policy that asked
	shims   []string    // the parts of the command line that the shim must start
	granted bool        // a person allowed the call for the session
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
	shimmed string       // if set: the gate runs the call, if this source text of a command is started by the shim
	changes bool         // with shimmed: the call can change files of the workspace
	// with shimmed: if rules ask about the call, the agent asks its user about instead, which does not need the jail
	asksAgent bool
	of        string // source text of the command
	opens     bool   // the shell or a program outside of a cage opens a file by a name of the line
	// with shimmed: the program opens such a file if it runs outside of a cage, as in instead
	opensOutside bool
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
	var asked []AskedCall
	grantable := true
	for i, p := range parts {
		one := c.askGate(ctx, from, p, e)
		if p.shimmed != "" && len(one.shims) == 0 { // the answer is about the program outside of a cage
			parts[i].shimmed, parts[i].opens = "", p.opensOutside
		}
		asked = append(asked, one.asked...)
		grantable = grantable && (one.Effect != bailey.Ask || len(one.asked) > 0)
		v.policy = cmp.Or(v.policy, one.policy)
		v.Receipts = append(v.Receipts, one.Receipts...)
		v.shims = append(v.shims, one.shims...)
		if one.Effect < v.Effect || v.Reason == "" {
			v.Reason = one.Reason
		}
		if v.Effect = v.Effect.Stricter(one.Effect); v.Effect == bailey.Deny {
			return v
		}
	}
	if len(v.shims) > 0 {
		var ok bool
		if v.Line, ok = shimLine(e.Input["command"], c.Home, e.Shim, v.shims); !ok || opensBesideChange(parts) {
			return c.judgeUnchanged(ctx, from, e, v)
		}
	}
	if v.Effect == bailey.Ask && grantable {
		q := Asked{Session: e.Session, Principal: from.Principal, Dir: e.Dir, Calls: asked, Policy: v.policy}
		if id := c.Grants.record(q); id != "" {
			v.Question = id
			v.Reason += "; to allow it for this session: bailey approve --session " + string(id) +
				"; for good: bailey approve --always " + string(id)
		}
	}
	return v
}

// judgeUnchanged decides about a line that the shim starts no part of. v is the answer about the changed line: if it
// asks, this one does too.
func (c Config) judgeUnchanged(ctx context.Context, from bailey.Call, e Event, v Verdict) Verdict {
	e.Shim = ""
	now := c.Judge(ctx, from, e)
	if now.Effect == bailey.Allow && v.Effect == bailey.Ask {
		now.Effect, now.Reason = bailey.Ask, v.Reason
	}
	now.Receipts = append(v.Receipts, now.Receipts...)
	return now
}

// askGate sends a call through the gate. If the gate refuses the call before it evaluates a rule, the answer is deny. If no
// rule covers the call, or its input is invalid, ask tries the more general call in p.instead, if there is one.
func (c Config) askGate(ctx context.Context, from bailey.Call, p plannedCall, e Event) Verdict {
	call := from
	call.Capability, call.Input, call.Text, call.Dir = p.id, p.input, true, p.dir
	call.Door, call.DryRun, call.Own = Door, true, p.shimmed == ""
	res := c.Do(ctx, call)
	v := Verdict{Effect: res.Decision.Effect, Reason: explainAnswer(p, res)}
	if res.Receipt != "" {
		v.Receipts = []bailey.ReceiptID{res.Receipt}
	}
	if res.Err != nil {
		v.Effect = bailey.Deny
	}
	if p.asksAgent && v.Effect == bailey.Ask {
		general := c.askGate(ctx, from, *p.instead, e)
		general.Receipts = append(v.Receipts, general.Receipts...)
		if general.Effect == bailey.Allow && !general.granted { // a rule for shells does not answer for this one
			v.Receipts = general.Receipts
			c.answerFromGrants(ctx, from, p, e, res, &v)
			return v
		}
		return general
	}
	if p.shimmed != "" && v.Effect != bailey.Deny {
		v.shims, v.Reason = []string{p.shimmed}, v.Reason+"; the gate runs it in its jail"
		if v.Effect == bailey.Ask { // when the call is made; an answer to the agent's own question would not count there
			v.Effect, v.Reason = bailey.Allow, v.Reason+", and waits there for: bailey approve"
		}
		return v
	}
	if p.instead != nil && v.Effect == bailey.Deny && (p.shimmed != "" && len(res.Decision.Rules) == 0 ||
		bailey.KindOf(res.Err) == bailey.Invalid || res.Decision.Made() && len(res.Decision.Rules) == 0) {
		general := c.askGate(ctx, from, *p.instead, e)
		general.Receipts = append(v.Receipts, general.Receipts...)
		return general
	}
	if v.Effect == bailey.Ask {
		c.answerFromGrants(ctx, from, p, e, res, &v)
	}
	return v
}

// answerFromGrants allows a call that a person granted for the session. Otherwise it notes what an answer would cover.
func (c Config) answerFromGrants(ctx context.Context, from bailey.Call, p plannedCall, e Event,
	res bailey.Result, v *Verdict) {
	one, ok := coverOf(p, e)
	if !ok {
		return
	}
	one.Rules = res.Decision.Asks
	v.asked, v.policy = []AskedCall{one}, res.Decision.Policy
	q := Asked{Session: e.Session, Principal: from.Principal, Calls: v.asked, Policy: v.policy}
	grant, err := c.Grants.use(ctx, q, res.Receipt)
	switch {
	case err != nil:
		v.Effect, v.Reason = bailey.Deny, "Bailey: cannot record the use of a grant: "+err.Error()
	case grant != "":
		v.Effect, v.asked, v.granted = bailey.Allow, nil, true
		v.Reason += "; granted for this session by " + string(grant)
	}
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
		parts = append(parts, c.translateCommand(one, e)...)
	}
	if opensBesideChange(parts) {
		for i, p := range parts {
			if p.shimmed != "" && p.changes {
				parts[i] = *p.instead
			}
		}
	}
	if len(parts) == 0 {
		return nil, Verdict{Silent: true} // only comments
	}
	return parts, Verdict{}
}

// opensBesideChange reports whether a call in a cage, which can change the workspace, runs in one line with a program
// outside that opens a file by its name. The name was judged before the line runs; the tool in the cage could replace
// the file by a link in between.
func opensBesideChange(parts []plannedCall) bool {
	changes := slices.IndexFunc(parts, func(p plannedCall) bool { return p.shimmed != "" && p.changes })
	if changes < 0 {
		return false
	}
	return slices.ContainsFunc(parts, func(p plannedCall) bool { return p.opens && p.of != parts[changes].of }) ||
		slices.ContainsFunc(parts[changes+1:], func(p plannedCall) bool { return p.opens })
}
