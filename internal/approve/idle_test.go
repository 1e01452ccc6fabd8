package approve

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// TestNothingPolls checks that while a thousand calls wait for answers, no code reads the clock and nothing is written.
func TestNothingPolls(t *testing.T) {
	ktest.Long(t)
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

// TestToldAgain checks that a queue that takes over questions sends messages about the open ones again, because the
// previous gateway may have ended before it sent them. Granted and ended questions must not be sent again.
func TestToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		a := &trusted{roles: map[string][]string{"ada": nil}}
		var mu sync.Mutex
		var told []string
		c := Config{Note: b.note, Prove: a.prove, Key: []byte("key"), Tell: func(kind string, q bailey.Question, reason string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprintf("%s %s %s", kind, q.ID, reason))
		}}
		u := New(c)
		for _, id := range []string{"a-1", "a-2", "a-3"} {
			q := question(id, false, time.Hour)
			q.Session = bailey.SessionID("s-" + id)
			if got, err := u.Ask(t.Context(), q); err != nil || !got.Pending {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		open := u.Open()
		if _, err := u.Answer(t.Context(), by("ada", open[0].Question)); err != nil {
			t.Fatal(err)
		}
		if _, err := u.Answer(t.Context(), Given{Question: "a-2", Person: "eve"}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(told, ", "); got != "question.open a-1 , question.open a-2 , question.open a-3 , question.settled a-1 granted by ada, question.settled a-2 denied by eve" {
			t.Error(got)
		}
		u.Close()
		told, c.Past = nil, b.past
		stop := running(t, New(c))
		synctest.Wait()
		if got := strings.Join(told, ", "); got != "question.open a-3 " {
			t.Errorf("again: %s", got)
		}
		stop()
	})
}
