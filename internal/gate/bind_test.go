package gate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
)

// TestShownIsPassed checks that the value from the preview is in the question and in the run, and not the value from
// the input.
func TestShownIsPassed(t *testing.T) {
	w, in, q := previewing(t, func(int, bailey.Job) string { return "is abc\n" })
	in.Capability = "t.send"
	res := w.gate().Do(t.Context(), in)
	if res.Err != nil || !w.happened("run -- id=abc") || w.happened("run -- hello") {
		t.Fatalf("%v: %q", res.Err, w.did)
	}
	if w.looked != 4 || !w.happened("run --look about=abc") || len(q.Preview.Argv) != 6 || q.Preview.Argv[5].Text != "about=abc" {
		t.Errorf("what follows does not follow: %q, %v", w.did, q.Preview.Argv)
	}
	if len(q.Argv) != 3 || q.Argv[2].Text != "id=abc" || q.Argv[2].Value.Reveal() != "id=abc" {
		t.Errorf("the question has %v", q.Argv)
	}
	if o := w.one(); len(o.Argv) != 3 || o.Argv[2] != "id=abc" {
		t.Errorf("the receipt has %v", o.Argv)
	}
}

// TestShownIsNotPassedUnasked checks that if no approval is needed, no preview runs and the argument comes from the
// input.
func TestShownIsNotPassedUnasked(t *testing.T) {
	w, in, _ := previewing(t, func(int, bailey.Job) string { return "is abc\n" })
	in.Capability = "t.send"
	w.decide = func(int, bailey.Request) bailey.Decision { return bailey.Decision{Effect: bailey.Allow} }
	if res := w.gate().Do(t.Context(), in); res.Err != nil || !w.happened("run -- hello") || w.looked > 0 {
		t.Errorf("%v: %q", res.Err, w.did)
	}
}

// TestNothingShownToPass checks that if a preview does not show a value to pass, no question is asked, and the agent
// learns nothing of the output.
func TestNothingShownToPass(t *testing.T) {
	for name, show := range map[string]string{
		"nothing": "", "something else": "was evil\n", "two": "is abc\nis evil\n", "an option": "is -evil\n", "much": strings.Repeat("is evil\n", 1<<16),
		"much behind it": "is evil\n" + strings.Repeat("x", previewKept),
	} {
		w, in, _ := previewing(t, func(int, bailey.Job) string { return show })
		in.Capability = "t.send"
		res := w.gate().Do(t.Context(), in)
		if !errors.Is(res.Err, bailey.Denied) || !strings.Contains(res.Err.Error(), "cannot show what this call would do") || strings.Contains(res.Err.Error(), "evil") || bailey.HintOf(res.Err) == "" {
			t.Errorf("%s: %v (%s)", name, res.Err, bailey.HintOf(res.Err))
		}
		if w.happened("ask") || w.happened("lend") || *w.one().Executed {
			t.Errorf("%s: %q", name, w.did)
		}
	}
}

// TestFewLookAtOnce checks that at most maxLooking cages run for previews at once, even if many calls come. A waiting
// call that is cancelled must leave the queue.
func TestFewLookAtOnce(t *testing.T) {
	w := newWorld(t)
	var now atomic.Int64
	var over atomic.Bool
	var arrived sync.WaitGroup
	arrived.Add(maxLooking)
	open := make(chan struct{})
	w.looking = func(n int, _ bailey.Job, _ bailey.Streams) (bailey.Exit, error) {
		defer now.Add(-1)
		if now.Add(1) > maxLooking {
			over.Store(true)
		}
		if n <= maxLooking {
			arrived.Done()
		}
		<-open
		return bailey.Exit{}, nil
	}
	g := w.gate()
	m, err := g.Catalog.Lookup("t.put")
	if err != nil {
		t.Fatal(err)
	}
	look := bailey.Job{Args: []string{"--look"}}
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			c := &callState{Gate: g, manifest: m, run: &fakeRun{w: w}, looks: []bailey.Job{look, look, look}}
			if err := c.runPreviews(t.Context(), make([]*previewCapture, 3), func(int) bool { return true }); err != nil {
				t.Error(err)
			}
		})
	}
	arrived.Wait()
	ctx, leave := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer leave()
	if _, err := (&callState{Gate: g}).runPreview(ctx, look); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who left stands in line: %v", err)
	}
	close(open)
	calls.Wait()
	if over.Load() || w.looked != 60 || len(g.looking) != 0 {
		t.Errorf("too many at once: %v; %d looks, %d places still taken", over.Load(), w.looked, len(g.looking))
	}
}
