package approve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
)

func again(q bailey.Question) bailey.Question {
	q.ID, q.Receipt = bailey.NewApprovalID(), bailey.NewReceiptID()
	return q
}

func queue(b *book) (*Queue, *trusted) {
	a := &trusted{roles: map[string][]string{"ada": {"sre"}, "bob": {"sre"}, "eve": nil}}
	return New(Config{Note: b.note, Prove: a.prove, Key: []byte("key"), Past: b.past}), a
}

// ask calls Ask and fails the test if it returns an error.
func ask(t *testing.T, u *Queue, q bailey.Question) bailey.Answer {
	t.Helper()
	a, err := u.Ask(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestParked checks that a call whose caller did not wait uses the grant when it is made again, and runs once.
func TestParked(t *testing.T) {
	b := &book{}
	u, _ := queue(b)
	call := question("a-1", false)
	call.Rules = []bailey.Rule{one}
	if a := ask(t, u, call); !a.Pending || a.Question != "a-1" {
		t.Fatalf("%+v", a)
	}
	if a := ask(t, u, again(call)); !a.Pending || a.Question != "a-1" { // the same question
		t.Fatalf("%+v", a)
	}
	if got, err := u.Answer(t.Context(), by("ada", u.Open()[0].Question)); err != nil || !got.Granted {
		t.Fatalf("%+v, %v", got, err)
	}
	if open := u.Open(); len(open) != 1 || open[0].Granted.IsZero() {
		t.Errorf("%+v", open)
	}
	refused(t, u, b, by("bob", u.Open()[0].Question), bailey.Conflict) // it is already granted
	elsewhere := again(call)
	elsewhere.Session = "s-2"
	if a := ask(t, u, elsewhere); !a.Pending || a.Question == "a-1" {
		t.Errorf("another session took it: %+v", a)
	}
	changed := again(call)
	changed.Argv = []bailey.Shown{plain("git"), secret("push", "push --force")}
	if a := ask(t, u, changed); !a.Pending || a.Question == "a-1" {
		t.Errorf("other arguments took it: %+v", a)
	}
	a := ask(t, u, again(call))
	if a.Question != "a-1" || len(a.Granted) != 1 || approvaltext.Digest(a.Text) == "" || len(a.Signatures) != 1 {
		t.Errorf("%+v", a)
	}
	if a := ask(t, u, again(call)); !a.Pending || a.Question == "a-1" {
		t.Errorf("it ran twice: %+v", a)
	}
}

// TestBoundThings checks that an answer does not count if any bound part of the call changes afterwards. The changed
// call must be a new question.
func TestBoundThings(t *testing.T) {
	for name, change := range map[string]func(*bailey.Question){
		"argument": func(q *bailey.Question) { q.Argv = []bailey.Shown{plain("git"), plain("pull")} },
		"file": func(q *bailey.Question) {
			q.Files = []bailey.FrozenFile{{Input: "body", Size: 1, SHA256: bailey.NewSecret("1")}}
		},
		"commit": func(q *bailey.Question) { q.Preview = bailey.Preview{Argv: q.Argv, Output: plain("another")} },
		"policy": func(q *bailey.Question) {
			q.Rules = []bailey.Rule{{ID: "one", Count: 1, TTL: time.Minute, Digest: "other"}}
		},
		"binary":     func(q *bailey.Question) { q.BinaryDigest = "other" },
		"manifest":   func(q *bailey.Question) { q.Manifest = "other" },
		"capability": func(q *bailey.Question) { q.Call = "git.pull" },
		"directory":  func(q *bailey.Question) { q.Dir = plain("/elsewhere") },
		"agent":      func(q *bailey.Question) { q.Principal.Agent = "another" },
		"cage":       func(q *bailey.Question) { q.Plan = plain("other") },
		"lease":      func(q *bailey.Question) { q.Leases = []bailey.LeaseScope{{Name: "token"}} },
	} {
		b := &book{}
		u, _ := queue(b)
		call := question("a-1", false)
		call.Rules = []bailey.Rule{one}
		ask(t, u, call)
		if _, err := u.Answer(t.Context(), by("ada", u.Open()[0].Question)); err != nil {
			t.Fatal(err)
		}
		changed := again(call)
		change(&changed)
		if a := ask(t, u, changed); !a.Pending || len(a.Granted) != 0 || a.Question == "a-1" {
			t.Errorf("%s: %+v", name, a)
		}
		if a := ask(t, u, again(call)); len(a.Granted) != 1 {
			t.Errorf("%s: what was granted is gone: %+v", name, a)
		}
	}
}

// TestPatience checks that the caller waits as long as it asked to, and that the question stays open longer.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, _ := queue(b)
		call := question("a-1", false, time.Minute)
		call.Patience = 45 * time.Second
		told := make(chan bailey.Question, 1)
		over := make(chan struct{})
		call.Asked = func(ctx context.Context, q bailey.Question) {
			told <- q
			<-ctx.Done()
			close(over)
		}
		start := time.Now()
		a := ask(t, u, call)
		if !a.Pending || time.Since(start) != 45*time.Second || !a.Expires.Equal(start.Add(time.Minute)) {
			t.Errorf("%+v after %v", a, time.Since(start))
		}
		if q := <-told; q.ID != "a-1" || q.Text == "" {
			t.Errorf("%+v", q)
		}
		<-over
		call.Asked = nil
		if a := ask(t, u, again(call)); a.Pending || !strings.HasPrefix(a.Reason, "it was not answered by ") || time.Since(start) != time.Minute {
			t.Errorf("%+v after %v", a, time.Since(start))
		}
	})
}

