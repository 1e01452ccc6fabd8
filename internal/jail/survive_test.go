//go:build linux

package jail

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/jail/battery"
	"bailey/internal/ktest"
)

// TestSurvivors checks that every process that a tool leaves ends with its call, and soon.
func TestSurvivors(t *testing.T) {
	ktest.Long(t)
	for _, c := range cages {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread()
			j, s := c.build(t)
			s.seen(t, j)
			s.outlive(t, j)
			s.look(t)
		})
	}
}

func (s *stage) outlive(t *testing.T, j *Jail) {
	for _, way := range battery.Ways {
		s.ready(t)
		begin := time.Now()
		r := ask(t, j, s.job(t, "survive", way)).must(t)
		if took := time.Since(begin); took > time.Minute || !slices.Contains([]string{"left", "refused:"}, strings.Fields(r.out + " -")[0]) && way != "flooder" {
			t.Errorf("%s: %v, %.200q %s", way, took, r.out, r.log)
		}
		for _, line := range s.lingering() {
			t.Errorf("%s: a process is left: %s", way, line)
		}
	}
}

// seen checks that a process in a cage is visible from outside while it runs.
func (s *stage) seen(t *testing.T, j *Jail) {
	t.Helper()
	s.ready(t)
	job := s.job(t, "linger", s.Token)
	r, err := j.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Start(ctx, lentFor(job), bailey.Streams{}); close(done) }()
	for begin := time.Now(); len(s.lingering()) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Error("a process of a cage cannot be seen: this test would miss what is left")
			break
		}
	}
	cancel()
	<-done
}
