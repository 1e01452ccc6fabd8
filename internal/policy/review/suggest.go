package review

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"bailey"
	"bailey/internal/policy"
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
	uid     cedar.EntityUID // the action
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
	actions []policy.Action
	empty   *policy.Engine // the actions without rules
	groups  map[bailey.CapabilityID]*callGroup
	order   []*callGroup
	calls   int
	causes  map[string]*Cause
}

// Suggest derives rules from past calls, over which it iterates several times. It checks the rules against each call.
// If they would allow a denied call or ask for an allowed one, it makes them narrower.
func Suggest(actions []policy.Action, past iter.Seq[Past]) (Suggestion, error) {
	empty, err := policy.Load(policy.Config{Actions: actions})
	if err != nil {
		return Suggestion{}, err
	}
	d := draftPolicy{actions: actions, empty: empty, groups: map[bailey.CapabilityID]*callGroup{}, causes: map[string]*Cause{}}
	for _, a := range empty.Actions() {
		d.groups[a.ID] = &callGroup{Suggested: Suggested{Capability: a.ID}, uid: policy.ActionUID(string(a.ID)),
			traits: traitsOf(empty.ScalarInputs(a.ID))}
	}
	for p := range past {
		d.countCall(p)
	}
	for _, a := range empty.Actions() { // sorted by id
		if g := d.groups[a.ID]; g.Allowed+g.Asked > 0 {
			d.order = append(d.order, g)
		}
	}
	for range maxRounds {
		e, err := d.loadEngine()
		if err != nil {
			return Suggestion{}, err
		}
		if !d.checkAgainstPast(e, past) {
			return d.buildSuggestion(), nil
		}
	}
	return Suggestion{}, bailey.Internal.New("no rules were found that fit the past calls", "use a shorter period")
}

func (d *draftPolicy) loadEngine() (*policy.Engine, error) {
	return policy.Load(policy.Config{Sources: []policy.Source{{Name: "suggested.cedar", Text: d.formatRules()}}, Actions: d.actions})
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
		countCause(d.causes, "the capability no longer exists", p.Receipt)
		return
	}
	w := d.empty.Examine(p.Request).Request
	if w == nil {
		countCause(d.causes, "its arguments cannot be evaluated", p.Receipt)
		return
	}
	g.addCall(p, w)
}

