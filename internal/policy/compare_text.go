package policy

import (
	"fmt"
	"slices"
	"strings"
)

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

// formatLines writes one line for each rule. It cuts a long list unless whole is set; the last section of the output has all
// rules.
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
