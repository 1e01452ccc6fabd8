package approve

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"bailey"
	"bailey/internal/approvaltext"
)

// asIf returns the text that the question q would have for a call with the given values.
func asIf(q bailey.Question, values bailey.Question) string {
	values.ID, values.Receipt, values.Nonce, values.AskedAt, values.Expires, values.Until = q.ID, q.Receipt, q.Nonce, q.AskedAt, q.Expires, q.Until
	return approvaltext.Text(values, []byte("key"))
}

// TestAskedAnewIsBound checks that if a call must ask again because its grant no longer counts, the new question is
// bound to the values of the call.
func TestAskedAnewIsBound(t *testing.T) {
	b := &book{}
	u, trusted := queue(b)
	call := question("a-1", false)
	call.Rules = []bailey.Rule{one}
	fresh := func() bailey.Question {
		q := again(call)
		q.Argv = []bailey.Shown{plain("git"), secret("[hidden]", "push")}
		return q
	}
	ask(t, u, fresh())
	if _, err := u.Answer(t.Context(), by("ada", u.Open()[0].Question)); err != nil {
		t.Fatal(err)
	}
	trusted.revoke("ada")
	if a := ask(t, u, fresh()); !a.Pending {
		t.Fatalf("%+v", a)
	}
	if q := u.Open()[0].Question; q.Text != asIf(q, fresh()) {
		t.Error("what was asked anew is bound to nothing")
	}
}

