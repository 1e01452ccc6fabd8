package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/hook"
	"bailey/internal/judge"
	"bailey/internal/policy"
	"bailey/internal/wire"
)

// The verbs, and the ledger's kinds of entry, of an agent inside the wall. The first comes before it starts.
const (
	wrapStart   = "wrap.start"
	wrapRefused = "wrap.refused"
	wrapEnd     = "wrap.end"
	wrapsLook   = "wraps"
)

// wrapStarting is the event's data. It holds no value of a variable.
type wrapStarting struct {
	ID       string           `json:"id"`
	Agent    string           `json:"agent"`
	Program  string           `json:"program"`
	Argv     []string         `json:"argv,omitempty"` // redacted; absent when over [bailey.InlineCap]
	Project  string           `json:"project"`
	KeepHome bool             `json:"keepHome,omitempty"`
	AnyCase  bool             `json:"anyCase,omitempty"` // it was started although names may be found in any case
	Egress   []string         `json:"egress"`            // with their flags
	EnvNames []string         `json:"envNames,omitempty"`
	Limits   bailey.Limits    `json:"limits"`
	Run      bool             `json:"run"` // what it writes may be executed
	TTY      bool             `json:"tty,omitempty"`
	Session  bailey.SessionID `json:"session"`
	Rules    []bailey.Rule    `json:"rules"`
	Policy   string           `json:"policyDigest"`
	At       time.Time        `json:"at"`
	bailey.Cage
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// wrapQuery is how a wrap comes to be decided: with the places as policy sees them, and the plan's text.
type wrapQuery struct {
	wrapStarting
	Model []string `json:"model"` // host:port that an agent of its kind needs
	Named []string `json:"named"` // and that an operator named
	Plan  string   `json:"plan"`
}

// wrapBegun is the answer to one that may start.
type wrapBegun struct {
	Session bailey.SessionID `json:"session"`
	Bearer  string           `json:"bearer"`
	Unasked wrapUnasked      `json:"unasked"`
}

// wrapUnasked are the rules and hooks that decide what an agent's own tools do outside of the wall, and that nothing asks inside: there
// the wall holds these tools.
type wrapUnasked struct {
	Rules []bailey.RuleID `json:"rules,omitempty"`
	Hooks []string        `json:"hooks,omitempty"`
}

// unasked finds them among the rules in force and the hooks that were applied.
func (s *stack) unasked() (u wrapUnasked) {
	u.Rules = s.rules.Engine().Own(judge.Own()...)
	for _, h := range s.hooks.book.Config().Hooks {
		asked := slices.ContainsFunc(judge.Own(), func(id bailey.CapabilityID) bool {
			return h.Matches(hook.PreToolUse{ToolName: string(id)}) || h.Matches(hook.PostToolUse{ToolName: string(id)})
		})
		if asked {
			u.Hooks = append(u.Hooks, strings.Join(h.Argv, " "))
		}
	}
	return u
}

// words say it to the operator; "" if all are asked.
func (u wrapUnasked) words() string {
	var all []string
	for _, id := range u.Rules {
		all = append(all, "rule "+string(id))
	}
	for _, h := range u.Hooks {
		all = append(all, "hook "+h)
	}
	if len(all) == 0 {
		return ""
	}
	return "not asked about the agent's own tools inside the wall: " + strings.Join(all, ", ") + ". A file that they hide is there to be read: keep it out of the project, or run the agent outside, hooked (docs/hooked.md)"
}

// wrapSaid decodes what an act was given.
func wrapSaid(q wire.Query, into any) error {
	b, err := json.Marshal(q.Args["wrap"])
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return &bailey.Error{Kind: bailey.Invalid, Message: "a wrap does not say what it is", Err: err}
	}
	return nil
}

// wrapStart is the act: policy decides, and what is about to run stands in the ledger before it runs.
func (s *stack) wrapStart(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	var w wrapQuery
	if err := wrapSaid(q, &w); err != nil {
		return nil, err
	}
	if w.ID == "" || w.Agent == "" || w.Project == "" || w.PlanDigest == "" {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "a wrap names an agent, a project and a plan"}
	}
	w.At, w.Operator, w.Person = time.Now().UTC(), q.Operator, from.Principal.Person
	d := s.kill.Before(s.rules).Decide(w.request(from))
	w.Rules, w.Policy = d.Rules, d.Policy
	if d.Effect != bailey.Allow {
		return nil, wrapDenied(d)
	}
	if err := s.workspaces.Fit(w.Project); err != nil {
		return nil, err
	}
	bearer, id, err := s.sessions.IssueWall(ctx, w.Agent, w.Project)
	if err != nil {
		return nil, err
	}
	w.Session = id
	cage := w.Cage
	if cage.Plan = w.Plan; s.redaction.Value(id, cage.Plan) != any(cage.Plan) {
		cage.Plan = ""
	}
	argv := w.Argv
	if w.Argv = nil; argv != nil {
		words, err := s.hidden(id, argv)
		if err != nil {
			return nil, err
		}
		if b, err := json.Marshal(words); err == nil && len(b) <= bailey.InlineCap {
			json.Unmarshal(b, &w.Argv)
		}
	}
	if err := s.scribe.noteCaged(ctx, wrapStart, w.wrapStarting, &cage); err != nil {
		return nil, err
	}
	return wrapBegun{id, bearer, s.unasked()}, nil
}

