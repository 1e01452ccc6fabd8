package applied

import (
	"errors"
	"slices"
	"sync"
	"testing"
)

// TestRecordedBeforeItIsInForce checks the order of a change: while it is recorded, the old value is in force; if it
// cannot be recorded, the old value stays, and no other part gets the new one.
func TestRecordedBeforeItIsInForce(t *testing.T) {
	var used []string
	s := &Store[string]{Use: func(v string) { used = append(used, v) }}
	s.Restore("old")
	failed := errors.New("no space")
	for _, c := range []struct {
		name      string
		refuses   error // result of propose
		fails     error // result of record
		unchanged bool  // propose returns no record
		want      string
	}{
		{name: "refused", refuses: failed, want: "old"},
		{name: "not recorded", fails: failed, want: "old"},
		{name: "nothing to change", unchanged: true, want: "old"},
		{name: "recorded", want: "new"},
	} {
		recorded := false
		err := s.Apply(func(now string) (string, func() error, error) {
			if now != "old" {
				t.Errorf("%s: %q is proposed to", c.name, now)
			}
			if c.unchanged {
				return "new", nil, nil
			}
			return "new", func() error {
				recorded = true
				if s.Load() != "old" || !slices.Equal(used, []string{"old"}) {
					t.Errorf("%s: %q is in force, %q in use, before the record", c.name, s.Load(), used)
				}
				return c.fails
			}, c.refuses
		})
		if want := errors.Join(c.refuses, c.fails); (err == nil) != (want == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		if s.Load() != c.want || used[len(used)-1] != c.want || recorded != (c.refuses == nil && !c.unchanged) {
			t.Errorf("%s: %q is in force, %q in use, recorded %v; want %q", c.name, s.Load(), used, recorded, c.want)
		}
	}
}

// TestChangesHappenOneAtATime checks that no change is proposed from a value that another change replaces.
func TestChangesHappenOneAtATime(t *testing.T) {
	var s Store[int]
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			s.Apply(func(now int) (int, func() error, error) { return now + 1, func() error { return nil }, nil })
		})
	}
	all.Wait()
	if s.Load() != 100 {
		t.Errorf("%d changes are in force, want 100", s.Load())
	}
}