// TestForgedBinding checks that forged ledger entries grant nothing without a valid signature.
func TestForgedBinding(t *testing.T) {
	granted := func(t *testing.T, rules ...bailey.Rule) (*book, bailey.Question, Kept) {
		b := &book{}
		u, _ := queue(b)
		call := question("a-1", false)
		call.Call, call.Rules = "git.push", rules
		ask(t, u, call)
		if _, err := u.Answer(t.Context(), by("ada", u.Open()[0].Question)); err != nil {
			t.Fatal(err)
		}
		return b, call, b.past.Questions["a-1"]
	}
	t.Run("an answer to another call", func(t *testing.T) {
		b, call, k := granted(t, one)
		evil := again(other(call))
		k.Question.Subject, k.Question.Alike = approvaltext.Subject(evil, []byte("key"))
		b.past.Questions["a-1"] = k
		u, _ := queue(b)
		if a := ask(t, u, evil); len(a.Granted) > 0 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("an answer twice", func(t *testing.T) {
		b, call, k := granted(t, two)
		last := k.Answers[0]
		last.Settled = true
		k.Answers, k.Granted = append(k.Answers, last), last.At
		b.past.Questions["a-1"] = k
		u, _ := queue(b)
		if a := ask(t, u, again(call)); len(a.Granted) > 0 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("a grant of something else", func(t *testing.T) {
		for _, rules := range [][]bailey.Rule{{{ID: "other"}}, {two}} {
			b := &book{}
			u, _ := queue(b)
			call := question("a-1", false)
			call.Rules = []bailey.Rule{one}
			ask(t, u, call)
			s, err := give(t, u, "a-1", "ada", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			evil := again(call)
			evil.Rules = rules
			ask(t, u, evil)
			if rules[0].Count == 2 {
				if _, err := u.Answer(t.Context(), by("bob", u.recordedEntries()[1].q)); err != nil {
					t.Fatal(err)
				}
			}
			b.past.Answered(Event{ID: evil.ID, At: time.Now(), Granted: true, Settled: true, Standing: s.ID, Name: "ada"})
			u, _ = queue(b)
			if a := ask(t, u, again(evil)); len(a.Granted) > 0 {
				t.Errorf("%v: %+v", rules, a)
			}
		}
	})
}

// TestDenialBeforeGrant checks that if a person denied a call, a standing grant for similar calls does not allow it.
func TestDenialBeforeGrant(t *testing.T) {
	b := &book{}
	u, _ := queue(b)
	call := question("a-1", false)
	call.Call, call.Rules = "git.push", []bailey.Rule{one}
	denied := again(other(call))
	twin := again(denied)
	twin.Session = "s-2"
	for _, q := range []bailey.Question{call, denied, twin} {
		ask(t, u, q)
	}
	if _, err := u.Answer(t.Context(), Given{Question: denied.ID, Person: "bob", Reason: "never"}); err != nil {
		t.Fatal(err)
	}
	if _, err := give(t, u, "a-1", "ada", time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, q := range []bailey.Question{denied, twin} {
		if a := ask(t, u, again(q)); len(a.Granted) > 0 || a.Pending || a.Question != denied.ID {
			t.Errorf("%+v", a)
		}
	}
	if i := slices.IndexFunc(u.Open(), func(s Seen) bool { return s.ID == twin.ID }); i < 0 || !u.Open()[i].Granted.IsZero() {
		t.Errorf("the same call of another session was granted: %+v", u.Open())
	}
	if a := ask(t, u, again(call)); len(a.Granted) != 1 {
		t.Errorf("%+v", a)
	}
}

// TestGrantGivenMeanwhile checks that if a grant is given while a question is being opened, its call does not wait for
// another answer.
func TestGrantGivenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, _ := queue(b)
		call := question("a-1", false)
		call.Call, call.Rules = "git.push", []bailey.Rule{one}
		ask(t, u, call)
		text, err := u.Draft("a-1", time.Hour, false)
		if err != nil {
			t.Fatal(err)
		}
		g, _ := approvaltext.ParseGrant(text)
		late := again(other(call))
		late.Patience = time.Minute
		note, written := u.c.Note, make(chan struct{})
		u.c.Note = func(ctx context.Context, kind string, data any) error {
			if q, ok := data.(bailey.Question); ok && q.ID == late.ID {
				<-written
			}
			return note(ctx, kind, data)
		}
		start := time.Now()
		done := make(chan bailey.Answer, 1)
		go func() { done <- ask(t, u, late) }()
		synctest.Wait()
		if _, err := u.Stand(t.Context(), g.ID, Given{Digest: approvaltext.Digest(text), Grant: true, Signature: "ada over " + text}); err != nil {
			t.Fatal(err)
		}
		close(written)
		if a := <-done; len(a.Granted) != 1 || time.Since(start) > time.Second {
			t.Errorf("after %v: %+v", time.Since(start), a)
		}
	})
}

// slept returns t as the clocks show it after the machine slept for so long: only the wall clock has advanced.
func slept(t time.Time, long time.Duration) time.Time {
	(*struct{ wall uint64 })(unsafe.Pointer(&t)).wall += uint64(long/time.Second) << 30
	return t
}

// TestSleep checks that a question and a grant expire at the wall clock time in their text, even if the machine slept.
// If the clock is set back, neither may last longer.
func TestSleep(t *testing.T) {
	var long, ran time.Duration
	b := &book{}
	u, _ := queue(b)
	u.c.Now = func() time.Time { return slept(time.Now().Add(ran), long) }
	if now := u.c.Now(); now.Round(0).Sub(now) != 0 {
		t.Fatal("no such clock")
	}
	call := question("a-1", false)
	call.Call, call.Rules = "git.push", []bailey.Rule{one}
	ask(t, u, call)
	late := other(again(call))
	ask(t, u, late)
	if _, err := u.Answer(t.Context(), by("ada", u.Open()[0].Question)); err != nil {
		t.Fatal(err)
	}
	long = 8 * time.Hour
	refused(t, u, b, by("ada", u.recordedEntries()[1].q), bailey.Denied)
	if a := ask(t, u, again(call)); len(a.Granted) > 0 {
		t.Errorf("%+v", a)
	}
	ask(t, u, again(late))
	if _, err := give(t, u, u.recordedEntries()[len(u.recordedEntries())-1].q.ID, "ada", time.Hour); err != nil {
		t.Fatal(err)
	}
	if len(u.Grants()) != 1 {
		t.Fatal(u.Grants())
	}
	long, ran = -24*time.Hour, 2*time.Hour
	if len(u.Grants()) != 0 {
		t.Error("the clock was set back, and the grant stands on")
	}
}

// TestStorm checks that in any race, an answer lets at most one call run, and that no caller waits for a question that
// has ended.
func TestStorm(t *testing.T) {
	b := &book{}
	u, _ := queue(b)
	stop := running(t, u)
	var mu sync.Mutex
	ran, ended := map[bailey.ApprovalID]int{}, map[string]int{}
	var callers, people sync.WaitGroup
	over := make(chan struct{})
	for range 4 {
		people.Go(func() {
			for !isClosed(over) {
				time.Sleep(time.Millisecond)
				for _, s := range u.Open() {
					if !s.Granted.IsZero() && rand.IntN(100) > 0 {
						continue
					}
					switch g := by("ada", s.Question); rand.IntN(20) {
					case 0:
						u.Answer(t.Context(), Given{Question: s.ID, Person: "bob"})
					case 1:
						u.End(s.Session)
					default:
						u.Answer(t.Context(), g)
					}
				}
			}
		})
	}
	for i := range 60 {
		callers.Go(func() {
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000)+1)*time.Millisecond)
				q := again(question("x", false))
				q.Session, q.Rules, q.Patience = bailey.SessionID(fmt.Sprint("s-", i%7)), []bailey.Rule{one}, time.Duration(rand.IntN(100)*(i%3))*time.Millisecond
				q.Argv = []bailey.Shown{plain("git"), plain(fmt.Sprint(i%40, rand.IntN(2)))}
				a, err := u.Ask(ctx, q)
				mu.Lock()
				if err == nil && len(a.Granted) > 0 {
					ran[a.Question]++
				}
				ended[fmt.Sprint(err != nil, a.Pending, len(a.Granted))]++
				mu.Unlock()
				cancel()
			}
		})
	}
	callers.Wait()
	close(over)
	people.Wait()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if len(ran) == 0 {
		t.Errorf("nothing ran: %v", ended)
	}
	for id, n := range ran {
		if n > 1 {
			t.Errorf("%s let %d calls run", id, n)
		}
	}
	for _, s := range u.Open() {
		if s.Waits != 0 {
			t.Errorf("%d wait for %s", s.Waits, s.ID)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	texts := 0
	for _, e := range u.live {
		texts += len(e.q.Text)
	}
	if texts != u.texts || len(u.live) != len(u.about) {
		t.Errorf("%d bytes of texts, counted %d; %d questions, %d subjects", texts, u.texts, len(u.live), len(u.about))
	}
}
