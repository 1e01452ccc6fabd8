package jail

import (
	"bailey"
	"bailey/internal/jail/inside"
)

var _ bailey.WarmRun = (*run)(nil)

// Warm returns the parts of the plan that a warm helper carries out, in order: first the steps before the first call,
// then for each call the helper's own steps and every system call of the two processes that it starts. If no helper can
// serve the plan, Warm returns nil.
func (r *run) Warm() []bailey.WarmStep {
	if !r.plan.warm {
		return nil
	}
	return r.plan.warmSteps()
}

func (p *plan) warmSteps() (all []bailey.WarmStep) {
	steps := p.wireSteps()
	before := len(p.lineLayers()) - len(p.lent) - len(steps)
	for _, when := range []string{"once", "call"} {
		for i, s := range steps {
			if inside.When(s.Op) == when {
				all = append(all, bailey.WarmStep{When: when, Line: before + i + 1})
			}
		}
	}
	init, tool := inside.Tables(steps)
	for _, c := range init {
		all = append(all, bailey.WarmStep{When: "init", Text: c.Text})
	}
	for _, c := range tool {
		all = append(all, bailey.WarmStep{When: "tool", Line: before + c.Step + 1, Text: c.Text})
	}
	return all
}
