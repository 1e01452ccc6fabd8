package server

import (
	"fmt"
	"strings"
	"time"

	"bailey"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policyfiles"
	"bailey/internal/terminal"
)

// sinceOf returns the start of each budget: now, unless it already counted in the same way.
func sinceOf(old, list []bailey.Budget, now time.Time) (since []apitype.BudgetSince) {
	for _, b := range list {
		at := now
		for _, o := range old {
			if o.SameCount(b) {
				at = o.Since
			}
		}
		since = append(since, apitype.BudgetSince{ID: b.ID, At: at})
	}
	return since
}

// budgetChanges describes the changes of budgets, one line each.
func budgetChanges(old, now []bailey.Budget) []string {
	lines := []string{}
	words := func(b bailey.Budget) string {
		var w []string
		for _, bound := range []struct {
			set   bool
			words string
		}{
			{b.Calls > 0, apitype.Counts(b.Calls, "call")}, {b.Concurrent > 0, fmt.Sprintf("%d at one time", b.Concurrent)}, {b.Wall > 0, b.Wall.String() + " of running tools"},
			{b.CPU > 0, b.CPU.String() + " of processor time"}, {b.Output > 0, fmt.Sprintf("%d bytes of output", b.Output)},
			{b.Session, "per session"}, {b.Agent, "per agent"}, {b.Capability, "per capability"}, {b.Within > 0, "within " + b.Within.String()},
			{len(b.Capabilities) > 0, "of " + apitype.List(ids(b.Capabilities))}, {len(b.Agents) > 0, "by " + apitype.List(b.Agents)},
		} {
			if bound.set {
				w = append(w, bound.words)
			}
		}
		return strings.Join(w, ", ")
	}
	find := func(in []bailey.Budget, id string) string {
		for _, b := range in {
			if b.ID == id {
				return words(b)
			}
		}
		return ""
	}
	for _, b := range now {
		switch was := find(old, b.ID); {
		case was == "":
			lines = append(lines, fmt.Sprintf("+ budget %s: %s", b.ID, words(b)))
		case was != words(b):
			lines = append(lines, fmt.Sprintf("budget %s: was %s; now %s", b.ID, was, words(b)))
		}
	}
	for _, b := range old {
		if find(now, b.ID) == "" {
			lines = append(lines, fmt.Sprintf("- budget %s: was %s", b.ID, words(b)))
		}
	}
	return lines
}

func ids(list []bailey.CapabilityID) (words []string) {
	for _, id := range list {
		words = append(words, string(id))
	}
	return words
}

// textDifference shows the changed lines of each file.
func textDifference(old, now policyfiles.Files) string {
	texts := map[string][2]string{}
	var names []string
	for i, f := range []policyfiles.Files{old, now} {
		for _, s := range f.All() {
			pair, known := texts[s.Name]
			if !known {
				names = append(names, s.Name)
			}
			pair[i] = string(s.Text)
			texts[s.Name] = pair
		}
	}
	var b strings.Builder
	for _, name := range names {
		if d := terminal.Diff(texts[name][0], texts[name][1]); d != "" {
			fmt.Fprintf(&b, "  %s\n%s", name, d)
		}
	}
	return b.String()
}

// drift describes how the files differ from the applied policy, or returns "".
func (r *policyStore) drift() string {
	applied, now := r.Applied(), r.now.Load()
	if applied.Dir == "" {
		return ""
	}
	files, err := policyfiles.ReadDir(applied.Dir)
	if err != nil {
		return fmt.Sprintf("what was applied stays in use, but its files cannot be read: %v", err)
	}
	var names []string
	texts := map[string]string{}
	for _, s := range now.Files.All() {
		texts[s.Name] = string(s.Text)
	}
	for _, s := range files.All() {
		was, known := texts[s.Name]
		if delete(texts, s.Name); !known || was != string(s.Text) {
			names = append(names, s.Name)
		}
	}
	for name := range texts {
		names = append(names, name+" (gone)")
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s in %s differs from what was applied, which stays in use", apitype.List(names), applied.Dir)
}
