package cedar

import (
	"fmt"
	"slices"
	"strings"
)

// clause is a when or unless clause.
type clause struct {
	word string
	body *expr
}

// rule is a policy in the form that the engine loads, or nearly so.
type rule struct {
	id, effect, who, what string
	scope                 string // of the action, with its operator
	asks                  bool
	clauses               []clause
}

func (r rule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "@id(%q) @reason(%q) ", r.id, r.id)
	if r.asks {
		b.WriteString(`@approval("count=1") `)
	}
	fmt.Fprintf(&b, "%s (principal%s, action%s, resource%s)", r.effect, r.who, r.scope, r.what)
	for _, c := range r.clauses {
		fmt.Fprintf(&b, "\n%s { %s }", c.word, c.body)
	}
	return b.String() + ";\n"
}

func (d dice) rule(i int) rule {
	r := rule{id: fmt.Sprintf("r%d", i), effect: "permit"}
	w := &writer{dice: d, has: everywhere(), amiss: pick(d, 0, 0, 0, 0, 0, 60, 15)}
	r.scope = d.scope(w)
	r.who = pick(d, "", "", "", ` == Agent::"claude"`, ` in Agent::"claude"`, ` is Agent`)
	r.what = pick(d, "", "", "", ` == Target::"local"`, ` in Target::"host:web1"`, ` is Target`)
	if i == 0 && d.IntN(3) > 0 { // otherwise almost nothing would be allowed
		r.scope, r.who, r.what = pick(d, "", "", r.scope, ` == Action::"disk.wipe"`, ` in [Action::"disk.wipe", Action::"git.push"]`), "", ""
		if d.IntN(4) == 0 {
			r.clauses = append(r.clauses, clause{"when", leaf(boolean, `["PASSWORD", "JWT", "a"].containsAll(context.restores)`)})
		}
		return r
	}
	for range pick(d, 0, 1, 1, 1, 2) {
		r.clauses = append(r.clauses, clause{pick(d, "when", "when", "unless"), w.expr(boolean, 1+d.IntN(4))})
	}
	switch d.IntN(6) {
	case 0, 1:
		r.effect = "forbid"
	case 2:
		r.effect, r.asks = "forbid", true
		grant := leaf(boolean, fmt.Sprintf("context.approvals.contains(%q)", r.id))
		body := grant
		switch d.IntN(6) {
		case 0:
			body = form(boolean, "@ && @", grant, w.expr(boolean, 2))
		case 1:
			body = form(boolean, "@ && @", w.expr(boolean, 2), grant)
		}
		r.clauses = slices.Insert(r.clauses, d.IntN(len(r.clauses)+1), clause{"unless", body})
	}
	return r
}

// scope returns a scope of actions, and gives the writer the inputs that all of them have, or sometimes do not have.
func (d dice) scope(w *writer) string {
	all := capabilities()
	if d.IntN(3) == 0 {
		return pick(d, "", ` in Action::"pack:git"`, ` in Action::"sideEffect:readOnly"`, ` in Action::"risk:high"`, ` in Action::"builtin"`, ` in Action::"risk:critical"`,
			` in [Action::"git.push", Action::"pack:disk"]`, ` in Action::"disk.wipe"`, ` in [Action::"risk:critical", Action::"other.look"]`, ` == Action::"pack:git"`)
	}
	c := pick(d, all[0], all[0], all[1], all[2], all[3], all[4])
	w.has = append(w.has, c.input...)
	w.has = append(w.has, c.input...)
	if d.IntN(8) == 0 {
		w.has = append(w.has, attr{pick(d, "context.input.if", "context.input.nothing", "context.nothing", `context.input["repo"]`, "context.input.in", "context.input.like"), pick(d, str, long), ""})
	}
	return fmt.Sprintf(pick(d, ` == Action::"%s"`, ` in Action::"%s"`, ` in [Action::"%s"]`), c.ID)
}
