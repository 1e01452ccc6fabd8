package approve

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bailey"
)

// onceRule asks once for each session.
var onceRule = bailey.Rule{ID: "prod", Digest: "d", Count: 1, Session: true}

// look returns a question about reading a host in a session.
func look(session, host string, wait bool) bailey.Question {
	q := again(question(host, wait))
	q.Session, q.Call, q.Impact, q.Rules = bailey.SessionID(session), "source.run", "readOnly, readOnly", []bailey.Rule{onceRule}
	q.Argv = []bailey.Shown{plain("run"), plain(host)}
	return q
}

// grantAs answers the open question about a host.
func grantAs(t *testing.T, u *Queue, name, host string) {
	t.Helper()
	for _, o := range u.Open() {
		if o.Argv[1].Text == host {
			if _, err := u.Answer(t.Context(), Given{Question: o.ID, Digest: o.Digest, Grant: true, Signature: name + " over " + o.Text}); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no question about %s is open", host)
}

// TestSessionAnswer checks that an answer to a rule for=session lets through the other calls of the session about which
// only such rules ask, also those that wait, and no other call.
func TestSessionAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, trusted := queue(b)
		answers := make(chan bailey.Answer, 2)
		for _, host := range []string{"web1", "web2"} {
			q := look("s1", host, true)
			go func() { answers <- ask(t, u, q) }()
		}
		synctest.Wait()
		grantAs(t, u, "ada", "web1")
		for range 2 {
			if a := <-answers; len(a.Granted) != 1 || a.Granted[0] != "prod" {
				t.Errorf("a call that waited: %+v", a)
			}
		}
		if n := len(u.Open()); n != 0 {
			t.Errorf("%d questions are still open", n)
		}
		a := ask(t, u, look("s1", "web3", false))
		if len(a.Granted) != 1 || a.Question == "" || a.Text != "" || a.Signatures != nil || a.Reason != "granted for this session by ada" {
			t.Errorf("a later call: %+v", a)
		}
		if strings.Count(b.list(), "use "+string(a.Question)+" ") != 3 {
			t.Errorf("the use is not recorded:\n%s", b.list())
		}
		for name, change := range map[string]func(*bailey.Question){
			"session":      func(q *bailey.Question) { q.Session = "s2" },
			"no session":   func(q *bailey.Question) { q.Session = "" },
			"agent":        func(q *bailey.Question) { q.Principal.Agent = "another" },
			"person":       func(q *bailey.Question) { q.Principal.Person = "another" },
			"rewritten":    func(q *bailey.Question) { q.Rules[0].Digest = "other" },
			"another rule": func(q *bailey.Question) { q.Rules = append(q.Rules, bailey.Rule{ID: "asks"}) },
			"irreversible": func(q *bailey.Question) { q.Impact = "destructive, irreversible" },
			"and signing":  func(q *bailey.Question) { q.Impact = "destructive, irreversible, signs one tag as ada" },
			"lease":        func(q *bailey.Question) { q.Leases = []bailey.LeaseScope{{Name: "t", Approval: true}} },
		} {
			q := look("s1", "web4", false)
			change(&q)
			if a := ask(t, u, q); !a.Pending {
				t.Errorf("%s: %+v", name, a)
			}
		}
		trusted.revoke("ada")
		if a := ask(t, u, look("s1", "web5", false)); !a.Pending {
			t.Errorf("of an approver that is none: %+v", a)
		}
	})
}

// TestSessionAnswerEnds checks that the answer ends with the session, after a day, and with the gateway, and that a use
// that cannot be recorded lets nothing run.
func TestSessionAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		u, _ := queue(b)
		answer := func(session string) {
			t.Helper()
			q := look(session, "web1", false)
			if a := ask(t, u, q); !a.Pending {
				t.Fatalf("%+v", a)
			}
			grantAs(t, u, "ada", "web1")
			if a := ask(t, u, again(q)); len(a.Granted) != 1 || len(a.Signatures) != 1 {
				t.Fatalf("%+v", a)
			}
			if a := ask(t, u, look(session, "web2", false)); len(a.Granted) != 1 {
				t.Fatalf("%+v", a)
			}
		}
		answer("s1")
		b.refuse = map[string]error{"use": errors.New("no space left on device")}
		if a, err := u.Ask(t.Context(), look("s1", "web2", false)); bailey.KindOf(err) != bailey.Unavailable || a.Granted != nil {
			t.Errorf("%+v, %v", a, err)
		}
		b.refuse = nil
		u.End("s1")
		answer("s1")
		u.ForgetAnswers() // the kill switch
		answer("s1")
		time.Sleep(MaxStanding)
		answer("s1")
		u, _ = queue(b)
		answer("s1")
	})
}

// TestSessionAnswerDenied checks that a denial is for one call.
func TestSessionAnswerDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, _ := queue(&book{})
		ask(t, u, look("s1", "web1", false))
		if _, err := u.Answer(t.Context(), Given{Question: u.Open()[0].ID, Person: "ada"}); err != nil {
			t.Fatal(err)
		}
		if a := ask(t, u, look("s1", "web2", false)); !a.Pending {
			t.Errorf("%+v", a)
		}
	})
}

// TestSessionAnswersDoNotAdd checks that answers to two rules, each given alone, do not let through a call about which both
// ask: together the rules may want more of one person.
func TestSessionAnswersDoNotAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, _ := queue(&book{})
		other := onceRule
		other.ID, other.Digest = "other", "other"
		both := look("s1", "web3", false)
		both.Rules = []bailey.Rule{onceRule, other}
		for host, rules := range map[string][]bailey.Rule{"web1": {onceRule}, "web2": {other}} {
			q := look("s1", host, false)
			q.Rules = rules
			ask(t, u, q)
			grantAs(t, u, "ada", host)
			ask(t, u, again(q))
			if a := ask(t, u, again(q)); len(a.Granted) != 1 {
				t.Fatalf("not live: %+v", a)
			}
		}
		if a := ask(t, u, both); !a.Pending {
			t.Errorf("%+v", a)
		}
		grantAs(t, u, "ada", "web3")
		ask(t, u, again(both))
		q := look("s1", "web4", false)
		q.Rules = both.Rules
		if a := ask(t, u, q); len(a.Granted) != 2 {
			t.Errorf("after an answer to both: %+v", a)
		}
	})
}