func (g *callGroup) addCall(p Past, w *policy.CedarRequest) {
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
func builtinAsks(p Past, w *policy.CedarRequest) bool { return p.Request.Changed || hasOpaqueInput(w) }

// mergeApprovals merges the approvals that were required and keeps the strictest count and level.
func (g *callGroup) mergeApprovals(asks []bailey.Rule) {
	for _, r := range asks {
		g.count = max(g.count, r.Count)
		g.level = g.level.Stricter(r.Level)
		g.mixed = g.mixed || g.role != "" && r.Role != "" && g.role != r.Role
		if g.role == "" && policy.IsRole(r.Role) {
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

func hasOpaqueInput(w *policy.CedarRequest) bool {
	v, _ := inputOf(w).Get(policy.OpaqueName)
	s, ok := v.(cedar.Set)
	return ok && s.Len() > 0
}

// checkAgainstPast applies the rules to each call that they were derived from, and records which rules must be
// narrower. It reports whether the rules must be written again.
func (d *draftPolicy) checkAgainstPast(e *policy.Engine, past iter.Seq[Past]) (again bool) {
	for _, g := range d.order {
		g.blurred = 0
	}
	c := &pastChecker{engine: e}
	for p := range past {
		g := d.groups[p.Request.Capability]
		if g == nil || g.gone || g.Allowed+g.Asked == 0 || c.whyUndecidable(p) != "" {
			continue
		}
		if v := e.Examine(p.Request); v.Request != nil && v.Effect != p.Was && g.adjustToCall(p, v) {
			again = true
		}
	}
	return again
}

// adjustToCall adjusts a group to one call that the rules decide differently.
func (g *callGroup) adjustToCall(p Past, v policy.Verdict) (again bool) {
	switch {
	case p.Was == bailey.Deny:
		return g.keepDenied(exactConditions(g.traits, facetsOf(g.traits, p, v.Request)))
	case v.Effect == bailey.Ask && !g.narrow && !g.asks.over && len(g.ask) > 0 && !builtinAsks(p, v.Request):
		g.narrow = true
		return true
	case v.Effect == bailey.Deny && g.liftForbids(v.Rules):
		return true
	}
	g.blurred++
	return false
}

// keepDenied keeps a call denied. If an allowed call has the same description, the call stays allowed and is counted.
func (g *callGroup) keepDenied(conditions []string) (again bool) {
	if known, in := g.never.conditions[strings.Join(conditions, "\n")]; in && known == nil {
		g.blurred++
		return false
	}
	again = g.never.addCall(conditions)
	g.gone = g.gone || g.never.over
	return again
}

// liftForbids removes forbids that deny more than they should: a receipt does not distinguish the two calls.
func (g *callGroup) liftForbids(rules []bailey.Rule) (lifted bool) {
	for i := range g.never.order {
		id := bailey.RuleID(g.suggestedID("never", i+1))
		if slices.ContainsFunc(rules, func(r bailey.Rule) bool { return r.ID == id }) {
			g.never.dropCall(i)
			lifted = true
		}
	}
	return lifted
}

// suggestedID returns the id of a rule of the group.
func (g *callGroup) suggestedID(kind string, n int) string {
	return ruleID(fmt.Sprintf("suggested-%s-%d", kind, n), g.Capability)
}

// formatRules formats the current rules.
func (d *draftPolicy) formatRules() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Rules that fit %d past calls, for review. They have no effect yet:\n"+
		"// put the file into a policy directory, then bailey policy check DIR and bailey policy apply DIR.\n", d.calls)
	for _, c := range sortedCauses(d.causes) {
		fmt.Fprintf(&b, "// %d calls are left out: %s.\n", c.Calls, commentLine(c.Why))
	}
	if len(d.order) == 0 {
		b.WriteString("// No call was allowed or asked for, so there is no rule to suggest.\n")
	}
	for _, g := range d.order {
		g.writeGroup(&b)
	}
	return b.Bytes()
}

func (g *callGroup) writeGroup(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n// %s: %d calls allowed, %d asked for, %d denied, from %s to %s.\n", g.Capability, g.Allowed,
		g.Asked, g.Denied,
		commentLine(string(g.First)), commentLine(string(g.Last)))
	for _, n := range g.reviewNotes() {
		fmt.Fprintf(b, "// %s.\n", commentLine(n))
	}
	if g.gone {
		return
	}
	conditions := g.conditionsFrom(g.permit, false)
	head, rest := g.splitScope(conditions)
	fmt.Fprintf(b, "@id(%q)\npermit (%s)", g.suggestedID("allow", 1), head)
	writeClauses(b, rest)
	b.WriteString(";\n")
	if g.ask != nil {
		g.writeAsks(b, conditions)
	}
	for i, k := range g.never.order {
		if c := g.never.conditions[k]; c != nil {
			fmt.Fprintf(b, "\n@id(%q)\n@reason(\"a call like this was denied\")\nforbid (principal, action == %s, resource)", g.suggestedID("never", i+1), g.uid)
			writeClauses(b, c)
			b.WriteString(";\n")
		}
	}
}

// writeAsks writes one rule for all calls that asked. If that rule would ask for other calls too, it writes one for
// each.
func (g *callGroup) writeAsks(b *bytes.Buffer, permit []string) {
	each := [][]string{slices.DeleteFunc(g.conditionsFrom(g.ask, true), func(c string) bool { return slices.Contains(permit, c) })}
	if g.narrow {
		each = nil
		for _, k := range g.asks.order {
			each = append(each, g.asks.conditions[k])
		}
	}
	who := fmt.Sprintf("count=%d,ttl=10m", max(1, min(g.count, policy.MaxCount)))
	switch {
	case g.level == "":
	// The level is of another version and would not load. The strictest level asks for no less.
	case !g.level.Meets(""):
		who = "level=" + string(bailey.SignedTouch) + "," + who
	default:
		who = "level=" + string(g.level) + "," + who
	}
	if g.role != "" && !g.mixed {
		who = "role=" + g.role + "," + who
	}
	for i, conditions := range each {
		id := g.suggestedID("ask", i+1)
		fmt.Fprintf(b, "\n@id(%q)\n@reason(\"a person was asked about calls like this\")\n@approval(%q)\nforbid (principal, action == %s, resource)", id, who, g.uid)
		writeClauses(b, conditions)
		fmt.Fprintf(b, "\nunless { context.approvals.contains(%q) };\n", id)
	}
}

func writeClauses(b *bytes.Buffer, conditions []string) {
	for _, c := range conditions {
		fmt.Fprintf(b, "\nwhen { %s }", c)
	}
}

// splitScope returns the head of the permit, with the principal and the resource if only one of each was seen. rest has
// the conditions that the head does not express.
func (g *callGroup) splitScope(conditions []string) (head string, rest []string) {
	principal, resource := "principal", "resource"
	for _, c := range conditions {
		switch {
		case strings.HasPrefix(c, "principal == "):
			principal = c
		case strings.HasPrefix(c, "resource == "):
			resource = c
		default:
			rest = append(rest, c)
		}
	}
	return fmt.Sprintf("%s, action == %s, %s", principal, g.uid, resource), rest
}

// conditionsFrom returns the conditions that follow from the counts.
func (g *callGroup) conditionsFrom(counts []traitSummary, wide bool) (list []string) {
	for i, t := range g.traits {
		if text := counts[i].conditionFor(t, wide); text != "" {
			list = append(list, text)
		}
	}
	return list
}

// reviewNotes returns the information that a reader of the rules needs.
func (g *callGroup) reviewNotes() (list []string) {
	if g.gone {
		return []string{fmt.Sprintf("no rule: it would need more than %d exceptions to keep denying the denied calls; write one by hand", maxExact)}
	}
	for i, t := range g.traits {
		list = append(list, g.permit[i].traitNotes(t)...)
	}
	if g.mixed {
		list = append(list, "several roles were asked: name them in @approval")
	}
	if g.ask != nil && g.role == "" {
		list = append(list, "receipts do not record who had to approve: check @approval")
	}
	if g.asks.over && g.Allowed > 0 {
		list = append(list, fmt.Sprintf("more than %d different calls were asked for: the rule may ask for some that were allowed", maxExact))
	}
	if g.blurred > 0 {
		list = append(list, fmt.Sprintf("%d calls are decided differently: a rule cannot distinguish them from others, or they contain values that no rule can", g.blurred))
	}
	return list
}

// buildSuggestion writes the final suggestion with its notes.
func (d *draftPolicy) buildSuggestion() Suggestion {
	s := Suggestion{Text: d.formatRules(), Calls: d.calls, Capabilities: []Suggested{},
		Undecided: sortedCauses(d.causes)}
	for _, g := range d.order {
		g.Notes = g.reviewNotes()
		s.Capabilities = append(s.Capabilities, g.Suggested)
	}
	return s
}