func (w wrapQuery) request(from bailey.Call) bailey.Request {
	list := func(places []string) []any {
		all := make([]any, 0, len(places))
		for _, p := range places {
			all = append(all, p)
		}
		return all
	}
	reach := slices.Sorted(slices.Values(slices.Concat(w.Model, w.Named)))
	return bailey.Request{Capability: policy.Wrap, Principal: bailey.Principal{Agent: w.Agent, Person: from.Principal.Person}, Session: from.Session,
		Target: bailey.Target{Kind: "local"}, Dir: w.Project, Cage: w.Kind, Absent: w.Absent, Writes: true, Egress: reach, Time: time.Now(),
		Input: map[string]any{"agent": w.Agent, "model": list(w.Model), "named": list(w.Named), "memoryMiB": json.Number(fmt.Sprint(w.Limits.MemoryBytes >> 20)),
			"tasks": json.Number(fmt.Sprint(w.Limits.Tasks)), "run": w.Run, "keepHome": w.KeepHome}}
}

// wrapDenied says which rule holds an agent back. One that asks does so too: whoever would grant it can change the rule.
func wrapDenied(d bailey.Decision) error {
	hint := "write a permit for Action::\"agent.wrap\", then bailey policy apply; the starter policy's rule wrap allows 4096 MiB and 1024 tasks in a full cage (bailey policy show)"
	why := d.Reason
	for _, r := range slices.Concat(d.Rules, d.Asks) {
		why = fmt.Sprintf("%s (rule %s, %s)", d.Reason, r.ID, r.Source)
		hint = "leave out what the rule does not want, or change it, then bailey policy apply"
		break
	}
	return &bailey.Error{Kind: bailey.Denied, Message: "policy does not let this agent be wrapped so: " + why, Hint: hint}
}

// wrapRefusals is what an agent was refused within a moment.
type wrapRefusals struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Lines   []refusal `json:"lines"`
	Untold  int64     `json:"untold,omitempty"` // more of them, which nobody was told of
	Session string    `json:"session,omitempty"`
}

// refusal is one, with what would allow it.
type refusal struct {
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"` // egress, call
	Target string    `json:"target,omitempty"`
	Reason string    `json:"reason"`
	Hint   string    `json:"hint,omitempty"`
}

func (s *stack) wrapRefused(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	var w wrapRefusals
	if err := wrapSaid(q, &w); err != nil {
		return nil, err
	}
	w.At = time.Now().UTC()
	w.bound()
	for i := range w.Lines {
		l := &w.Lines[i]
		l.Target, l.Reason, l.Hint = s.redaction.Text(from.Session.ID, l.Target), s.redaction.Text(from.Session.ID, l.Reason), s.redaction.Text(from.Session.ID, l.Hint)
	}
	w.bound()
	return struct{}{}, s.scribe.note(ctx, wrapRefused, w)
}

// wrapEnding is how it ended.
type wrapEnding struct {
	ID       string              `json:"id"`
	At       time.Time           `json:"at"`
	ExitCode int                 `json:"exitCode"`
	Egress   bailey.EgressTotals `json:"egress"`
	Moved    []string            `json:"quarantined,omitempty"`
	Dir      string              `json:"quarantine,omitempty"`
	Unseen   []string            `json:"unseen,omitempty"`
	Changed  []string            `json:"changed,omitempty"`
	More     int                 `json:"more,omitempty"` // paths beyond those that are named
}

// An agent chooses these names and words, and an entry that they fill is none. So an event has a part of them, by the bytes
// that they take as they are written.
const (
	maxNamed   = 8 << 10  // of each list of paths
	maxRefused = 40 << 10 // of an entry's refusals
	maxPhrase  = 512      // runes of one
)

func (w *wrapEnding) hide(veil *strings.Replacer) {
	for _, list := range []*[]string{&w.Moved, &w.Unseen, &w.Changed} {
		*list = slices.Clone(*list)
		for i, path := range *list {
			(*list)[i] = veil.Replace(path)
		}
	}
}

func (l refusal) hidden(veil *strings.Replacer) refusal {
	l.Target, l.Reason, l.Hint = veil.Replace(l.Target), veil.Replace(l.Reason), veil.Replace(l.Hint)
	return l
}

func (w *wrapEnding) bound() {
	for _, list := range []*[]string{&w.Moved, &w.Unseen, &w.Changed} {
		all := *list
		few, size := []string{}, 0
		for _, path := range all {
			path = clipped(path)
			if size += entryBytes(path); size > maxNamed {
				break
			}
			few = append(few, path)
		}
		*list = few
		w.More += len(all) - len(few)
	}
}

func (l refusal) clipped() refusal {
	l.Target, l.Reason, l.Hint = clipped(l.Target), clipped(l.Reason), clipped(l.Hint)
	return l
}

func clipped(s string) string {
	if len(s) <= maxPhrase {
		return s
	}
	if r := []rune(s[:min(len(s), 4*maxPhrase)]); len(r) > maxPhrase {
		return string(r[:maxPhrase]) + "…"
	}
	return s
}

// entryBytes is how many bytes v takes in an entry.
func entryBytes(v any) int {
	b, _ := json.Marshal(v)
	return len(b) + 1
}

func (w *wrapRefusals) bound() {
	all, size := w.Lines, 0
	w.Lines = nil
	for _, l := range all {
		l = l.clipped()
		if size += entryBytes(l); size > maxRefused || len(w.Lines) == maxRefusals {
			break
		}
		w.Lines = append(w.Lines, l)
	}
	w.Untold += int64(len(all) - len(w.Lines))
}

func (s *stack) wrapEnd(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	var w wrapEnding
	if err := wrapSaid(q, &w); err != nil {
		return nil, err
	}
	w.At = time.Now().UTC()
	w.bound()
	return struct{}{}, s.scribe.note(ctx, wrapEnd, w)
}
