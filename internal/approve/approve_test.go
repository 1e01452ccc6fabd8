package approve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bailey"
)

// book is a ledger in memory. Each kind of event can be refused or delayed.
type book struct {
	mu     sync.Mutex
	events []string // for example "question a-1" or "answer a-1 reason"
	refuse map[string]error
	delay  time.Duration
	ctxErr error
	past   State
}

func (b *book) note(ctx context.Context, kind string, data any) error {
	time.Sleep(b.delay)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctxErr = errors.Join(b.ctxErr, ctx.Err())
	if err := b.refuse[kind]; err != nil {
		return err
	}
	switch d := data.(type) {
	case bailey.Question:
		b.events = append(b.events, fmt.Sprintf("%s %s", kind, d.ID))
	case Event:
		if d.Granted {
			b.events = append(b.events, "GRANTED")
		}
		b.events = append(b.events, fmt.Sprintf("%s %s %s %s", kind, d.ID, d.Receipt, d.Reason))
	case Use:
		b.events = append(b.events, fmt.Sprintf("%s %s %s", kind, d.Question, d.Receipt))
	}
	b.state(kind, data)
	return nil
}

// state applies an event to past from its bytes, as a gateway does when it starts.
func (b *book) state(kind string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	switch kind {
	case QuestionEvent:
		foldTest(raw, b.past.Asked)
	case AnswerEvent:
		foldTest(raw, b.past.Answered)
	case UseEvent:
		foldTest(raw, b.past.Used)
	case GrantEvent:
		foldTest(raw, b.past.Given)
	case RevokeEvent:
		foldTest(raw, b.past.Revoked)
	}
}

func foldTest[T any](raw []byte, take func(T)) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		panic(err)
	}
	take(v)
}

func (b *book) list() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.events, "\n")
}

func plain(s string) bailey.Shown { return bailey.Shown{Text: s, Value: bailey.NewSecret(s)} }

func question(id string, wait bool, ttls ...time.Duration) bailey.Question {
	q := bailey.Question{ID: bailey.ApprovalID(id), Receipt: bailey.ReceiptID("r-" + id), Patience: patience(wait), Argv: []bailey.Shown{plain("git"), plain("push")}}
	for _, ttl := range ttls {
		q.Rules = append(q.Rules, bailey.Rule{ID: "rule", TTL: ttl})
	}
	return q
}

// running starts Run. The returned function stops it and waits for its end.
func running(t *testing.T, q *Queue) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

func expect(t *testing.T, b *book, want ...string) {
	t.Helper()
	if got := b.list(); got != strings.Join(want, "\n") {
		t.Errorf("recorded\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestPendingExpires checks that the shortest time applies, and that the denial is recorded once, at exactly that time.
func TestPendingExpires(t *testing.T) {
	for _, tc := range []struct {
		config time.Duration
		rules  []time.Duration
		want   time.Duration
	}{
		{0, nil, bailey.ApprovalTTL}, {-1, nil, bailey.ApprovalTTL}, {time.Hour, nil, time.Hour},
		{0, []time.Duration{time.Hour}, bailey.ApprovalTTL}, {0, []time.Duration{time.Hour, time.Minute, 0, -5}, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &book{}
			q := New(Config{Note: b.note, TTL: tc.config})
			stop := running(t, q)
			start := time.Now()
			a, err := q.Ask(t.Context(), question("a-1", false, tc.rules...))
			if err != nil || !a.Pending || len(a.Granted) != 0 || a.Reason == "" {
				t.Fatalf("%+v, %v", a, err)
			}
			open := q.Open()
			if len(open) != 1 || !open[0].AskedAt.Equal(start) || !open[0].Expires.Equal(start.Add(tc.want)) {
				t.Fatalf("open: %+v", open)
			}
			expect(t, b, "question a-1")
			time.Sleep(tc.want - 1)
			synctest.Wait()
			expect(t, b, "question a-1")
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			late := "answer a-1 r-a-1 it was not answered by " + start.Add(tc.want).UTC().Format(time.RFC3339)
			expect(t, b, "question a-1", late)
			if len(q.Open()) != 0 {
				t.Error("it is still open")
			}
			time.Sleep(2 * tc.want)
			if err := stop(); err != nil {
				t.Error(err)
			}
			expect(t, b, "question a-1", late)
		})
	}
}

// TestWaitExpires checks that a waiting caller is denied when the question expires, whether or not Run runs.
func TestWaitExpires(t *testing.T) {
	for _, run := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := &book{}
			q := New(Config{Note: b.note})
			if run {
				stop := running(t, q)
				defer stop()
			}
			start := time.Now()
			a, err := q.Ask(t.Context(), question("a-1", true, time.Minute))
			if err != nil || a.Pending || len(a.Granted) != 0 || !strings.HasPrefix(a.Reason, "it was not answered by ") {
				t.Errorf("%+v, %v", a, err)
			}
			if d := time.Since(start); d != time.Minute {
				t.Errorf("waited %v", d)
			}
			expect(t, b, "question a-1", "answer a-1 r-a-1 "+a.Reason)
		})
	}
}

