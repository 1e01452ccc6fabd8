package cedar

import (
	"slices"
	"testing"
)

// report shrinks the case of a finding and fails the test with it.
func (c *court) report(t *testing.T, f finding) {
	const tries = 2000
	left := tries
	for smaller := true; smaller && left > 0; {
		smaller = false
		for _, s := range f.trial.smaller() {
			if left--; left < 0 {
				break
			}
			found, err := c.hear([]*trial{s})
			if err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(found, func(g finding) bool { return g.class == f.class }); i >= 0 {
				f, smaller = found[i], true
				break
			}
		}
	}
	t.Errorf("%s: %s\n%s", f.class, f.words, f.trial)
}

// smaller returns the trials with one part less.
func (c *trial) smaller() (out []*trial) {
	for i := range c.requests {
		if len(c.requests) > 1 {
			out = append(out, &trial{c.rules, c.requests[i : i+1], c.asked[i : i+1]})
		}
	}
	put := func(rules []rule) { out = append(out, &trial{rules, c.requests, c.asked}) }
	for i, r := range c.rules {
		put(slices.Delete(slices.Clone(c.rules), i, i+1))
		with := func(r rule) {
			rules := slices.Clone(c.rules)
			rules[i] = r
			put(rules)
		}
		for _, widen := range []func(*rule){func(r *rule) { r.who = "" }, func(r *rule) { r.what = "" }, func(r *rule) { r.scope = "" }} {
			q := r
			if widen(&q); q.String() != r.String() {
				with(q)
			}
		}
		for j, cl := range r.clauses {
			q := r
			q.clauses = slices.Delete(slices.Clone(r.clauses), j, j+1)
			with(q)
			for _, e := range cl.body.smaller() {
				q.clauses = slices.Clone(r.clauses)
				q.clauses[j].body = e
				with(q)
			}
		}
	}
	return out
}

// smaller returns the expressions in which an argument, or the simplest value of its type, replaces the whole.
func (e *expr) smaller() (out []*expr) {
	plain := [...]string{boolean: "true", long: "0", str: `""`, strs: `["a"]`, longs: "[0]", rec: "{}", agent: "principal", target: "resource", act: "action"}[e.kind]
	if e.String() != plain && (len(e.args) > 0 || e.kind != boolean && e.text[0] != plain) {
		out = append(out, leaf(e.kind, plain))
	}
	out = append(out, e.args...)
	for i, a := range e.args {
		for _, s := range a.smaller() {
			q := *e
			q.args = slices.Clone(e.args)
			q.args[i] = s
			out = append(out, &q)
		}
	}
	return out
}
