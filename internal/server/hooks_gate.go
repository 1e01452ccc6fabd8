package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/hook"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/internal/hooks"
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/strictjson"
	"bailey/internal/workspace"
	"bailey/pack"
)

// hookGate implements the Hooks of the gate with the applied hooks.json. Hooks see only redacted data.
type hookGate struct {
	*hookStore
	chain    *hooks.Dispatcher
	warnings *sync.Map // the last [hooks.Warning] of each hook, by its place, until hooks are applied again
}

// runChain runs the chain for an event, and returns the hooks that ran, in the form of receipts, and what the person
// should be told.
func (g hookGate) runChain(ctx context.Context, e hook.Event) (o hook.Outcome, list []bailey.AskedHook,
	notices []string) {
	o, asked := g.askAll(ctx, e)
	for _, a := range asked {
		if a.Message != "" && o.Effect != hook.Blocked { // otherwise it is the reason
			notices = append(notices, "hook "+a.Program+": "+a.Message)
		}
		for _, w := range a.Warning {
			notices = append(notices, strings.TrimSuffix("hook "+a.Program+": "+w.Kind+": "+w.Text+"; "+w.Hint, "; "))
		}
		list = append(list, bailey.AskedHook{Event: string(a.Event), Hook: a.Hook, Program: a.Program, Status: string(a.Status), Effect: a.Effect,
			Reason: cmp.Or(a.Reason, a.Message), Millis: a.Millis})
	}
	return o, list, notices
}

// askAll runs the chain for an event. Warnings go to the gateway's log and to the list of hooks.
func (g hookGate) askAll(ctx context.Context, e hook.Event) (hook.Outcome, []hooks.Asked) {
	o, asked := g.chain.Ask(ctx, e)
	for _, a := range asked {
		for _, w := range a.Warning {
			g.warnings.Store(a.Hook, w)
			g.log.Warn("a hook", "kind", w.Kind, "event", a.Event, "hook", a.Hook, "program", a.Program, "session",
				a.Session, "why", w.Text, "cure", w.Hint)
		}
	}
	return o, asked
}

// shortReason returns the reason that a hook gave, cut to 1 KiB, because a hook may write a megabyte.
func shortReason(reason string) string {
	const most = 1 << 10
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "") + "…"
	}
	return cmp.Or(reason, "it gave no reason")
}

func sessionOfCall(c bailey.Call) hook.Session { return hook.Session{ID: c.Session.ID, Dir: c.Dir} }

// inputOf returns the input of a call, which is never nil.
func inputOf(c bailey.Call) map[string]any {
	if c.Input == nil {
		return map[string]any{}
	}
	return c.Input
}

func (g hookGate) Pre(ctx context.Context, call bailey.Call) (gate.Verdict, error) {
	if fault := g.Fault(); fault != nil {
		return gate.Verdict{Rule: bailey.Rule{ID: "hook", Source: apitype.HooksName,
			Reason: noHooks + "; " + bailey.HintOf(fault)}}, nil
	}
	input := inputOf(call)
	o, asked, notices := g.runChain(ctx,
		hook.PreToolUse{Session: sessionOfCall(call), ToolName: string(call.Capability), ToolInput: input})
	v := gate.Verdict{Asked: asked, Notices: notices}
	after, ok := o.Event.(hook.PreToolUse)
	if o.Effect == hook.Blocked || !ok || after.ToolInput == nil {
		v.Rule = g.blockingRule(o, asked)
		return v, nil
	}
	v.Effect = bailey.Allow
	if !reflect.DeepEqual(after.ToolInput, input) {
		v.Input = after.ToolInput
	}
	return v, nil
}

// runPrompt asks the hooks about a prompt, redacted, that a client of the model proxy sends. It returns the prompt that
// they make of it.
func (g hookGate) runPrompt(ctx context.Context, from bailey.Call, prompt string) (string, error) {
	if fault := g.Fault(); fault != nil {
		return "", bailey.Denied.New(noHooks, bailey.HintOf(fault))
	}
	e := hook.UserPromptSubmit{Session: sessionOfCall(from), Prompt: prompt}
	if len(g.Config().For(e)) == 0 {
		return prompt, nil
	}
	o, asked, _ := g.runChain(ctx, e)
	after, ok := o.Event.(hook.UserPromptSubmit)
	if o.Effect == hook.Blocked || !ok {
		return "", bailey.Denied.New(g.blockingRule(o, asked).Reason, "write another prompt")
	}
	return after.Prompt, nil
}

