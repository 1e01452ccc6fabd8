package review

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/policy"
)

// Standing is the best outcome that the scopes of the rules permit for a capability. It does not consider conditions.
type Standing string

const (
	Absent  Standing = "absent"           // the capability does not exist
	Denied  Standing = "denied"           // for every call
	Allowed Standing = "allowed"          // if the conditions of the rules hold
	Asks    Standing = "allowed or asked" // and one of the policy's own rules may ask
)

// RuleAt names a rule and its position. Was is its position in the old policy, if both policies have it.
type RuleAt struct {
	ID     bailey.RuleID `json:"id"`
	Effect string        `json:"effect"` // permit, forbid, ask
	Source string        `json:"source"` // file:line
	Was    string        `json:"was,omitempty"`
}

// RuleChanges lists the rules that differ between two policies, for all capabilities or for one. Comments, white space
// and the position of a rule do not count as differences.
type RuleChanges struct {
	Added     []RuleAt `json:"added"`
	Removed   []RuleAt `json:"removed"`
	Rewritten []RuleAt `json:"rewritten"`
}

func (c RuleChanges) isEmpty() bool { return len(c.Added)+len(c.Removed)+len(c.Rewritten) == 0 }

// Shift is a capability that two policies treat differently.
type Shift struct {
	Capability bailey.CapabilityID `json:"capability"`
	Was        Standing            `json:"was"`
	Now        Standing            `json:"now"`
	Rules      RuleChanges         `json:"rules"` // only rules that cover it
}

// Difference is the effect of a policy change.
type Difference struct {
	Gained  []Shift     `json:"gained"`  // was denied for every call, and may run now
	Lost    []Shift     `json:"lost"`    // may have run, and is denied for every call now
	Changed []Shift     `json:"changed"` // may still run, by other rules
	Rules   RuleChanges `json:"rules"`
}

// None reports whether both policies mean the same.
func (d Difference) None() bool {
	return len(d.Gained)+len(d.Lost)+len(d.Changed) == 0 && d.Rules.isEmpty()
}