// TestOrder checks that a later question that expires earlier does not wait for an earlier one.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		q := New(Config{Note: b.note})
		stop := running(t, q)
		defer stop()
		for i, ttl := range []time.Duration{9 * time.Minute, time.Minute, 5 * time.Minute} {
			time.Sleep(time.Second)
			if _, err := q.Ask(t.Context(), other(question(fmt.Sprintf("a-%d", i), false, ttl))); err != nil {
				t.Fatal(err)
			}
		}
		var ids []string
		for _, o := range q.Open() {
			ids = append(ids, string(o.ID))
		}
		if got := strings.Join(ids, " "); got != "a-0 a-1 a-2" {
			t.Errorf("open: %s", got)
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if open := q.Open(); len(open) != 2 || open[1].ID != "a-2" {
			t.Errorf("after a minute: %+v", open)
		}
	})
}

// TestCallerLeaves checks that a question stays open if its caller leaves, and that it is still recorded completely.
func TestCallerLeaves(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := &book{delay: delay}
			q := New(Config{Note: b.note})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			defer cancel()
			a, err := q.Ask(ctx, question("a-1", true))
			if !errors.Is(err, context.DeadlineExceeded) || len(a.Granted) != 0 || a.Pending {
				t.Errorf("%+v, %v", a, err)
			}
			if b.ctxErr != nil {
				t.Errorf("an event was written under the caller's context: %v", b.ctxErr)
			}
			if _, err := q.Ask(ctx, question("a-2", false)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller that had left: %v", err)
			}
			expect(t, b, "question a-1")
			if open := q.Open(); len(open) != 1 || open[0].Waits != 0 {
				t.Errorf("open: %+v", open)
			}
		})
	}
}

// TestNotRecorded checks that if a question cannot be recorded, it is not asked.
func TestNotRecorded(t *testing.T) {
	full := errors.New("no space left on device")
	b := &book{refuse: map[string]error{"question": full}}
	q := New(Config{Note: b.note})
	for _, wait := range []bool{true, false} {
		a, err := q.Ask(t.Context(), question("a-1", wait))
		if !errors.Is(err, full) || !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" || a.Pending || len(a.Granted) != 0 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if len(q.Open()) != 0 || len(q.live)+len(q.about)+q.texts != 0 {
		t.Error("it stays open")
	}
	if _, err := New(Config{}).Ask(t.Context(), question("a-1", false)); !errors.Is(err, bailey.Unavailable) {
		t.Errorf("without a ledger: %v", err)
	}
}

// TestAnswerNotRecorded checks that if a denial cannot be recorded, the waiting caller gets an error and the question
// still ends.
func TestAnswerNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left on device")
		b := &book{refuse: map[string]error{"answer": full}}
		q := New(Config{Note: b.note, TTL: time.Minute})
		if a, err := q.Ask(t.Context(), question("a-1", true)); !errors.Is(err, full) || len(a.Granted) != 0 {
			t.Errorf("%+v, %v", a, err)
		}
		if _, err := q.Ask(t.Context(), question("a-2", false)); err != nil {
			t.Fatal(err)
		}
		q.Withdraw("the kill switch was activated", func(bailey.Question) bool { return true })
		if open := q.Open(); len(open) != 0 {
			t.Errorf("what could not be recorded is open: %+v", open)
		}
	})
}

// TestSeenAfterRecord checks that a question is not visible before it is durable.
func TestSeenAfterRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{delay: time.Second}
		q := New(Config{Note: b.note, MaxOpen: 1})
		go q.Ask(t.Context(), question("a-1", false))
		time.Sleep(time.Second / 2)
		if open := q.Open(); len(open) != 0 {
			t.Errorf("seen too early: %+v", open)
		}
		if _, err := q.Ask(t.Context(), other(question("a-2", false))); !errors.Is(err, bailey.Unavailable) {
			t.Errorf("one being written does not count: %v", err)
		}
		time.Sleep(time.Second)
		if open := q.Open(); len(open) != 1 {
			t.Errorf("not seen: %+v", open)
		}
	})
}

