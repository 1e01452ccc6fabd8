//go:build linux

package bench

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/ktest"
)

// TestAThousandWait makes 1000 calls that require approval. If they wait, MaxStay of them are goroutines that only an
// answer wakes, and the others are pending. If they do not wait, they hold neither goroutines nor descriptors. In both
// cases they need less than 100 MB. The test counts resources of the process, so no other test may run in parallel.
func TestAThousandWait(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns")
	for name, patience := range map[string]time.Duration{"waiting": time.Hour, "parked": 0} {
		t.Run(name, func(t *testing.T) {
			q, err := openInquiry()
			if err != nil {
				t.Fatal(err)
			}
			defer q.close()
			heap, goroutines := liveMemory()
			_, files := processUsage()
			end, err := q.openQuestions(t.Context(), approve.DefaultOpen, patience)
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			now, more := liveMemory()
			if grown := int64(now) - int64(heap); grown > 100e6 {
				t.Errorf("%d calls hold %d bytes", approve.DefaultOpen, grown)
			}
			if n := len(q.Queue.Open()); n != approve.DefaultOpen {
				t.Errorf("%d questions are open", n)
			}
			stands := blocked()
			_, open := processUsage()
			if patience > 0 {
				if more-goroutines > approve.DefaultOpen+16 || stands != approve.MaxStay {
					t.Errorf("%d goroutines more, of which %d do nothing but wait", more-goroutines, stands)
				}
				return
			}
			if more-goroutines > 16 || stands != 0 || open-files > 16 {
				t.Errorf("%d goroutines and %d descriptors more", more-goroutines, open-files)
			}
			if r := q.makeCall(t.Context(), "one too many", 0, func(bailey.Question) {}); r.Executed || bailey.HintOf(r.Err) == "" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// blocked counts the goroutines that are blocked in a select of the queue.
func blocked() (n int) {
	all := make([]byte, 64<<20)
	all = all[:runtime.Stack(all, true)]
	for _, one := range strings.Split(string(all), "\n\n") {
		head, _, _ := strings.Cut(one, "\n")
		if strings.Contains(head, "[select") && strings.Contains(one, "approve.(*Queue).waitUntilOver(") {
			n++
		}
	}
	return n
}

// TestBenchApprovals checks that the benchmark measures the named rows, with calls that ran.
func TestBenchApprovals(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns")
	rows, err := benchAnswers(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
		if r.N != 3 || r.P50 <= 0 || r.Ratio <= 0 || r.Of != "fsync" {
			t.Errorf("%+v", r)
		}
	}
	if fmt.Sprint(names) != "[fsync answer run result]" || rows[2].P50 > rows[3].P50 {
		t.Errorf("%+v", rows)
	}
}
