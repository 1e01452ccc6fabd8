//go:build linux

package jail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// BenchmarkCage measures a complete call of /bin/true: plan, build, run, take apart. BenchmarkBare runs /bin/true
// alone.
func BenchmarkCage(b *testing.B) {
	j, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	for b.Loop() {
		r, err := j.Plan(context.Background(), bailey.Job{Command: "true"})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.Start(context.Background(), bailey.Lent{}, bailey.Streams{}); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}

// BenchmarkHold measures the cost of a control group for a complete call: calls with one, without one and with the
// watcher in turn, with time between them to arm the next PID 1. It reports the medians.
func BenchmarkHold(b *testing.B) {
	with, without, watcher := grouped(b), newJail(b, Config{}), watched(b)
	without.holder.asked, without.holder.groups = true, &cgroupManager{} // in no hierarchy
	names, took := []string{"cgroup", "without", "watcher"}, make([][]time.Duration, 3)
	for b.Loop() {
		for i, j := range []*Jail{with, without, watcher} {
			time.Sleep(12 * time.Millisecond)
			begin := time.Now()
			if r := ask(b, j, bailey.Job{Command: "true"}); r.err != nil {
				b.Fatal(r.err)
			}
			took[i] = append(took[i], time.Since(begin))
		}
	}
	for i, t := range took {
		slices.Sort(t)
		b.ReportMetric(float64(t[len(t)/2].Microseconds()), names[i]+"-p50-µs")
	}
}

func BenchmarkPlan(b *testing.B) {
	j, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r, err := j.Plan(context.Background(), bailey.Job{Command: "git"})
		if err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}

func BenchmarkBare(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCopied measures a call of a 2 MiB tool that an ordinary user owns, and of one that root owns.
func BenchmarkCopied(b *testing.B) {
	ktest.Require(b, "root")
	for _, owner := range []int{0, stranger} {
		b.Run(fmt.Sprint("owner=", owner), func(b *testing.B) {
			j, err := New(Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			path := filepath.Join(public(b), "tool")
			text, err := os.ReadFile(probe)
			if err == nil {
				err = errors.Join(os.WriteFile(path, text, 0o755), os.Chown(path, owner, owner))
			}
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(text))/(1<<20), "MiB")
			for b.Loop() {
				if r := ask(b, j, bailey.Job{Command: path, Args: []string{"exit", "0"}}); r.err != nil || r.exit.Code != 0 {
					b.Fatalf("%+v", r)
				}
			}
		})
	}
}