// TestGrantNotUsed checks that an unused grant is valid as long as its rules say, and that it can be revoked.
func TestGrantNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, trusted := queue(b)
		stop := running(t, u)
		defer stop()
		call := question("a-1", false)
		call.Rules = []bailey.Rule{one} // one minute
		grant := func() bailey.Question {
			q := u.Open()[0].Question
			if _, err := u.Answer(t.Context(), by("ada", q)); err != nil {
				t.Fatal(err)
			}
			return q
		}
		ask(t, u, call)
		time.Sleep(50 * time.Second)
		grant()
		time.Sleep(59 * time.Second)
		if a := ask(t, u, again(call)); len(a.Granted) != 1 {
			t.Errorf("a minute after the answer: %+v", a)
		}
		ask(t, u, again(call))
		grant()
		time.Sleep(time.Minute)
		synctest.Wait()
		if a := ask(t, u, again(call)); !a.Pending || len(u.Open()) != 1 {
			t.Errorf("too late: %+v", a)
		}
		grant()
		trusted.revoke("ada") // its author may no longer grant it
		if a := ask(t, u, again(call)); !a.Pending {
			t.Errorf("%+v", a)
		}
		trusted.roles["ada"] = nil
		q := grant()
		if got, err := u.Answer(t.Context(), Given{Question: q.ID, Person: "bob", Reason: "no, wait"}); err != nil || !got.Settled || got.Granted {
			t.Errorf("%+v, %v", got, err)
		}
		if a := ask(t, u, again(call)); a.Pending || len(a.Granted) > 0 || !strings.Contains(a.Reason, "denied by bob: no, wait") {
			t.Errorf("taken back: %+v", a)
		}
	})
}

// TestDenialIsRemembered checks that a denial applies to the same call of every session for ten minutes. An expiry or a
// withdrawal must not be remembered.
func TestDenialIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, _ := queue(b)
		call := question("a-1", false)
		call.Session = "s-1"
		ask(t, u, call)
		if _, err := u.Answer(t.Context(), Given{Question: "a-1", Person: "eve"}); err != nil {
			t.Fatal(err)
		}
		u, _ = queue(b) // after a restart
		elsewhere := again(call)
		elsewhere.Session = "s-2"
		a := ask(t, u, elsewhere)
		if a.Pending || a.Question != "a-1" || !strings.HasPrefix(a.Reason, "denied by eve; the same call gets this answer until ") {
			t.Errorf("%+v", a)
		}
		if a := ask(t, u, other(again(call))); !a.Pending {
			t.Errorf("another call is denied: %+v", a)
		}
		time.Sleep(10 * time.Minute)
		if a := ask(t, u, again(call)); !a.Pending {
			t.Errorf("after ten minutes: %+v", a)
		}
		u.End("s-1")
		if a := ask(t, u, elsewhere); !a.Pending {
			t.Errorf("after a withdrawal: %+v", a)
		}
		if open := u.Open(); len(open) != 1 || open[0].Session != "s-2" {
			t.Errorf("%+v", open)
		}
	})
}