// renderFor returns the function that asks the hooks about a text that a model wrote, or nil if there is no such hook. A
// hook of this event cannot block; if the chain is blocked all the same, the text is not shown.
func (g hookGate) renderFor(ctx context.Context, from bailey.Call) func(string) string {
	if g.Fault() == nil && len(g.Config().For(hook.AssistantMessageRender{})) == 0 {
		return nil
	}
	return func(text string) string {
		if fault := g.Fault(); fault != nil {
			return "(" + noHooks + ")"
		}
		o, _, _ := g.runChain(ctx, hook.AssistantMessageRender{Session: sessionOfCall(from), Content: text})
		after, ok := o.Event.(hook.AssistantMessageRender)
		if o.Effect == hook.Blocked || !ok {
			return "(a hook of Bailey hid this text: " + shortReason(o.Reason) + ")"
		}
		return after.Content
	}
}

// blockingRule returns a rule that names the blocking hook.
func (g hookGate) blockingRule(o hook.Outcome, asked []bailey.AskedHook) bailey.Rule {
	r := bailey.Rule{ID: "hook", Source: apitype.HooksName, Reason: shortReason(o.Reason)}
	if len(asked) > 0 {
		n := asked[len(asked)-1].Hook
		r.ID = bailey.RuleID(fmt.Sprintf("hook:%d", n))
		if list := g.Config().Hooks; n > 0 && n <= len(list) {
			r.Source = fmt.Sprintf("%s:%d", apitype.HooksName, list[n-1].Line)
		}
	}
	r.Reason = "blocked by a hook (" + r.Source + "): " + r.Reason
	return r
}

// Holds reports whether a hook must see the output of the capability's tool.
func (g hookGate) Holds(id bailey.CapabilityID) bool {
	return g.Fault() != nil || len(g.Config().For(hook.PostToolUse{ToolName: string(id)})) > 0
}

// toolResult is the result of a tool in the form that hooks see and may return. They can change the two texts. The exit
// code must stay the same.
type toolResult struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exitCode"`
}

func (g hookGate) Post(ctx context.Context, call bailey.Call, out gate.Output) (gate.Output, error) {
	if fault := g.Fault(); fault != nil {
		return gate.Output{}, fault
	}
	was := map[string]any{"stdout": string(out.Stdout), "stderr": string(out.Stderr),
		"exitCode": json.Number(fmt.Sprint(out.ExitCode))}
	o, asked, notices := g.runChain(ctx,
		hook.PostToolUse{Session: sessionOfCall(call), ToolName: string(call.Capability), ToolInput: inputOf(call),
			ToolResult: was, IsError: out.Failed})
	out.Asked, out.Notices = asked, notices
	after, ok := o.Event.(hook.PostToolUse)
	if o.Effect == hook.Blocked || !ok {
		return gate.Output{Asked: asked, Notices: notices}, bailey.Denied.New(shortReason(o.Reason), o.Hint)
	}
	if reflect.DeepEqual(after.ToolResult, any(was)) {
		return out, nil // unchanged bytes, even if they are not UTF-8
	}
	is, err := checkResult(after.ToolResult, out.ExitCode)
	if err != nil {
		return gate.Output{Asked: asked, Notices: notices}, err
	}
	out.Stdout, out.Stderr = []byte(is.Stdout), []byte(is.Stderr)
	return out, nil
}

// CheckResult returns an error if a hook may not return this as the result of a tool that ended with exitCode.
func CheckResult(result any, exitCode int) error {
	_, err := checkResult(result, exitCode)
	return err
}

// checkResult reads the result that a hook returned. A text replaces all output: it is then what was written to stdout.
func checkResult(result any, exitCode int) (is toolResult, err error) {
	if text, ok := result.(string); ok {
		return toolResult{Stdout: text, ExitCode: exitCode}, nil
	}
	text, err := json.Marshal(result)
	if err == nil {
		is, err = readResult(text)
	}
	if err == nil && is.ExitCode != exitCode {
		err = fmt.Errorf("the exit code is %d, not %d", exitCode, is.ExitCode)
	}
	if err != nil {
		err = bailey.Denied.Wrap(err, "a hook returned a malformed result",
			`use a text, or {"stdout": "…", "stderr": "…", "exitCode": N}, as updatedOutput of a tool's result`)
	}
	return is, err
}

// readResult requires all three keys and no other. A hook may have meant to remove a missing or null key, which would
// become an empty text.
func readResult(text []byte) (r toolResult, err error) {
	var p struct {
		Stdout   *string `json:"stdout"`
		Stderr   *string `json:"stderr"`
		ExitCode *int    `json:"exitCode"`
	}
	if err := strictjson.Decode(text, &p); err != nil {
		return r, err
	}
	if p.Stdout == nil || p.Stderr == nil || p.ExitCode == nil {
		return r, fmt.Errorf("it lacks stdout, stderr or exitCode")
	}
	return toolResult{*p.Stdout, *p.Stderr, *p.ExitCode}, nil
}

