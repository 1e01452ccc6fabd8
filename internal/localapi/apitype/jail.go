package apitype

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/policy"
)

// JailRunEvent is the operator command, and the kind of the ledger entry, for a program that a person runs in a cage.
const JailRunEvent = "jail.run"

// JailRunning is the data of the ledger entry. It is written before the program starts, and contains no values of
// variables.
type JailRunning struct {
	Argv     []string `json:"argv,omitempty"` // redacted; absent if larger than [bailey.InlineCap]
	Dir      string   `json:"dir,omitempty"`  // inside the cage
	ReadOnly []string `json:"ro,omitempty"`
	Writable []string `json:"rw,omitempty"`
	Exec     []string `json:"exec,omitempty"`
	EnvNames []string `json:"envNames,omitempty"`
	TTY      bool     `json:"tty,omitempty"`
	bailey.Cage
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// JailQuery is the event as it is sent to the gateway. The gateway keeps the text of the plan. It searches argv for the
// values of Env and then discards Env.
type JailQuery struct {
	JailRunning
	Env  []string `json:"env,omitempty"`
	Plan string   `json:"plan"`
}

// LeastSecret is the minimum length, in bytes, of a value that is redacted in argv. Otherwise a variable with the value
// 1 or yes would hide these words everywhere.
const LeastSecret = 8

// CagePlan is the plan of a cage, as `jail explain` prints it.
type CagePlan struct {
	bailey.Cage
	Plan []PlanStep        `json:"plan"`           // absent if its text contains a secret
	Warm []bailey.WarmStep `json:"warm,omitempty"` // absent if no warm helper serves the plan
}

// PlanStep is one line of the plan of a cage.
type PlanStep struct {
	Layer string `json:"layer,omitempty"` // empty for scaffolding
	Text  string `json:"text"`
}

// The commands, and kinds of ledger entries, for an agent in the agent jail. wrap.start is written before the agent
// starts.
const (
	WrapStart   = "wrap.start"
	WrapRefused = "wrap.refused"
	WrapEnd     = "wrap.end"
)

// WrapStarting is the data of the wrap.start entry. It contains no values of variables.
type WrapStarting struct {
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
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// WrapQuery is the request to start a wrap, with the places as the policy examines them and the text of the plan.
type WrapQuery struct {
	WrapStarting
	Model []string `json:"model"` // host:port that this kind of agent needs
	Named []string `json:"named"` // host:port that the operator named
	Plan  string   `json:"plan"`
}

// WrapBegun is the answer if the wrap may start.
type WrapBegun struct {
	Session bailey.SessionID `json:"session"`
	Bearer  string           `json:"bearer"`
	Unasked WrapUnasked      `json:"unasked"`
}

// WrapUnasked lists rules and hooks that decide about the agent's own tools when it runs outside the agent jail.
// Inside, they are not consulted, because the agent jail confines these tools.
type WrapUnasked struct {
	Rules []bailey.RuleID `json:"rules,omitempty"`
	Hooks []string        `json:"hooks,omitempty"`
}

// Summary returns a warning for the operator, or "" if there are none.
func (u WrapUnasked) Summary() string {
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
	return "not asked about the agent's own tools inside the agent jail: " + strings.Join(all, ", ") +
		". Files that they hide can be read there: keep them out of the project, or run the agent outside, hooked (docs/hooked.md)"
}

// Request returns the request about the start of the wrap that the policy decides. Person and session are those of
// from.
func (w WrapQuery) Request(from bailey.Call) bailey.Request {
	list := func(places []string) []any {
		all := make([]any, 0, len(places))
		for _, p := range places {
			all = append(all, p)
		}
		return all
	}
	reach := slices.Sorted(slices.Values(slices.Concat(w.Model, w.Named)))
	return bailey.Request{Capability: policy.Wrap,
		Principal: bailey.Principal{Agent: w.Agent, Person: from.Principal.Person}, Session: from.Session,
		Target: bailey.Target{Kind: "local"}, Dir: w.Project, Cage: w.Kind, Absent: w.Absent, Writes: true,
		Egress: reach, Time: time.Now(),
		Input: map[string]any{"agent": w.Agent, "model": list(w.Model), "named": list(w.Named),
			"memoryMiB": json.Number(fmt.Sprint(w.Limits.MemoryBytes >> 20)),
			"tasks":     json.Number(fmt.Sprint(w.Limits.Tasks)), "run": w.Run, "keepHome": w.KeepHome}}
}

// WrapRefusals reports the recent refusals of an agent.
type WrapRefusals struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Lines   []Refusal `json:"lines"`
	Untold  int64     `json:"untold,omitempty"` // further refusals that were not reported
	Session string    `json:"session,omitempty"`
}

// Refusal is one refused access, and the setting that would allow it.
type Refusal struct {
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"` // egress or call
	Target string    `json:"target,omitempty"`
	Reason string    `json:"reason"`
	Hint   string    `json:"hint,omitempty"`
}

// WrapEnding is the data of the wrap.end entry.
type WrapEnding struct {
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
	MaxRefused = 40 << 10 // for the refusals of an entry
	maxPhrase  = 512      // runes of one text
)

// Hide replaces secrets in the lists of paths. It changes copies of the lists.
func (w *WrapEnding) Hide(veil *strings.Replacer) {
	for _, list := range []*[]string{&w.Moved, &w.Unseen, &w.Changed} {
		*list = slices.Clone(*list)
		for i, path := range *list {
			(*list)[i] = veil.Replace(path)
		}
	}
}

// Hidden returns the refusal with the secrets in its texts replaced.
func (l Refusal) Hidden(veil *strings.Replacer) Refusal {
	l.Target, l.Reason, l.Hint = veil.Replace(l.Target), veil.Replace(l.Reason), veil.Replace(l.Hint)
	return l
}

// Bound shortens the paths and the lists to their share of an entry, and adds the number of dropped paths to More.
func (w *WrapEnding) Bound() {
	for _, list := range []*[]string{&w.Moved, &w.Unseen, &w.Changed} {
		all := *list
		few, size := []string{}, 0
		for _, path := range all {
			path = clipPhrase(path)
			if size += EntryBytes(path); size > maxNamed {
				break
			}
			few = append(few, path)
		}
		*list = few
		w.More += len(all) - len(few)
	}
}

// Clipped returns the refusal with each text cut to the maximum length.
func (l Refusal) Clipped() Refusal {
	l.Target, l.Reason, l.Hint = clipPhrase(l.Target), clipPhrase(l.Reason), clipPhrase(l.Hint)
	return l
}

func clipPhrase(s string) string {
	if len(s) <= maxPhrase {
		return s
	}
	if r := []rune(s[:min(len(s), 4*maxPhrase)]); len(r) > maxPhrase {
		return string(r[:maxPhrase]) + "…"
	}
	return s
}

// EntryBytes returns the encoded size of v in an entry.
func EntryBytes(v any) int {
	b, _ := json.Marshal(v)
	return len(b) + 1
}

// Bound clips the refusals and limits their number to [MaxRefusals] and their size to [MaxRefused] bytes. It adds the
// number of dropped refusals to Untold.
func (w *WrapRefusals) Bound() {
	all, size := w.Lines, 0
	w.Lines = nil
	for _, l := range all {
		l = l.Clipped()
		if size += EntryBytes(l); size > MaxRefused || len(w.Lines) == MaxRefusals {
			break
		}
		w.Lines = append(w.Lines, l)
	}
	w.Untold += int64(len(all) - len(w.Lines))
}

// Limits of the remembered wraps: the number of runs, of refusals in total, and of refusals in one entry.
const (
	maxWraps        = 32
	MaxWrapRefusals = 256
	MaxRefusals     = 64
)

// WrapsKnown is the state of agents in the agent jail that a gateway remembers, the newest last.
type WrapsKnown struct {
	Runs    []wrapRun   `json:"runs,omitempty"`
	Refused []RefusedTo `json:"refused,omitempty"`
	Count   uint64      `json:"count,omitempty"` // total number of refusals
}

// wrapRun is one run of an agent.
type wrapRun struct {
	ID       string           `json:"id"`
	Agent    string           `json:"agent"`
	Project  string           `json:"project"`
	Session  bailey.SessionID `json:"session"`
	Started  time.Time        `json:"started"`
	Ended    time.Time        `json:"ended,omitzero"`
	ExitCode int              `json:"exitCode,omitempty"`
	Untold   int64            `json:"untold,omitempty"` // refusals that were not reported
	Moved    []string         `json:"quarantined,omitempty"`
	Dir      string           `json:"quarantine,omitempty"`
}

// RefusedTo is a refusal of a run.
type RefusedTo struct {
	N   uint64 `json:"n"`
	Run string `json:"run"`
	Refusal
}

// Start adds a run. If there are too many, the oldest runs are dropped.
func (k *WrapsKnown) Start(w WrapStarting) {
	k.Runs = Last(append(k.Runs[:len(k.Runs):len(k.Runs)],
		wrapRun{ID: w.ID, Agent: w.Agent, Project: w.Project, Session: w.Session, Started: w.At}), maxWraps)
}

// Refuse adds the refusals of a run, numbered by Count, and keeps at most [MaxWrapRefusals].
func (k *WrapsKnown) Refuse(w WrapRefusals) {
	k.updateRun(w.ID, func(r *wrapRun) { r.Untold += w.Untold })
	all := k.Refused[:len(k.Refused):len(k.Refused)] // a copy, because other goroutines may hold the old list
	for _, l := range w.Lines {
		k.Count++
		all = append(all, RefusedTo{N: k.Count, Run: w.ID, Refusal: l})
	}
	k.Refused = lastOfEach(all, MaxWrapRefusals)
}

// lastOfEach returns the last n refusals. If one kind makes up more than half of them, its oldest are dropped first, so
// that one frequently repeated refusal does not displace the others.
func lastOfEach(all []RefusedTo, n int) []RefusedTo {
	most := map[string]int{}
	for _, r := range all {
		most[r.Kind]++
	}
	over := len(all) - n
	return Last(slices.DeleteFunc(slices.Clone(all), func(r RefusedTo) bool {
		drop := over > 0 && most[r.Kind] > n/2
		if drop {
			over--
			most[r.Kind]--
		}
		return drop
	}), n)
}

// End records the end of a run. It has no effect if the run is no longer remembered.
func (k *WrapsKnown) End(w WrapEnding) {
	k.updateRun(w.ID, func(r *wrapRun) { r.Ended, r.ExitCode, r.Moved, r.Dir = w.At, w.ExitCode, w.Moved, w.Dir })
}

func (k *WrapsKnown) updateRun(id string, do func(*wrapRun)) {
	runs := append([]wrapRun(nil), k.Runs...)
	for i := range runs {
		if runs[i].ID == id {
			do(&runs[i])
		}
	}
	k.Runs = runs
}

// Last returns the last n elements of list, or all if there are fewer. The result shares the array of list.
func Last[T any](list []T, n int) []T { return list[max(0, len(list)-n):] }

// Agent returns the agent of a refusal, or the id of the run if that is no longer remembered.
func (k WrapsKnown) Agent(r RefusedTo) string {
	for _, run := range k.Runs {
		if run.ID == r.Run {
			return run.Agent
		}
	}
	return r.Run
}