// TestLevel checks that an answer of a lower level than a rule requires is rejected.
func TestLevel(t *testing.T) {
	b := &book{}
	u, _ := queue(b)
	call := question("a-1", false)
	call.Rules = []bailey.Rule{{ID: "grave", Count: 1, Level: bailey.SignedTouch}, one}
	ask(t, u, call)
	q := u.Open()[0].Question
	refused(t, u, b, by("ada", q), bailey.Denied)
	prove := u.c.Prove
	u.c.Prove = func(text []byte, g Given) (Approver, error) {
		return Approver{Name: g.Person, Level: bailey.Local}, nil
	}
	refused(t, u, b, Given{Question: q.ID, Digest: q.Digest, Grant: true, Person: "me", Operator: "client"}, bailey.Denied)
	u.c.Prove = func(text []byte, g Given) (Approver, error) {
		by, err := prove(text, g)
		by.Level = bailey.SignedTouch
		return by, err
	}
	if got, err := u.Answer(t.Context(), by("ada", q)); err != nil || !got.Granted {
		t.Errorf("%+v, %v", got, err)
	}
}

// died is the panic value of a gateway that is killed during a write.
type died struct{}

// dying returns a Note function that panics at the n-th event, before it is written or after.
func dying(b *book, n int, after bool) func(context.Context, string, any) error {
	return func(ctx context.Context, kind string, data any) error {
		if n--; n != 0 {
			return b.note(ctx, kind, data)
		}
		if after {
			b.note(ctx, kind, data)
		}
		panic(died{})
	}
}

// TestKilledAtEveryStep checks that a gateway that is killed between any two steps loses no visible question and no
// accepted answer, and that no call runs twice.
func TestKilledAtEveryStep(t *testing.T) {
	call := question("a-1", false)
	call.Session, call.Rules = "s-1", []bailey.Rule{two}
	steps := 0
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			b := &book{}
			runs, killed := 0, false
			life := func(note func(context.Context, string, any) error) {
				defer func() {
					if p := recover(); p != nil {
						if _, ok := p.(died); !ok {
							panic(p)
						}
						killed = true
					}
				}()
				u, _ := queue(b)
				u.c.Note = note
				for range 2 {
					a, err := u.Ask(t.Context(), again(call))
					if err != nil {
						t.Error(err)
					}
					if len(a.Granted) > 0 {
						runs++
						return
					}
					for _, name := range []string{"ada", "bob"} {
						open := u.Open()
						if len(open) != 1 {
							t.Fatalf("killed at %d (%v): %d are open", n, after, len(open))
						}
						if _, err := u.Answer(t.Context(), by(name, open[0].Question)); err != nil && !errors.Is(err, bailey.Conflict) {
							t.Error(err)
						}
					}
				}
			}
			life(dying(b, n, after))
			if !killed {
				steps = max(steps, n-1)
				if runs != 1 {
					t.Errorf("nobody was killed, and it ran %d times", runs)
				}
				break
			}
			spent := len(b.past.Questions) == 0 && strings.Contains(b.list(), "use ")
			asked := strings.Count(b.list(), "question ")
			life(b.note)
			switch {
			case runs != 1:
				t.Errorf("killed at %d (%v): it ran %d times\n%s", n, after, runs, b.list())
			case !spent && asked > 0 && strings.Count(b.list(), "question ") != asked:
				t.Errorf("killed at %d (%v): the question was lost\n%s", n, after, b.list())
			case !spent && asked > 0 && strings.Count(b.list(), "GRANTED") != 2:
				t.Errorf("killed at %d (%v): an answer was lost\n%s", n, after, b.list())
			}
		}
	}
	if steps != 4 { // question, answer, answer, use
		t.Errorf("%d steps", steps)
	}
}

