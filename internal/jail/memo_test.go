//go:build linux

package jail

import (
	"reflect"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// TestMemoIsThePlan checks that a cached plan equals a fresh one, for a tool's cage and for a hook's, whose Wall has
// only trees. Plans with any other Wall must not be cached.
func TestMemoIsThePlan(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	trees := &bailey.Wall{Trees: hostTrees()}
	some := &bailey.Wall{Trees: trees.Trees[:1]}
	home := place(t, y.home, true)
	of := func(w bailey.Wall) bailey.Job { w.Trees = trees.Trees; return bailey.Job{Wall: &w} }
	jobs := []bailey.Job{{}, {Wall: trees}, {Wall: some}, {Wall: &bailey.Wall{}}, {}, {Wall: trees, Limits: bailey.Limits{Tasks: 9}}, {Wall: trees, EnvNames: []string{"A"}},
		{Wall: trees, Read: []string{y.outside}}, {Wall: trees, Places: []bailey.Place{place(t, y.project, true)}}, {Places: []bailey.Place{place(t, y.project, true)}},
		of(bailey.Wall{Home: &home}), of(bailey.Wall{Run: true}), of(bailey.Wall{Path: "/bin"}), of(bailey.Wall{Unix: true}), of(bailey.Wall{Pty: true}),
		{Places: []bailey.Place{place(t, y.project, true)}, Wall: &bailey.Wall{Trees: trees.Trees, Keep: y.keep}}, {Wall: trees, Network: &bailey.Network{}}}
	want := make([]bailey.Cage, len(jobs))
	for i := range jobs {
		jobs[i].Command = probe
		want[i] = planCage(t, newJail(t, Config{}), jobs[i])
	}
	for range 3 { // fresh, cached, and cached after all others
		for i, job := range jobs {
			if got := planCage(t, y.Jail, job); !reflect.DeepEqual(got, want[i]) {
				t.Errorf("job %d: %+v\nremembered as %+v", i, want[i], got)
			}
		}
	}
	y.memos.mu.Lock()
	defer y.memos.mu.Unlock()
	for s, m := range y.memos.seen {
		if w := m.layout.wall; w != nil && !reflect.DeepEqual(*w, bailey.Wall{Trees: w.Trees}) || m.layout.net != nil || s.wall != (w != nil) {
			t.Errorf("remembered: %+v, %+v", s, w)
		}
	}
	if len(y.memos.seen) < 4 {
		t.Errorf("%d are remembered", len(y.memos.seen))
	}
}
