package jail

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// warmSample returns the sample without the parts that no helper can serve.
func warmSample() *plan {
	l := sample()
	l.proc = false
	delete(l.binds, "/tmp/in put")
	delete(l.binds, "/srv/repo/.ssh")
	p := composePlan(l, sampleHost(true), samplePlanLimits, "/srv/repo")
	samePlan(p)
	return p
}

// TestGoldenTables checks that a helper's steps, once or per call, and all system calls of its children are the same on
// every architecture, and that no step of the plan is omitted.
func TestGoldenTables(t *testing.T) {
	if !inside.Walks {
		ktest.Missing(t, "warm-helpers", errors.New("none on this architecture"))
	}
	p := warmSample()
	if !isWarmable(p) {
		t.Fatal("no helper serves the sample")
	}
	lines := strings.Split(p.String(), "\n")
	var got strings.Builder
	told := map[int]bool{}
	for _, s := range warmSteps(p) {
		told[s.Line] = true
		text := s.Text
		if text == "" {
			text = lines[s.Line-1]
		}
		fmt.Fprintf(&got, "%-4s %3d  %s\n", s.When, s.Line, text)
	}
	for i, s := range p.steps {
		if line := 4 + i; !told[line] && s.Op != inside.Signals && s.Op != inside.Descriptors {
			t.Errorf("of %q nothing is told", lines[line-1])
		}
	}
	if *update {
		if err := os.WriteFile("testdata/warm.golden", []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/warm.golden")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("what a helper does changed; if that is meant, run with -update\n%s", got.String())
	}
}

// TestNoTables checks that Warm returns nil for a run that no helper can serve.
func TestNoTables(t *testing.T) {
	r := &run{plan: samplePlan(true)}
	if r.plan.warm = isWarmable(r.plan); r.plan.warm || r.Warm() != nil {
		t.Error("a helper serves a plan with a /proc and a place beneath /tmp")
	}
}
