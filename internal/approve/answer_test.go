package approve

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bailey"
)

// trusted holds the approvers by name. In these tests a signature is a name and the text.
type trusted struct {
	mu    sync.Mutex
	roles map[string][]string
}

func (a *trusted) prove(text []byte, g Given) (Approver, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name, of, _ := strings.Cut(g.Signature, " over ")
	roles, known := a.roles[name]
	if !known || of != string(text) {
		return Approver{}, &bailey.Error{Kind: bailey.Denied, Message: "the signature does not count"}
	}
	return Approver{Name: name, Level: bailey.SignedSoftware, Key: "SHA256:" + name, Roles: roles}, nil
}

// revoke removes name from the approvers.
func (a *trusted) revoke(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.roles, name)
}

func by(name string, q bailey.Question) Given {
	return Given{Question: q.ID, Digest: q.Digest, Grant: true, Signature: name + " over " + q.Text}
}

// asked opens one question with a waiting caller. The channel receives the answer.
func asked(t *testing.T, b *book, rules ...bailey.Rule) (*Queue, *trusted, bailey.Question, <-chan bailey.Answer) {
	t.Helper()
	a := &trusted{roles: map[string][]string{"ada": {"sre"}, "bob": {"sre"}, "eve": nil}}
	u := New(Config{Note: b.note, Prove: a.prove})
	in := question("a-1", true)
	in.Rules = rules
	done := make(chan bailey.Answer, 1)
	go func() {
		got, _ := u.Ask(context.Background(), in)
		done <- got
	}()
	synctest.Wait()
	t.Cleanup(func() { u.Close() })
	return u, a, u.Open()[0].Question, done
}

var (
	one = bailey.Rule{ID: "one", Count: 1, TTL: time.Minute}
	two = bailey.Rule{ID: "two", Role: "sre", Count: 2, TTL: time.Hour}
)

// refused checks that an answer is rejected and not recorded.
func refused(t *testing.T, u *Queue, b *book, g Given, kind bailey.Kind) {
	t.Helper()
	before := b.list()
	if got, err := u.Answer(t.Context(), g); !errors.Is(err, kind) || bailey.KindOf(err) != kind || got.Granted {
		t.Errorf("%+v, %v, want %s", got, err, kind)
	}
	if b.list() != before {
		t.Errorf("recorded %s", strings.TrimPrefix(b.list(), before))
	}
}

// TestGranted checks that one answer lets the call continue, and that it is recorded first.
func TestGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, _, q, done := asked(t, b, one)
		got, err := u.Answer(t.Context(), by("eve", q))
		if err != nil || !got.Settled || !got.Granted || got.Count != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if a := <-done; len(a.Granted) != 1 || a.Granted[0] != "one" || a.Pending {
			t.Errorf("%+v", a)
		}
		expect(t, b, "question a-1", "GRANTED", "answer a-1 r-a-1 granted by eve", "use a-1 r-a-1")
		refused(t, u, b, by("ada", q), bailey.NotFound) // the question is already settled
	})
}

// TestAnswerOfAnotherQuestion checks that a replayed answer, for another question or for a call with other arguments,
// is rejected.
func TestAnswerOfAnotherQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, _, q, done := asked(t, b, one)
		other := question("a-2", true)
		other.Argv[1] = plain("push --force")
		other.Rules = q.Rules
		go u.Ask(context.Background(), other)
		synctest.Wait()
		second := u.Open()[1].Question
		replayed := by("ada", q)
		replayed.Question = second.ID
		refused(t, u, b, replayed, bailey.Conflict) // its digest is that of the first question
		replayed.Digest = second.Digest
		refused(t, u, b, replayed, bailey.Denied) // its signature is over the text of the first question
		if _, err := u.Answer(t.Context(), by("ada", q)); err != nil {
			t.Error(err)
		}
		<-done
		if open := u.Open(); len(open) != 1 || open[0].ID != "a-2" {
			t.Errorf("open: %+v", open)
		}
	})
}

// TestAnswerTooLate checks that an expired question accepts no answer, even before the queue has noticed the expiry.
func TestAnswerTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		now := time.Now()
		u := New(Config{Note: b.note, Prove: (&trusted{roles: map[string][]string{"ada": nil}}).prove, Now: func() time.Time { return now }})
		in := question("a-1", true)
		in.Rules = []bailey.Rule{one}
		go u.Ask(t.Context(), in)
		synctest.Wait()
		q := u.Open()[0].Question
		now = now.Add(time.Minute)
		refused(t, u, b, by("ada", q), bailey.Denied)
		u.expireDue()
		refused(t, u, b, by("ada", q), bailey.NotFound)
	})
}

// TestQuorum checks that a question needs as many names as its rules require, and that a name counts once, however
// often it answers.
func TestQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, _, q, done := asked(t, b, one, two)
		got, err := u.Answer(t.Context(), by("ada", q))
		if err != nil || got.Settled || got.Granted || got.Count != 2 || len(got.Names) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		refused(t, u, b, by("ada", q), bailey.Conflict)
		if n := len(u.Open()[0].Answers); n != 1 {
			t.Errorf("%d answers", n)
		}
		if got, err = u.Answer(t.Context(), by("bob", q)); err != nil || !got.Granted {
			t.Errorf("%+v, %v", got, err)
		}
		if a := <-done; len(a.Granted) != 2 {
			t.Errorf("%+v", a)
		}
	})
}