// TestStateIsWhole checks that a state is unchanged after it is written as JSON and read again.
func TestStateIsWhole(t *testing.T) {
	b := &book{}
	u, _ := queue(b)
	call := question("a-1", false)
	call.Rules = []bailey.Rule{one}
	ask(t, u, call)
	ask(t, u, other(again(call)))
	u.Answer(t.Context(), by("ada", u.Open()[0].Question))
	raw, err := json.Marshal(b.past)
	var back State
	if err == nil {
		err = json.Unmarshal(raw, &back)
	}
	if err != nil || strings.Contains(string(raw), "***") {
		t.Fatalf("%v in %s", err, raw)
	}
	b.past = back
	u, _ = queue(b)
	if open := u.Open(); len(open) != 2 || open[0].Granted.IsZero() || open[0].Argv[1].Text != "push" || open[0].Rules[0] != one {
		t.Errorf("%+v", open)
	}
}

// TestForgedState checks that a forged question in the ledger is not taken over.
func TestForgedState(t *testing.T) {
	b := &book{}
	u, _ := queue(b)
	ask(t, u, question("a-1", false))
	k := b.past.Questions["a-1"]
	for name, change := range map[string]func(*Kept){
		"text": func(k *Kept) { k.Question.Text = strings.Replace(k.Question.Text, "push", "pull", 1) },
		"form": func(k *Kept) { k.Question.Text = "x"; k.Question.Digest = approvaltext.Digest("x") },
	} {
		forged := k
		change(&forged)
		b.past.Questions = map[bailey.ApprovalID]Kept{"a-1": forged}
		if u, _ := queue(b); len(u.Open()) != 0 {
			t.Errorf("%s: %+v", name, u.Open())
		}
	}
	k.Granted = time.Now() // a grant without an answer
	b.past.Questions = map[bailey.ApprovalID]Kept{"a-1": k}
	u, _ = queue(b)
	if a := ask(t, u, again(question("a-1", false))); !a.Pending || len(a.Granted) > 0 {
		t.Errorf("a grant of nobody is taken: %+v", a)
	}
}

// TestOneSessionsShare checks that a session that asks very often leaves room for other sessions.
func TestOneSessionsShare(t *testing.T) {
	b := &book{}
	u, _ := queue(b)
	greedy := func(i int) bailey.Question {
		q := again(question("a-1", false))
		q.Session, q.Argv = "s-1", []bailey.Shown{plain(fmt.Sprint(i))}
		return q
	}
	for i := range maxSession {
		ask(t, u, greedy(i))
	}
	if _, err := u.Ask(t.Context(), greedy(maxSession)); !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
		t.Errorf("one more: %v", err)
	}
	ask(t, u, greedy(0)) // the same question, not a new one
	modest := greedy(0)
	modest.Session = "s-2"
	ask(t, u, modest)
}

// TestDenialHoldsForEverySpelling checks that a denial applies to every spelling of inputs that gives the same command.
func TestDenialHoldsForEverySpelling(t *testing.T) {
	b := &book{}
	u, _ := queue(b)
	call := question("a-1", false)
	call.Inputs = []bailey.Input{{Name: "repo", Shown: plain(`"."`)}}
	ask(t, u, call)
	if _, err := u.Answer(t.Context(), Given{Question: "a-1", Person: "eve"}); err != nil {
		t.Fatal(err)
	}
	spelt := again(call)
	spelt.Inputs = []bailey.Input{{Name: "force", Shown: plain("false")}, {Name: "repo", Shown: plain(`"./."`)}}
	if a := ask(t, u, spelt); a.Pending || !strings.HasPrefix(a.Reason, "denied by eve") {
		t.Errorf("%+v", a)
	}
}
