package policy

import (
	"iter"
	"slices"
	"strings"

	"bailey"
)

// Suggestion is rules that would have allowed what was allowed and asked for what was asked for. It is for a person
// to look at.
type Suggestion struct {
	Text         []byte      `json:"text"`
	Calls        int         `json:"calls"`
	Capabilities []Suggested `json:"capabilities"`
	Undecided    []Cause     `json:"leftOut,omitempty"` // calls that no rule was made of
}

// Suggested is what was seen of a capability, and what its rules do not say.
type Suggested struct {
	Capability bailey.CapabilityID `json:"capability"`
	Allowed    int                 `json:"allowed"`
	Asked      int                 `json:"asked"`
	Denied     int                 `json:"denied"`
	First      bailey.ReceiptID    `json:"first"`
	Last       bailey.ReceiptID    `json:"last"`
	Notes      []string            `json:"notes,omitempty"`
}

// Bounds on how many single calls a suggestion spells out for one capability.
const (
	maxExact  = 64
	maxRounds = 6
)

// group is what is known of one capability's calls.
type group struct {
	Suggested
	act     *action
	traits  []trait
	permit  []count // of what was allowed and of what was asked for
	ask     []count // of what was asked for by a rule of one's own
	role    string
	level   bailey.Level
	mixed   bool // several roles were asked
	count   int
	asks    exacts
	narrow  bool   // a rule for all that was asked for would ask for what was allowed
	never   exacts // calls that were denied and that the permit alone would allow
	gone    bool   // no rules: they would allow too much
	blurred int    // calls that the rules decide otherwise, whatever they are
}

// exacts are calls in all their traits, each once.
type exacts struct {
	conditions map[string][]string
	order      []string
	over       bool
}

func (x *exacts) add(conditions []string) (fresh bool) {
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

// drop takes out the one that its place names, for good.
func (x *exacts) drop(i int) {
	x.conditions[x.order[i]] = nil
}

// drafts is a suggestion in the making.
type drafts struct {
	actions []Action
	groups  map[bailey.CapabilityID]*group
	order   []*group
	calls   int
	causes  map[string]*Cause
}

// Suggest makes rules of the past, which it goes through several times: rules that are made of many calls are held
// against each of them, and made narrower where they would allow what was denied or ask for what was allowed.
func Suggest(actions []Action, past iter.Seq[Past]) (Suggestion, error) {
	m, err := newModel(actions)
	if err != nil {
		return Suggestion{}, err
	}
	d := drafts{actions: actions, groups: map[bailey.CapabilityID]*group{}, causes: map[string]*Cause{}}
	for _, a := range m.actions {
		d.groups[a.ID] = &group{Suggested: Suggested{Capability: a.ID}, act: a, traits: traitsOf(a)}
	}
	for p := range past {
		d.count(p)
	}
	for _, a := range m.actions {
		if g := d.groups[a.ID]; g.Allowed+g.Asked > 0 {
			d.order = append(d.order, g)
		}
	}
	slices.SortFunc(d.order, func(a, b *group) int { return strings.Compare(string(a.Capability), string(b.Capability)) })
	for range maxRounds {
		e, err := d.load()
		if err != nil {
			return Suggestion{}, err
		}
		if !d.check(e, past) {
			return d.finish(), nil
		}
	}
	return Suggestion{}, &bailey.Error{Kind: bailey.Internal, Message: "the rules never came to fit the past", Hint: "take a shorter stretch of it"}
}

func (d *drafts) load() (*Engine, error) {
	return Load(Config{Sources: []Source{{Name: "suggested.cedar", Text: d.write()}}, Actions: d.actions})
}

// count takes a call in.
func (d *drafts) count(p Past) {
	d.calls++
	g := d.groups[p.Request.Capability]
	switch {
	case p.Unknown != "":
		tally(d.causes, p.Unknown, p.Receipt)
		return
	case g == nil:
		tally(d.causes, "the capability is not there today", p.Receipt)
		return
	}
	w, err := newWorld(g.act, p.Request)
	if err != nil {
		tally(d.causes, "its arguments cannot be judged", p.Receipt)
		return
	}
	g.take(p, w)
}

func (g *group) take(p Past, w *world) {
	if g.First == "" {
		g.First = p.Receipt
	}
	g.Last = p.Receipt
	if p.Was == bailey.Deny {
		g.Denied++
		return
	}
	f := facets(g.traits, p, w)
	g.permit = added(g.permit, f)
	if p.Was == bailey.Allow {
		g.Allowed++
		return
	}
	g.Asked++
	if builtinAsks(p, w) {
		return
	}
	g.ask = added(g.ask, f)
	g.asks.add(exactly(g.traits, f))
	g.who(p.Asks)
}

func added(counts []count, f []facet) []count {
	if counts == nil {
		counts = make([]count, len(f))
	}
	for i := range f {
		counts[i].add(f[i])
	}
	return counts
}

// builtinAsks tells of a call that the built-in rules ask for, whatever other rules say.
func builtinAsks(p Past, w *world) bool { return p.Request.Changed || w.opaque() }

// who keeps the strictest of what was wanted of those who were asked.
func (g *group) who(asks []bailey.Rule) {
	for _, r := range asks {
		g.count = max(g.count, r.Count)
		g.level = g.level.Stricter(r.Level)
		g.mixed = g.mixed || g.role != "" && r.Role != "" && g.role != r.Role
		if g.role == "" && roleForm().MatchString(r.Role) {
			g.role = r.Role
		}
	}
}

// exactly states a call in all that can be said of it.
func exactly(traits []trait, f []facet) (conditions []string) {
	for i, t := range traits {
		if c := f[i].exactly(t); c != "" {
			conditions = append(conditions, c)
		}
	}
	return conditions
}
