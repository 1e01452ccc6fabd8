package review

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"bailey"
	"bailey/internal/policy"
)

// Past is a call that was decided, reconstructed from its receipt.
type Past struct {
	Request bailey.Request // without grants, as before any approval
	Receipt bailey.ReceiptID
	Was     bailey.Effect
	Asks    []bailey.Rule // rules that asked, if the receipt names them
	DryRun  bool
	Unknown string   // why the call cannot be decided again, or ""
	Hidden  []string // parts of the request that the receipt shows as tokens: "input", "input.NAME", "paths", "dir"
	Marks   []string // why the answer is less certain
}

// hides is the reason if a rule reads a part of the call that the receipt hides.
const hides = "a rule uses data that the receipt hides"

// WhyUndecidable returns why the decision of these rules on p cannot be determined, or "".
func WhyUndecidable(e *policy.Engine, p Past) string {
	return (&pastChecker{engine: e}).whyUndecidable(p)
}

// pastChecker decides past calls. It caches the parts of a request that each rule reads.
type pastChecker struct {
	engine *policy.Engine
	seen   map[*policy.LoadedRule][]string
}

func (c *pastChecker) whyUndecidable(p Past) string {
	if p.Unknown != "" {
		return p.Unknown
	}
	if _, ok := c.engine.Action(p.Request.Capability); !ok {
		return "the capability no longer exists"
	}
	if len(p.Hidden) == 0 {
		return ""
	}
	for _, r := range c.engine.RulesFor(p.Request.Capability) {
		if slices.ContainsFunc(c.partsRead(r), func(at string) bool { return overlapsHidden(at, p.Hidden) }) {
			return hides
		}
	}
	return ""
}

// partsRead returns the parts of a request that a rule reads, named as in [Past.Hidden].
func (c *pastChecker) partsRead(r *policy.LoadedRule) []string {
	at, ok := c.seen[r]
	if !ok {
		if c.seen == nil {
			c.seen = map[*policy.LoadedRule][]string{}
		}
		at = looksAt(r.AST)
		c.seen[r] = at
	}
	return at
}

// overlapsHidden reports whether a part, or a part that contains it or lies in it, is hidden.
func overlapsHidden(at string, hidden []string) bool {
	return slices.ContainsFunc(hidden, func(h string) bool {
		return at == h || strings.HasPrefix(at, h+".") || strings.HasPrefix(h, at+".")
	})
}

// looksAt searches a rule for context.X and context.input.X. A `has` test of an input and the names in
// context.input._opaque do not count, because receipts never hide them.
func looksAt(p *ast.Policy) (at []string) {
	for _, c := range p.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			switch n := n.(type) {
			case ast.NodeTypeHas:
				return !isInput(n.Arg)
			case ast.NodeTypeAccess:
				switch {
				case isInput(n.Arg) && n.Value == policy.OpaqueName:
				case isInput(n.Arg):
					at = append(at, "input."+string(n.Value))
				case policy.IsContext(n.Arg):
					at = append(at, string(n.Value))
				default:
					return true
				}
				return false
			}
			return true
		})
	}
	return at
}

func isInput(n ast.IsNode) bool {
	a, ok := n.(ast.NodeTypeAccess)
	return ok && a.Value == "input" && policy.IsContext(a.Arg)
}

// Report states how rules would have decided past calls.
type Report struct {
	Policy     string   `json:"policyDigest"`
	Calls      int      `json:"calls"` // number of calls examined
	Same       int      `json:"same"`
	Changed    int      `json:"changed"`
	DryRuns    int      `json:"dryRuns"` // number of dry runs among them, which are decided alike
	Changes    []Change `json:"changes"`
	Undecided  int      `json:"undecided"`
	Causes     []Cause  `json:"undecidedBecause,omitempty"`
	Marked     []Cause  `json:"marked,omitempty"` // calls that were decided with a reservation
	NotListed  int      `json:"notListed,omitempty"`
	groups     map[kindOfChange]*Change
	why, marks map[string]*Cause
	listed     int
}

