//go:build linux

package jail

import (
	"context"
	"os/exec"
	"testing"

	"bailey"
)

// BenchmarkCage is one whole call of /bin/true: plan, build, run, take apart. /bin/true alone, beside
// it, is what of that the cage does not cost.
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
		if _, err := r.Start(context.Background(), nil, bailey.Streams{}); err != nil {
			b.Fatal(err)
		}
		r.Close()
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
