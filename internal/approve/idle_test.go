package approve

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"bailey"
)

// TestNothingPolls: while a thousand calls wait and nobody answers, nothing looks at the clock, and nothing is written.
func TestNothingPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks, told atomic.Int64
		b := &book{}
		u := New(Config{Note: b.note, Now: func() time.Time { looks.Add(1); return time.Now() }, Tell: func(string, bailey.Question, string) { told.Add(1) }})
		go u.Run(t.Context())
		for i := range DefaultOpen {
			q := question(fmt.Sprintf("a-%d", i), true)
			q.Session = bailey.SessionID(fmt.Sprintf("s-%d", i))
			go u.Ask(t.Context(), q)
			synctest.Wait()
		}
		if n := len(u.Open()); n != DefaultOpen || told.Load() != DefaultOpen {
			t.Fatalf("%d questions are open, %d told", n, told.Load())
		}
		before, written := looks.Load(), len(b.list())
		time.Sleep(bailey.ApprovalTTL - time.Minute)
		synctest.Wait()
		if n := looks.Load() - before; n != 0 || len(b.list()) != written {
			t.Errorf("in nine minutes the clock was looked at %d times", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(u.Open()); n != 0 || told.Load() != 2*DefaultOpen {
			t.Errorf("%d are open after their time, %d told", n, told.Load())
		}
	})
}