// TestWithoutTheRole checks that an answer is rejected if its author lacks a role that a rule requires.
func TestWithoutTheRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, _, q, _ := asked(t, b, two)
		refused(t, u, b, by("eve", q), bailey.Denied)
		refused(t, u, b, by("mallory", q), bailey.Denied)
		u.c.Prove = nil
		refused(t, u, b, by("ada", q), bailey.Unavailable)
	})
}

// TestUnsignedIsNoQuorum checks that answers without a key never make a quorum of two, under any names.
func TestUnsignedIsNoQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, _, q, _ := asked(t, b, bailey.Rule{ID: "two", Count: 2})
		u.c.Prove = func(_ []byte, g Given) (Approver, error) { return Approver{Name: g.Person, Level: bailey.Local}, nil }
		refused(t, u, b, Given{Question: q.ID, Digest: q.Digest, Grant: true, Person: "ada"}, bailey.Denied)
	})
}

// TestRevokedApprover checks that a removed approver does not count, not even with an earlier answer.
func TestRevokedApprover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, a, q, done := asked(t, b, two)
		if _, err := u.Answer(t.Context(), by("ada", q)); err != nil {
			t.Fatal(err)
		}
		a.revoke("ada")
		got, err := u.Answer(t.Context(), by("bob", q))
		if err != nil || got.Settled || len(got.Names) != 1 || got.Names[0] != "bob" {
			t.Errorf("%+v, %v", got, err)
		}
		a.revoke("bob")
		refused(t, u, b, by("bob", q), bailey.Denied)
		select {
		case a := <-done:
			t.Errorf("answered: %+v", a)
		default:
		}
	})
}

// TestDenied checks that the first denial ends a question, even if it already has grants.
func TestDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, _, q, done := asked(t, b, two)
		if _, err := u.Answer(t.Context(), by("ada", q)); err != nil {
			t.Fatal(err)
		}
		got, err := u.Answer(t.Context(), Given{Question: q.ID, Person: "eve", Reason: "not today"})
		if err != nil || !got.Settled || got.Granted {
			t.Errorf("%+v, %v", got, err)
		}
		if a := <-done; len(a.Granted) != 0 || a.Reason != "denied by eve: not today" {
			t.Errorf("%+v", a)
		}
		refused(t, u, b, by("bob", q), bailey.NotFound)
		expect(t, b, "question a-1", "GRANTED", "answer a-1 r-a-1 ", "answer a-1 r-a-1 denied by eve: not today")
	})
}

// TestGrantNotRecorded checks that a grant that is not in the ledger has no effect.
func TestGrantNotRecorded(t *testing.T) {
	for _, rule := range []bailey.Rule{one, two} {
		synctest.Test(t, func(t *testing.T) {
			full := errors.New("no space left on device")
			b := &book{refuse: map[string]error{"answer": full}}
			u, _, q, done := asked(t, b, rule)
			if got, err := u.Answer(t.Context(), by("ada", q)); !errors.Is(err, full) || got.Granted {
				t.Errorf("%+v, %v", got, err)
			}
			if n := len(u.Open()[0].Answers); n != 0 {
				t.Errorf("%d answers count", n)
			}
			select {
			case a := <-done:
				t.Errorf("the call went on: %+v", a)
			default:
			}
		})
	}
}

// TestAnswersRace checks that with any number of concurrent answers, and a caller that leaves, a name counts once, the
// question is settled once, and at most one call runs.
func TestAnswersRace(t *testing.T) {
	for range 50 {
		b := &book{}
		a := &trusted{roles: map[string][]string{"ada": {"sre"}, "bob": {"sre"}}}
		u := New(Config{Note: b.note, Prove: a.prove})
		in := question("a-1", true)
		in.Rules = []bailey.Rule{two}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan bool, 8)
		ask := func(ctx context.Context) {
			got, _ := u.Ask(ctx, in)
			ran <- len(got.Granted) > 0
		}
		go ask(ctx)
		for len(u.Open()) == 0 {
			time.Sleep(time.Millisecond)
		}
		q := u.Open()[0].Question
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { u.Answer(t.Context(), by("ada", q)) })
		}
		all.Go(func() { u.Answer(t.Context(), by("bob", q)) })
		all.Go(cancel)
		all.Wait()
		runs := 0
		if <-ran {
			runs++
		}
		in.Patience = 0
		for range 3 { // the same call is made again
			in.ID, in.Receipt = bailey.NewApprovalID(), bailey.NewReceiptID()
			if ask(t.Context()); <-ran {
				runs++
			}
		}
		if settled := strings.Count(b.list(), "granted by"); strings.Count(b.list(), "GRANTED") != 2 || settled != 1 || runs != 1 || strings.Count(b.list(), "use ") != 1 {
			t.Fatalf("ran %d times\n%s", runs, b.list())
		}
	}
}