// Total time limits for the hooks of a session. A client waits for its start, the gateway for its end.
const beginPatience, endPatience = 30 * time.Second, 4 * time.Second

// runSessionStart runs the hooks for the start of a session. A hook can deny the session by blocking it. A timeout denies it only
// if a hook of this event blocks on failure.
func (g hookGate) runSessionStart(ctx context.Context, from bailey.Call) error {
	bounded, cancel := context.WithTimeout(ctx, beginPatience)
	defer cancel()
	o, _, _ := g.runChain(bounded, hook.SessionStart{Session: sessionOfCall(from)})
	if o.Effect != hook.Blocked || bounded.Err() != nil && ctx.Err() == nil && !g.hasBlockingHook(hook.SessionStart{}) {
		return nil
	}
	return bailey.Denied.New("a hook stopped the session: "+shortReason(o.Reason), o.Hint)
}

// hasBlockingHook reports whether any hook of the event blocks if it fails.
func (g hookGate) hasBlockingHook(e hook.Event) bool {
	for _, h := range g.Config().For(e) {
		if h.OnFailure == hook.Block {
			return true
		}
	}
	return false
}

// runSessionEnd runs the hooks for the end of a session.
func (g hookGate) runSessionEnd(ctx context.Context, from bailey.Call) {
	bounded, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	g.runChain(bounded, hook.SessionEnd{Session: sessionOfCall(from)})
	g.chain.Forget(from.Session.ID)
}

// runHooks runs the chain of an event.
func (s *Server) runHooks(ctx context.Context, r apitype.HooksFrame,
	from gateway.Caller) (out apitype.ChainRun, err error) {
	if fault := s.hooks.Fault(); fault != nil {
		return out, fault
	}
	e, err := hook.Decode(r.Frame)
	if err != nil {
		return out, err
	}
	o, asked := s.hooks.askAll(ctx, e)
	out = apitype.ChainRun{OK: o.Effect != hook.Blocked, Effect: o.Effect.String(), Reason: o.Reason, Hint: o.Hint,
		Said: o.Message, Hooks: asked}
	if out.OK {
		goes, err := hook.Encode(o.Event)
		if err != nil {
			return out, err
		}
		out.Frame = string(goes)
	}
	data, err := s.redactValue(from.Session.ID, map[string]any{"event": e.Name(), "session": e.In().ID, "effect": out.Effect, "hooks": len(asked),
		"operator": from.Operator, "person": from.Principal.Person})
	if err == nil {
		err = s.scribe.recordEvent(ctx, apitype.HooksRunVerb, data)
	}
	return out, err
}

// openHooks loads the applied hooks, with the cages and the network access of the home.
func (s *Server) openHooks(home localapi.Home, masks []string) error {
	userHome, _ := os.UserHomeDir() // "" if unknown: no path may begin with ~/
	book, err := openHookStore(&hookStore{home: home, userHome: userHome, note: s.scribe.recordEvent,
		tools: func() []string { return capabilityNames(s.shelf.Catalog().All()) }, log: s.Log}, s.scribe.lore.Hooks)
	if err != nil {
		return err
	}
	s.hooks = hookGate{hookStore: book, warnings: &sync.Map{},
		chain: NewChain(hooks.Config{Applied: book.Config, Cages: s.cages}, EgressPlanner{Settings: s.networkSettings},
			masks, s.writableDirs)}
	return nil
}

// capabilityNames returns the names of capabilities.
func capabilityNames(list []*pack.Capability) (names []string) {
	for _, m := range list {
		names = append(names, string(m.ID))
	}
	return names
}

// NewChain sets the fields that all users of hooks share: the environment, network access according to the settings,
// and the paths that a hook must not see merely because its program is near them.
func NewChain(c hooks.Config, w EgressPlanner, masks []string, workspaces func() []string) *hooks.Dispatcher {
	c.Bare, c.Environ, c.Plan, c.Open = jail.Uncaged{}, os.Environ, w.planFor, func(n *bailey.Network) (bailey.Way,
		error) {
		return w.Open(n, nil)
	}
	if jail.Bare {
		c.Cages = nil // a hook that must have a cage is not started
	}
	c.Workspaces = workspaces
	c.Private = func() []string { return slices.Concat(masks, workspace.Homes(), workspaces()) }
	return hooks.New(c)
}

// writableDirs returns the directories that agents may write, with their calls or by themselves inside the agent jail.
func (s *Server) writableDirs() (dirs []string) {
	dirs = append(dirs, s.settings.Applied().Workspaces...)
	if s.sessions != nil {
		dirs = append(dirs, s.sessions.Projects()...)
	}
	return dirs
}