func TestRefusals(t *testing.T) {
	b := &book{}
	q := New(Config{Note: b.note, MaxOpen: 2})
	for _, tc := range []struct {
		id   string
		kind bailey.Kind
	}{{"", bailey.Internal}, {"a-1", ""}, {"a-1", bailey.Conflict}, {"a-2", ""}, {"a-3", bailey.Unavailable}} {
		in := other(question(tc.id, false))
		if tc.kind == bailey.Conflict {
			in.Argv = append(in.Argv, plain("-f")) // the same id for another call
		}
		_, err := q.Ask(t.Context(), in)
		if tc.kind == "" && err != nil || tc.kind != "" && !errors.Is(err, tc.kind) {
			t.Errorf("%q: %v", tc.id, err)
		}
	}
	expect(t, b, "question a-1", "question a-2")
	if n := New(Config{Note: b.note}).c.MaxOpen; n != 1000 {
		t.Errorf("by default %d may be open", n)
	}
}

// TestShutdown checks that the end of the gateway ends only the waiting, and that no further question is accepted.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		q := New(Config{Note: b.note})
		stop := running(t, q)
		if _, err := q.Ask(t.Context(), question("a-1", false)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := q.Ask(t.Context(), other(question("a-2", true)))
			done <- err
		}()
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "the gateway ended") {
			t.Error(err)
		}
		expect(t, b, "question a-1", "question a-2")
		if _, err := q.Ask(t.Context(), question("a-3", false)); !errors.Is(err, bailey.Unavailable) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// other returns q for another call.
func other(q bailey.Question) bailey.Question {
	q.Argv = []bailey.Shown{plain("git"), plain(string(q.ID))}
	return q
}

// TestOneEnd checks that in any race of expiry, leaving callers and shutdown, a question ends at most once and grants
// nothing.
func TestOneEnd(t *testing.T) {
	b := &book{}
	q := New(Config{Note: b.note, TTL: 2 * time.Millisecond})
	stop := running(t, q)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%4)*time.Millisecond+time.Millisecond)
			defer cancel()
			a, _ := q.Ask(ctx, other(question(fmt.Sprintf("a-%d", i), i%2 == 0)))
			if len(a.Granted) != 0 {
				t.Error("granted")
			}
		})
	}
	wg.Wait()
	for len(q.Open()) > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	count := map[string]int{}
	for _, e := range strings.Split(b.list(), "\n") {
		if f := strings.Fields(e); len(f) > 1 {
			count[f[0]+" "+f[1]]++
		}
	}
	for i := range 200 {
		asked, answered := count[fmt.Sprintf("question a-%d", i)], count[fmt.Sprintf("answer a-%d", i)]
		if asked > 1 || answered != asked {
			t.Errorf("a-%d: asked %d, answered %d", i, asked, answered)
		}
	}
	if strings.Contains(b.list(), "GRANTED") || len(b.past.Questions) != 0 {
		t.Errorf("granted, or left: %+v", b.past)
	}
}

// TestCopies checks that neither the caller nor a reader can change a question after it was asked.
func TestCopies(t *testing.T) {
	b := &book{}
	q := New(Config{Note: b.note})
	in := question("a-1", false, time.Minute)
	if _, err := q.Ask(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	in.Argv[1], in.Rules[0].ID = plain("status"), "other"
	open := q.Open()
	open[0].Argv[0], open[0].Rules[0].TTL = plain("rm"), time.Hour
	if got := q.Open()[0]; fmt.Sprint(got.Argv) != "[git push]" || got.Rules[0].ID != "rule" || got.Rules[0].TTL != time.Minute {
		t.Errorf("%+v", got)
	}
}

func TestEventJSON(t *testing.T) {
	b, err := json.Marshal(Event{ID: "a-1", Receipt: "r-1", Reason: "nobody"})
	if err != nil || string(b) != `{"id":"a-1","receipt":"r-1","at":"0001-01-01T00:00:00Z","granted":false,"settled":false,"reason":"nobody"}` {
		t.Errorf("%s, %v", b, err)
	}
}

// patience returns a long patience if the caller should wait, and none otherwise.
func patience(wait bool) time.Duration {
	if wait {
		return time.Hour
	}
	return 0
}
