package policy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"bailey"
)

// suggestedID returns the id of a rule of the group.
func (g *callGroup) suggestedID(kind string, n int) string {
	return ruleID(fmt.Sprintf("suggested-%s-%d", kind, n), g.Capability)
}

// formatRules formats the current rules.
func (d *draftPolicy) formatRules() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Rules that fit %d calls of the past, for a person to look at. Nothing here counts by itself:\n"+
		"// put the file into a policy directory, then bailey policy check DIR and bailey policy apply DIR.\n", d.calls)
	for _, c := range sortedCauses(d.causes) {
		fmt.Fprintf(&b, "// %d calls are left out: %s.\n", c.Calls, commentLine(c.Why))
	}
	if len(d.order) == 0 {
		b.WriteString("// No call was allowed, and none was asked for: there is no rule to suggest.\n")
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
			fmt.Fprintf(b, "\n@id(%q)\n@reason(\"a call like this was denied\")\nforbid (principal, action == %s, resource)", g.suggestedID("never", i+1), g.act.uid)
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
	who := fmt.Sprintf("count=%d,ttl=10m", max(1, min(g.count, maxCount)))
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
		fmt.Fprintf(b, "\n@id(%q)\n@reason(\"a person was asked about calls like this\")\n@approval(%q)\nforbid (principal, action == %s, resource)", id, who, g.act.uid)
		writeClauses(b, conditions)
		fmt.Fprintf(b, "\nunless { context.approvals.contains(%q) };\n", id)
	}
}

func writeClauses(b *bytes.Buffer, conditions []string) {
	for _, c := range conditions {
		fmt.Fprintf(b, "\nwhen { %s }", c)
	}
}

// splitScope returns the head of the permit, with the principal and the resource if only one of each was seen. rest has the
// conditions that the head does not express.
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
	return fmt.Sprintf("%s, action == %s, %s", principal, g.act.uid, resource), rest
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
		return []string{fmt.Sprintf("no rule: it would take more than %d exceptions to keep denied what was denied; write one by hand", maxExact)}
	}
	for i, t := range g.traits {
		list = append(list, g.permit[i].traitNotes(t)...)
	}
	if g.mixed {
		list = append(list, "several roles were asked: say which in @approval")
	}
	if g.ask != nil && g.role == "" {
		list = append(list, "receipts do not say who had to approve: look at @approval")
	}
	if g.asks.over && g.Allowed > 0 {
		list = append(list, fmt.Sprintf("more than %d different calls were asked for: the rule may ask for some that were allowed", maxExact))
	}
	if g.blurred > 0 {
		list = append(list, fmt.Sprintf("%d calls are decided otherwise than they were: nothing that a rule may hold tells them from others, or they hold what no rule can", g.blurred))
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