// Change is one kind of changed decision, with the calls affected.
type Change struct {
	Capability bailey.CapabilityID `json:"capability"`
	From       string              `json:"from"`
	To         string              `json:"to"`
	Rules      []string            `json:"rules"` // the rules that decide now: id and position
	Reason     string              `json:"reason"`
	Calls      int                 `json:"calls"`
	Marked     int                 `json:"marked,omitempty"`
	First      bailey.ReceiptID    `json:"first"`
	Last       bailey.ReceiptID    `json:"last"`
	Receipts   []bailey.ReceiptID  `json:"receipts"`
	More       int                 `json:"more,omitempty"` // receipts that are not listed
}

// Cause counts the calls with the same explanation.
type Cause struct {
	Why   string           `json:"why"`
	Calls int              `json:"calls"`
	First bailey.ReceiptID `json:"first"`
	Last  bailey.ReceiptID `json:"last"`
}

// Limits of a report, however many past calls it covers.
const (
	maxListed  = 1_000  // receipts of one change
	maxNamed   = 10_000 // receipts in total
	maxChanges = 10_000
)

// kindOfChange is the key by which calls are grouped into a change.
type kindOfChange struct {
	capability      bailey.CapabilityID
	from, to, rules string
}

// Replay decides each past call again. It keeps only one of them in memory at a time.
func Replay(e *policy.Engine, past iter.Seq[Past]) Report {
	r := Report{Policy: e.Digest(), Changes: []Change{}, groups: map[kindOfChange]*Change{}, why: map[string]*Cause{},
		marks: map[string]*Cause{}}
	c := &pastChecker{engine: e}
	for p := range past {
		r.addCall(c, p)
	}
	for _, g := range r.groups {
		r.Changes = append(r.Changes, *g)
	}
	slices.SortFunc(r.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Capability, b.Capability),
			cmp.Compare(a.From, b.From),
			cmp.Compare(a.To, b.To), slices.Compare(a.Rules, b.Rules))
	})
	r.Causes, r.Marked = sortedCauses(r.why), sortedCauses(r.marks)
	return r
}

func (r *Report) addCall(c *pastChecker, p Past) {
	r.Calls++
	if p.DryRun {
		r.DryRuns++
	}
	if why := c.whyUndecidable(p); why != "" {
		r.Undecided++
		countCause(r.why, why, p.Receipt)
		return
	}
	for _, m := range p.Marks {
		countCause(r.marks, m, p.Receipt)
	}
	d := c.engine.Examine(p.Request).Decision
	if d.Effect == p.Was {
		r.Same++
		return
	}
	r.Changed++
	r.addChange(p, d)
}

// addChange adds a call to its group.
func (r *Report) addChange(p Past, d bailey.Decision) {
	rules := []string{}
	for _, rule := range d.Rules {
		rules = append(rules, string(rule.ID)+" at "+rule.Source)
	}
	k := kindOfChange{p.Request.Capability, p.Was.String(), d.Effect.String(), strings.Join(rules, " ")}
	g := r.groups[k]
	if g == nil {
		if len(r.groups) == maxChanges {
			r.NotListed++
			return
		}
		g = &Change{Capability: k.capability, From: k.from, To: k.to, Rules: rules, Reason: d.Reason, First: p.Receipt,
			Receipts: []bailey.ReceiptID{}}
		r.groups[k] = g
	}
	g.Calls++
	g.Last = p.Receipt
	if len(p.Marks) > 0 {
		g.Marked++
	}
	if len(g.Receipts) == maxListed || r.listed == maxNamed {
		g.More++
		return
	}
	g.Receipts = append(g.Receipts, p.Receipt)
	r.listed++
}

func countCause(m map[string]*Cause, why string, id bailey.ReceiptID) {
	c := m[why]
	if c == nil {
		c = &Cause{Why: why, First: id}
		m[why] = c
	}
	c.Calls++
	c.Last = id
}

func sortedCauses(m map[string]*Cause) (list []Cause) {
	for _, c := range m {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b Cause) int { return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Why, b.Why)) })
	return list
}
