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

// The verbs, and kinds of ledger entries, for an agent in the agent jail. wrap.start is written before the agent
// starts.
const (
	wrapStart   = "wrap.start"
	wrapRefused = "wrap.refused"
	wrapEnd     = "wrap.end"
	wrapsLook   = "wraps"
)

// wrapStarting is the data of the wrap.start entry. It contains no values of variables.
type wrapStarting struct {
	ID       string           `json:"id"`
	Agent    string           `json:"agent"`
	Program  string           `json:"program"`
	Argv     []string         `json:"argv,omitempty"` // redacted; absent if larger than [bailey.InlineCap]
	Project  string           `json:"project"`
	KeepHome bool             `json:"keepHome,omitempty"`
	AnyCase  bool             `json:"anyCase,omitempty"` // started although file names may be case-insensitive
	Egress   []string         `json:"egress"`            // with their flags
	EnvNames []string         `json:"envNames,omitempty"`
	Limits   bailey.Limits    `json:"limits"`
	Run      bool             `json:"run"` // files that the agent writes may be executed
	TTY      bool             `json:"tty,omitempty"`
	Session  bailey.SessionID `json:"session"`
	Rules    []bailey.Rule    `json:"rules"`
	Policy   string           `json:"policyDigest"`
	At       time.Time        `json:"at"`
	bailey.Cage
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// wrapQuery is the request to start a wrap, with the places as the policy examines them and the text of the plan.
type wrapQuery struct {
	wrapStarting
	Model []string `json:"model"` // host:port that this kind of agent needs
	Named []string `json:"named"` // host:port that the operator named
	Plan  string   `json:"plan"`
}

// wrapBegun is the answer if the wrap may start.
type wrapBegun struct {
	Session bailey.SessionID `json:"session"`
	Bearer  string           `json:"bearer"`
	Unasked wrapUnasked      `json:"unasked"`
}

// wrapUnasked lists rules and hooks that decide about the agent's own tools when it runs outside the agent jail.
// Inside, they are not consulted, because the agent jail confines these tools.
type wrapUnasked struct {
	Rules []bailey.RuleID `json:"rules,omitempty"`
	Hooks []string        `json:"hooks,omitempty"`
}

// unasked finds them among the rules in force and the applied hooks.
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

// words returns a warning for the operator, or "" if there are none.
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

// wrapSaid decodes the argument of a wrap command.
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

// wrapStart is the operator command: the policy decides, and the ledger entry is written before the agent runs.
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

// wrapDenied returns an error that names the denying rule. A rule that asks denies too: the operator who would approve
// can change the rule instead.
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

// wrapRefusals reports the recent refusals of an agent.
type wrapRefusals struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Lines   []refusal `json:"lines"`
	Untold  int64     `json:"untold,omitempty"` // further refusals that were not reported
	Session string    `json:"session,omitempty"`
}

// refusal is one refused access, and the setting that would allow it.
type refusal struct {
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"` // egress or call
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

// wrapEnding is the data of the wrap.end entry.
type wrapEnding struct {
	ID       string              `json:"id"`
	At       time.Time           `json:"at"`
	ExitCode int                 `json:"exitCode"`
	Egress   bailey.EgressTotals `json:"egress"`
	Moved    []string            `json:"quarantined,omitempty"`
	Dir      string              `json:"quarantine,omitempty"`
	Unseen   []string            `json:"unseen,omitempty"`
	Changed  []string            `json:"changed,omitempty"`
	More     int                 `json:"more,omitempty"` // number of further paths
}

// An agent chooses these names and texts, and an entry that exceeds the size limit cannot be written. So each list gets
// a share of the entry, measured in encoded bytes.
const (
	maxNamed   = 8 << 10  // for each list of paths
	maxRefused = 40 << 10 // for the refusals of an entry
	maxPhrase  = 512      // runes of one text
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

// entryBytes returns the encoded size of v in an entry.
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
