package policy

import (
	"iter"
	"slices"
	"strings"

	"bailey"
)

// Suggestion is a set of rules that would have given the same decisions: allowed calls are allowed, and calls that
// asked ask. A person must review it.
type Suggestion struct {
	Text         []byte      `json:"text"`
	Calls        int         `json:"calls"`
	Capabilities []Suggested `json:"capabilities"`
	Undecided    []Cause     `json:"leftOut,omitempty"` // calls that no rule was derived from
}

// Suggested summarises the calls of a capability, with notes on the limits of its rules.
type Suggested struct {
	Capability bailey.CapabilityID `json:"capability"`
	Allowed    int                 `json:"allowed"`
	Asked      int                 `json:"asked"`
	Denied     int                 `json:"denied"`
	First      bailey.ReceiptID    `json:"first"`
	Last       bailey.ReceiptID    `json:"last"`
	Notes      []string            `json:"notes,omitempty"`
}

// Limits on the single calls that a suggestion lists for one capability.
const (
	maxExact  = 64
	maxRounds = 6
)

// callGroup collects the calls of one capability.
type callGroup struct {
	Suggested
	act     *action
	traits  []trait
	permit  []traitSummary // traits of allowed calls and of calls that asked
	ask     []traitSummary // traits of calls for which one of the policy's own rules asked
	role    string
	level   bailey.Level
	mixed   bool // several roles were asked
	count   int
	asks    exactCalls
	narrow  bool       // a single asking rule would also ask for allowed calls
	never   exactCalls // denied calls that the permit alone would allow
	gone    bool       // no rules, because they would allow too much
	blurred int        // calls that the rules decide differently and cannot be made to match
}

// exactCalls is a set of calls, each described by all its traits.
type exactCalls struct {
	conditions map[string][]string
	order      []string
	over       bool
}

func (x *exactCalls) addCall(conditions []string) (fresh bool) {
	k := strings.Join(conditions, "\n")
	if _, in := x.conditions[k]; in {
		return false
	}
	if len(x.order) == maxExact {
		fresh, x.over = !x.over, true
		return fresh
	}
	if x.conditions == nil {
		x.conditions = map[string][]string{}
	}
	x.conditions[k], x.order = conditions, append(x.order, k)
	return true
}

// dropCall removes entry i for good: it cannot be added again.
func (x *exactCalls) dropCall(i int) {
	x.conditions[x.order[i]] = nil
}

// draftPolicy is a suggestion under construction.
type draftPolicy struct {
	actions []Action
	groups  map[bailey.CapabilityID]*callGroup
	order   []*callGroup
	calls   int
	causes  map[string]*Cause
}

// Suggest derives rules from past calls, over which it iterates several times. It checks the rules against each call.
// If they would allow a denied call or ask for an allowed one, it makes them narrower.
func Suggest(actions []Action, past iter.Seq[Past]) (Suggestion, error) {
	m, err := newModel(actions)
	if err != nil {
		return Suggestion{}, err
	}
	d := draftPolicy{actions: actions, groups: map[bailey.CapabilityID]*callGroup{}, causes: map[string]*Cause{}}
	for _, a := range m.actions {
		d.groups[a.ID] = &callGroup{Suggested: Suggested{Capability: a.ID}, act: a, traits: traitsOf(a)}
	}
	for p := range past {
		d.countCall(p)
	}
	for _, a := range m.actions {
		if g := d.groups[a.ID]; g.Allowed+g.Asked > 0 {
			d.order = append(d.order, g)
		}
	}
	slices.SortFunc(d.order, func(a, b *callGroup) int { return strings.Compare(string(a.Capability), string(b.Capability)) })
	for range maxRounds {
		e, err := d.loadEngine()
		if err != nil {
			return Suggestion{}, err
		}
		if !d.checkAgainstPast(e, past) {
			return d.buildSuggestion(), nil
		}
	}
	return Suggestion{}, bailey.Internal.New("the rules never came to fit the past", "take a shorter stretch of it")
}

func (d *draftPolicy) loadEngine() (*Engine, error) {
	return Load(Config{Sources: []Source{{Name: "suggested.cedar", Text: d.formatRules()}}, Actions: d.actions})
}

// countCall adds a call.
func (d *draftPolicy) countCall(p Past) {
	d.calls++
	g := d.groups[p.Request.Capability]
	switch {
	case p.Unknown != "":
		countCause(d.causes, p.Unknown, p.Receipt)
		return
	case g == nil:
		countCause(d.causes, "the capability is not there today", p.Receipt)
		return
	}
	w, err := newWorld(g.act, p.Request)
	if err != nil {
		countCause(d.causes, "its arguments cannot be judged", p.Receipt)
		return
	}
	g.addCall(p, w)
}

func (g *callGroup) addCall(p Past, w *cedarRequest) {
	if g.First == "" {
		g.First = p.Receipt
	}
	g.Last = p.Receipt
	if p.Was == bailey.Deny {
		g.Denied++
		return
	}
	f := facetsOf(g.traits, p, w)
	g.permit = addFacets(g.permit, f)
	if p.Was == bailey.Allow {
		g.Allowed++
		return
	}
	g.Asked++
	if builtinAsks(p, w) {
		return
	}
	g.ask = addFacets(g.ask, f)
	g.asks.addCall(exactConditions(g.traits, f))
	g.mergeApprovals(p.Asks)
}

func addFacets(counts []traitSummary, f []facet) []traitSummary {
	if counts == nil {
		counts = make([]traitSummary, len(f))
	}
	for i := range f {
		counts[i].addFacet(f[i])
	}
	return counts
}

// builtinAsks reports whether the built-in rules ask for a call, whatever other rules say.
func builtinAsks(p Past, w *cedarRequest) bool { return p.Request.Changed || w.hasOpaqueInput() }

// mergeApprovals merges the approvals that were required and keeps the strictest count and level.
func (g *callGroup) mergeApprovals(asks []bailey.Rule) {
	for _, r := range asks {
		g.count = max(g.count, r.Count)
		g.level = g.level.Stricter(r.Level)
		g.mixed = g.mixed || g.role != "" && r.Role != "" && g.role != r.Role
		if g.role == "" && roleForm().MatchString(r.Role) {
			g.role = r.Role
		}
	}
}

// exactConditions describes a call by all its traits that can be expressed.
func exactConditions(traits []trait, f []facet) (conditions []string) {
	for i, t := range traits {
		if c := f[i].exactCondition(t); c != "" {
			conditions = append(conditions, c)
		}
	}
	return conditions
}
