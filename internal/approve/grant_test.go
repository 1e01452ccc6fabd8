package approve

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
)

// give drafts a standing grant for a question and gives it under the given name.
func give(t *testing.T, u *Queue, id bailey.ApprovalID, name string, long time.Duration) (Standing, error) {
	t.Helper()
	text, err := u.Draft(id, long, false)
	if err != nil {
		return Standing{}, err
	}
	g, err := approvaltext.ParseGrant(text)
	if err != nil {
		t.Fatal(err)
	}
	return u.Stand(t.Context(), g.ID, Given{Digest: approvaltext.Digest(text), Grant: true, Signature: name + " over " + text})
}

// TestStandingGrant checks that a grant answers open and later questions with the same capability, agent and rules
// until it expires, it is revoked, or its author loses the right to give it.
func TestStandingGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, trusted := queue(b)
		call := question("a-1", true)
		call.Call, call.Rules = "git.push", []bailey.Rule{one}
		done := make(chan bailey.Answer, 1)
		go func() {
			a, _ := u.Ask(t.Context(), call)
			done <- a
		}()
		synctest.Wait()
		call.Patience = 0
		s, err := give(t, u, "a-1", "ada", time.Hour)
		if err != nil || s.By.Name != "ada" {
			t.Fatalf("%+v, %v", s, err)
		}
		if a := <-done; len(a.Granted) != 1 || len(a.Standing) != 1 || a.Standing[0] != s.ID {
			t.Errorf("the call that waited: %+v", a)
		}
		u, _ = queue(b) // after a restart
		u.c.Prove = trusted.prove
		for range 2 {
			if a := ask(t, u, other(again(call))); len(a.Granted) != 1 || len(a.Standing) != 1 {
				t.Errorf("other arguments: %+v", a)
			}
		}
		for name, change := range map[string]func(*bailey.Question){
			"capability":   func(q *bailey.Question) { q.Call = "git.pull" },
			"agent":        func(q *bailey.Question) { q.Principal.Agent = "another" },
			"rule":         func(q *bailey.Question) { q.Rules = []bailey.Rule{{ID: "other"}} },
			"rewritten":    func(q *bailey.Question) { q.Rules = []bailey.Rule{{ID: "one", Digest: "other"}} },
			"another rule": func(q *bailey.Question) { q.Rules = []bailey.Rule{one, {ID: "other"}} },
			"irreversible": func(q *bailey.Question) { q.Impact = "destructive, irreversible" },
			"lease": func(q *bailey.Question) {
				q.Leases = []bailey.LeaseScope{{Name: "token", Approval: true}}
			},
		} {
			q := again(call)
			change(&q)
			if a := ask(t, u, q); !a.Pending {
				t.Errorf("%s: %+v", name, a)
			}
		}
		trusted.revoke("ada")
		if a := ask(t, u, other(again(call))); !a.Pending {
			t.Errorf("of an approver that is none: %+v", a)
		}
		trusted.roles["ada"] = nil
		time.Sleep(time.Hour)
		if a := ask(t, u, other(again(call))); !a.Pending || len(u.Grants()) != 0 {
			t.Errorf("after its time: %+v", a)
		}
	})
}

// TestGrantRevoked checks that a revoked grant allows no call, not even one that it answered and that has not run yet.
func TestGrantRevoked(t *testing.T) {
	b := &book{}
	u, _ := queue(b)
	call := question("a-1", false)
	call.Rules = []bailey.Rule{one}
	ask(t, u, call)
	s, err := give(t, u, "a-1", "ada", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if open := u.Open(); len(open) != 1 || open[0].Granted.IsZero() {
		t.Fatalf("%+v", open)
	}
	if err := u.Revoke(t.Context(), Revoked{ID: s.ID}); err != nil {
		t.Fatal(err)
	}
	if open := u.Open(); len(open) != 0 {
		t.Errorf("what it answered is shown as granted: %+v", open)
	}
	if err := u.Revoke(t.Context(), Revoked{ID: s.ID}); !errors.Is(err, bailey.NotFound) {
		t.Error(err)
	}
	if a := ask(t, u, again(call)); !a.Pending || len(a.Granted) > 0 {
		t.Errorf("%+v", a)
	}
	u, _ = queue(b)
	if len(u.Grants()) != 0 {
		t.Error("it stands again after a restart")
	}
}

// TestGrantsThatCannotStand checks that questions that must be asked each time get no standing grant, and that a
// signature over another text is refused.
func TestGrantsThatCannotStand(t *testing.T) {
	b := &book{}
	u, _ := queue(b)
	call := question("a-1", false)
	for name, change := range map[string]func(*bailey.Question){
		"two people": func(q *bailey.Question) { q.Rules = []bailey.Rule{two} }, "irreversible": func(q *bailey.Question) { q.Impact = "mutating, irreversible" },
		"lease": func(q *bailey.Question) { q.Leases = []bailey.LeaseScope{{Approval: true}} },
	} {
		q := other(again(call))
		change(&q)
		a := ask(t, u, q)
		if _, err := u.Draft(a.Question, time.Hour, false); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	call.Rules = []bailey.Rule{one}
	ask(t, u, call)
	for _, long := range []time.Duration{0, -1, time.Millisecond, MaxStanding + 1} {
		if _, err := u.Draft("a-1", long, false); !errors.Is(err, bailey.Invalid) {
			t.Errorf("%v: %v", long, err)
		}
	}
	text, err := u.Draft("a-1", time.Hour, false)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := approvaltext.ParseGrant(text)
	e, _ := u.findOpen("a-1")
	q := e.q
	for name, in := range map[string]Given{
		"the question's signature": {Digest: approvaltext.Digest(text), Grant: true, Signature: "ada over " + q.Text},
		"nobody known":             {Digest: approvaltext.Digest(text), Grant: true, Signature: "mallory over " + text},
		"another text":             {Digest: q.Digest, Grant: true, Signature: "ada over " + text},
	} {
		if _, err := u.Stand(t.Context(), g.ID, in); err == nil || len(u.Grants()) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	// nor may the grant's signature answer the question
	refused(t, u, b, Given{Question: "a-1", Digest: q.Digest, Grant: true, Signature: "ada over " + text}, bailey.Denied)
	if _, err := u.Stand(t.Context(), "g-none", Given{}); !errors.Is(err, bailey.NotFound) {
		t.Error(err)
	}
	b.refuse = map[string]error{"grant": errors.New("no space left on device")}
	if _, err := u.Stand(t.Context(), g.ID, Given{Digest: approvaltext.Digest(text), Grant: true, Signature: "ada over " + text}); !errors.Is(err, bailey.Unavailable) || len(u.Grants()) != 0 {
		t.Errorf("what is not recorded stands: %v", err)
	}
	b.refuse = map[string]error{"use": errors.New("no space left on device")}
	if _, err := u.Stand(t.Context(), g.ID, Given{Digest: approvaltext.Digest(text), Grant: true, Signature: "ada over " + text}); err != nil {
		t.Fatal(err)
	}
	// a call that it answered, and another that it covers
	for _, q := range []bailey.Question{again(call), other(again(call))} {
		if a, err := u.Ask(t.Context(), q); !errors.Is(err, bailey.Unavailable) || len(a.Granted) != 0 {
			t.Errorf("its use is not recorded, and it runs: %+v, %v", a, err)
		}
	}
}