// Compare reports the effect of replacing old by now. The two may know different capabilities.
func Compare(old, now *policy.Engine) Difference {
	d := Difference{Gained: []Shift{}, Lost: []Shift{}, Changed: []Shift{}}
	d.Rules = compareRules(slices.Collect(old.Rules()), slices.Collect(now.Rules()),
		func(a, b *policy.LoadedRule) bool { return a.CanonicalText() == b.CanonicalText() })
	rewritten := map[bailey.RuleID]bool{}
	for _, r := range d.Rules.Rewritten {
		rewritten[r.ID] = true
	}
	ids := map[bailey.CapabilityID]bool{}
	for _, e := range []*policy.Engine{old, now} {
		for _, a := range e.Actions() {
			ids[a.ID] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		s := Shift{Capability: id, Was: standingOf(old, id), Now: standingOf(now, id)}
		s.Rules = compareRules(old.RulesFor(id), now.RulesFor(id),
			func(a, _ *policy.LoadedRule) bool { return !rewritten[a.ID] })
		switch was, is := s.Was.mayRun(), s.Now.mayRun(); {
		case !was && is:
			d.Gained = append(d.Gained, s)
		case was && !is:
			d.Lost = append(d.Lost, s)
		case is && !s.Rules.isEmpty():
			d.Changed = append(d.Changed, s)
		}
	}
	return d
}

func (s Standing) mayRun() bool { return s == Allowed || s == Asks }

// OwnRules returns the rules that deny one of the actions or ask about it, except those of a new home's policy.
func OwnRules(e *policy.Engine, ids ...bailey.CapabilityID) (own []bailey.RuleID) {
	given := []policy.Source{policy.Starter(), policy.Agents(), policy.Sandboxes(), policy.Elsewhere()}
	for _, id := range ids {
		for _, r := range e.RulesFor(id) {
			isGiven := func(s policy.Source) bool { return bytes.Contains(s.Text, []byte(r.Text)) }
			if !r.BuiltIn && !r.IsPermit() && !slices.Contains(own, r.ID) && !slices.ContainsFunc(given, isGiven) {
				own = append(own, r.ID)
			}
		}
	}
	slices.Sort(own)
	return own
}

func standingOf(e *policy.Engine, id bailey.CapabilityID) Standing {
	switch _, known := e.Action(id); {
	case !known:
		return Absent
	case e.Never(id, ""):
		return Denied
	}
	if slices.ContainsFunc(e.RulesFor(id), func(r *policy.LoadedRule) bool { return r.Asks && !r.BuiltIn }) {
		return Asks
	}
	return Allowed
}

// compareRules compares two lists of rules by id. If both lists have an id, it calls same.
func compareRules(old, now []*policy.LoadedRule, same func(old, now *policy.LoadedRule) bool) RuleChanges {
	c := RuleChanges{Added: []RuleAt{}, Removed: []RuleAt{}, Rewritten: []RuleAt{}}
	before := map[bailey.RuleID]*policy.LoadedRule{}
	for _, r := range old {
		before[r.ID] = r
	}
	for _, r := range now {
		o := before[r.ID]
		delete(before, r.ID)
		switch {
		case o == nil && r.BuiltIn: // the capability is new; built-in rules cover each one
		case o == nil:
			c.Added = append(c.Added, ruleAt(r, nil))
		case !same(o, r):
			c.Rewritten = append(c.Rewritten, ruleAt(r, o))
		}
	}
	for _, r := range before {
		if !r.BuiltIn {
			c.Removed = append(c.Removed, ruleAt(r, nil))
		}
	}
	return c.sortByID()
}

func (c RuleChanges) sortByID() RuleChanges {
	for _, list := range [...][]RuleAt{c.Added, c.Removed, c.Rewritten} {
		slices.SortFunc(list, func(a, b RuleAt) int { return cmp.Compare(a.ID, b.ID) })
	}
	return c
}

func ruleAt(r, was *policy.LoadedRule) RuleAt {
	at := RuleAt{ID: r.ID, Effect: effectName(r), Source: r.Source}
	if was != nil {
		at.Was = was.Source
	}
	return at
}

func effectName(r *policy.LoadedRule) string {
	switch {
	case r.IsPermit():
		return "permit"
	case r.Asks:
		return "ask"
	}
	return "forbid"
}

// String formats the difference for a terminal: capabilities that may run now, those that no longer run, and those that
// run by other rules. Capabilities with the same change are grouped.
func (d Difference) String() string {
	if d.None() {
		return "nothing changes: both policies mean the same"
	}
	var b strings.Builder
	writeSection(&b, "may run now", d.Gained)
	writeSection(&b, "no longer runs", d.Lost)
	writeSection(&b, "runs by other rules", d.Changed)
	if !d.Rules.isEmpty() {
		fmt.Fprintf(&b, "rules\n%s", d.Rules.formatLines("  ", true))
	}
	return strings.TrimRight(b.String(), "\n")
}

// writeSection writes shifts and merges equal ones.
func writeSection(b *strings.Builder, title string, shifts []Shift) {
	if len(shifts) == 0 {
		return
	}
	fmt.Fprintf(b, "%s (%d)\n", title, len(shifts))
	var order []string
	alike := map[string][]string{}
	for _, s := range shifts {
		what := fmt.Sprintf("    was %s, now %s\n%s", s.Was, s.Now, s.Rules.formatLines("    ", false))
		if alike[what] == nil {
			order = append(order, what)
		}
		alike[what] = append(alike[what], string(s.Capability))
	}
	for _, what := range order {
		fmt.Fprintf(b, "  %s\n%s", wrapNames(alike[what]), what)
	}
	b.WriteByte('\n')
}

// wrapNames joins names in lines of about a terminal's width. A very long list ends with the number of names left out.
func wrapNames(names []string) string {
	const width, most = 100, 60
	more := ""
	if len(names) > most {
		more, names = fmt.Sprintf(", and %d more", len(names)-most), names[:most]
	}
	var b strings.Builder
	column := 0
	for i, n := range names {
		switch {
		case i == 0:
		case column+len(n) > width:
			b.WriteString(",\n  ")
			column = 0
		default:
			b.WriteString(", ")
		}
		b.WriteString(n)
		column += len(n) + 2
	}
	return b.String() + more
}

// formatLines writes one line for each rule. It cuts a long list unless whole is set; the last section of the output
// has all rules.
func (c RuleChanges) formatLines(indent string, whole bool) string {
	const most = 8
	var out []string
	for _, l := range [...]struct {
		sign  string
		rules []RuleAt
	}{{"+", c.Added}, {"-", c.Removed}, {"~", c.Rewritten}} {
		for _, r := range l.rules {
			line := fmt.Sprintf("%s%s %s %s at %s", indent, l.sign, r.Effect, r.ID, r.Source)
			if r.Was != "" && r.Was != r.Source {
				line += ", before at " + r.Was
			}
			out = append(out, line+"\n")
		}
	}
	if len(out) > most && !whole {
		out = append(slices.Clip(out[:most]), fmt.Sprintf("%sand %d more rules\n", indent, len(out)-most))
	}
	return strings.Join(out, "")
}
