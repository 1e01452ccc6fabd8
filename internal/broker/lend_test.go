//go:build linux || darwin

package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
)

// silent fails if any way to format v shows the value.
func silent(t *testing.T, v any) {
	t.Helper()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		shown(t, verb, fmt.Sprintf(verb, v))
	}
	b, _ := json.Marshal(v)
	shown(t, "json", string(b))
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
	shown(t, "slog", log.String())
}

func shown(t *testing.T, how, text string) {
	t.Helper()
	for _, form := range []string{value, fmt.Sprintf("%x", value), fmt.Sprintf("%X", value), strings.Trim(fmt.Sprint([]byte(value)), "[]")} {
		if strings.Contains(text, form) {
			t.Errorf("%s shows the value: %.200s", how, text)
		}
	}
}

// TestLend checks that values arrive in order, in variables and in files. The journal must hold the whole loan except
// the values, and after Return the lease must hold no value.
func TestLend(t *testing.T) {
	h := newHouse(t, table())
	l := loanOf("", nil, "other", "free")
	l.Wants = append(l.Wants, bailey.Want{Name: "free", Env: "KEYFILE", File: true})
	lease := h.lend(l)
	if !slices.Equal(lease.Env, []string{"OTHER_TOKEN=" + value + "2", "FREE_TOKEN=" + value}) {
		t.Errorf("env %q", lease.Env)
	}
	if len(lease.Files) != 1 || lease.Files[0].Env != "KEYFILE" || lease.Files[0].Value.Reveal() != value || len(lease.Secrets) != 3 || lease.Secrets[0].Reveal() != value+"2" {
		t.Errorf("%d files, %d secrets", len(lease.Files), len(lease.Secrets))
	}
	for _, id := range lease.IDs {
		if !regexp.MustCompile(`^l-[a-z2-7]{26}\+same-uid$`).MatchString(id) {
			t.Errorf("lease %q", id)
		}
	}
	silent(t, lease)
	lease.Return()
	lease.Return()
	if strings.Join(lease.Env, "") != "" || lease.Secrets[1].Reveal() != "" || lease.Files[0].Value.Reveal() != "" || len(lease.IDs) != 3 {
		t.Error("a value is left after the end")
	}
	j := h.journal()
	for _, want := range []string{string(l.Receipt), "git.push", plainLeaseIDs(lease.IDs)[0], `"exe":"/`, `"event":"end"`, `"why":"returned"`, `"uid":`, `"pid":`} {
		if !strings.Contains(j, want) {
			t.Errorf("the journal lacks %s:\n%s", want, j)
		}
	}
	shown(t, "the journal", j)
	if hello, err := h.client.Hello(t.Context()); err != nil || hello.Open != 0 || len(hello.Leases) != 6 || hello.Changed {
		t.Errorf("%+v, %v", hello, err)
	}
	if lease, err := h.client.Lend(t.Context(), bailey.Loan{Receipt: "r-1"}); err != nil || lease.Return == nil || len(lease.IDs) > 0 {
		t.Errorf("nothing, for nothing: %v, %v", lease, err)
	}
}

// TestScope checks that a question shows the scopes of the table.
func TestScope(t *testing.T) {
	h := newHouse(t, table())
	got, err := h.client.Scope(t.Context(), wants("free", "two"))
	want := []bailey.LeaseScope{
		{Name: "free", Env: "FREE_TOKEN", Adapter: "literal", Scope: "anything", TTL: time.Minute},
		{Name: "two", Env: "TWO_TOKEN", Adapter: "literal", Scope: "deploy", TTL: 5 * time.Minute, Approval: true}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := h.client.Scope(t.Context(), wants("none")); !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
		t.Error(err)
	}
	if got, err := (Client{}).Scope(t.Context(), nil); err != nil || got != nil {
		t.Errorf("nothing wanted, no broker: %v %v", got, err)
	}
}

// TestNoBroker checks that without a broker a call that needs a credential is refused, with a hint how to start one.
func TestNoBroker(t *testing.T) {
	for name, c := range map[string]Client{"none named": {}, "none there": {Socket: "/nowhere/broker.sock"}} {
		lease, err := c.Lend(t.Context(), loanOf("", nil, "free"))
		if !errors.Is(err, bailey.Unavailable) || !strings.Contains(bailey.HintOf(err), "bailey-broker") || lease.Return == nil {
			t.Errorf("%s: %v (%s)", name, err, bailey.HintOf(err))
		}
	}
	why := fmt.Errorf("the caller went away: %w", context.Canceled)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := (Client{}).Lend(ctx, bailey.Loan{}); !errors.Is(err, why) || !errors.Is(err, bailey.Unavailable) {
		t.Errorf("an ended call: %v", err)
	}
}

// TestAnswered checks that a loan that needs an answer is lent for one, and that the journal names its author.
func TestAnswered(t *testing.T) {
	h := newHouse(t, table())
	for _, c := range []struct {
		names []string
		by    []holder
	}{
		{[]string{"one"}, []holder{bob}}, {[]string{"two"}, []holder{ada, bob}}, {[]string{"dev"}, []holder{ada}},
		{[]string{"touch"}, []holder{kim}}, {[]string{"free", "one"}, []holder{ada}}, {[]string{"two", "dev"}, []holder{kim, ada}},
	} {
		text := textOf(h.question(c.names...))
		var sigs []string
		for _, by := range c.by {
			sigs = append(sigs, by.sign(text))
		}
		lease := h.lend(loanOf(text, sigs, c.names...))
		lease.Return()
		if j := h.journal(); !strings.Contains(j, `"by":["`+c.by[0].name+" signed-") {
			t.Errorf("%v: the journal does not say who answered:\n%s", c.names, j)
		}
		h.refused("the same answer again", loanOf(text, sigs, c.names...), bailey.Denied, "was used")
	}
}

// TestCheats checks every way to borrow with an answer that was given for something else.
func TestCheats(t *testing.T) {
	h := newHouse(t, table())
	signed := func(name string, by ...holder) bailey.Loan {
		text := textOf(h.question(name))
		var sigs []string
		for _, b := range by {
			sigs = append(sigs, b.sign(text))
		}
		return loanOf(text, sigs, name)
	}
	with := func(l bailey.Loan, change func(*bailey.Loan)) bailey.Loan { change(&l); return l }
	of := func(change func(*bailey.Question)) bailey.Loan {
		q := h.question("one")
		change(&q)
		text := textOf(q)
		return loanOf(text, []string{ada.sign(text)}, "one")
	}
	other := textOf(h.question("one"))
	for what, c := range map[string]struct {
		loan bailey.Loan
		says string
	}{
		"no answer":                     {loanOf("", nil, "one"), "only for a signed answer"},
		"no signature":                  {signed("one"), "only 0 signatures are valid for that"},
		"a stranger's":                  {signed("one", eve), "not among those trusted"},
		"of another text":               {with(signed("one", ada), func(l *bailey.Loan) { l.Text = other }), "is not that of key"},
		"for another capability":        {with(signed("one", ada), func(l *bailey.Loan) { l.Capability = "git.pull" }), "the call is of git.pull"},
		"for another lease":             {with(signed("one", ada), func(l *bailey.Loan) { l.Wants = wants("two") }), `to lend "one"`},
		"for one more":                  {with(signed("one", ada), func(l *bailey.Loan) { l.Wants = wants("one", "free") }), "names 1 leases"},
		"for another variable":          {with(signed("one", ada), func(l *bailey.Loan) { l.Wants[0].Env = "X" }), `in "ONE_TOKEN"`},
		"expired":                       {of(func(q *bailey.Question) { q.Until = time.Now() }), "was valid until"},
		"another scope":                 {of(func(q *bailey.Question) { q.Leases[0].Scope = "look" }), "the broker's table says"},
		"another adapter":               {of(func(q *bailey.Question) { q.Leases[0].Adapter = "env" }), "the broker's table says"},
		"another time":                  {of(func(q *bailey.Question) { q.Leases[0].TTL = time.Hour }), "the broker's table says"},
		"without a nonce":               {of(func(q *bailey.Question) { q.Nonce = "" }), "nonce"},
		"with a short nonce":            {of(func(q *bailey.Question) { q.Nonce = "00ff" }), "nonce"},
		"one of two":                    {signed("two", ada), "only 1 signatures are valid for that"},
		"the same twice":                {signed("two", ada, ada), "only 1 signatures are valid for that"},
		"without the role":              {signed("dev", bob), "with dev"},
		"without a touch":               {signed("touch", ada), "signed-touch"},
		"a text that is none":           {loanOf("bailey approval 1\n", []string{ada.sign("bailey approval 1\n")}, "one"), "not a question"},
		"a text with a line more":       {with(signed("one", ada), func(l *bailey.Loan) { l.Text += "\n" }), "not a question"},
		"a grant that stands for a day": {loanOf("bailey grant 1\n", []string{ada.sign("bailey grant 1\n")}, "one"), "not a question"},
	} {
		h.refused(what, c.loan, bailey.Denied, c.says)
	}
	text := textOf(h.question("one"))
	h.refused("a signature of a git commit", loanOf(text, []string{ada.signFor("git", text, 1)}, "one"), bailey.Denied, `namespace "git"`)
	text = textOf(h.question("touch"))
	h.refused("a key that nobody touched", loanOf(text, []string{kim.signFor("approval@bailey", text, 0)}, "touch"), bailey.Denied, "signed-touch")
	h.refused("no longer in the table", loanOf("", nil, "nothing"), bailey.Unavailable, `"nothing"`)
	for _, v := range []string{"LD_PRELOAD", "PATH", "1A", "A B", ""} {
		l := loanOf("", nil, "free")
		l.Wants[0].Env = v
		if _, err := h.client.Lend(t.Context(), l); err == nil {
			t.Errorf("lent in %q", v)
		}
	}
	if strings.Contains(h.journal(), `"lend"`) {
		t.Error("something was lent")
	}
}

// TestNonceOnce checks that a second text with a used nonce is refused, even with a valid signature.
func TestNonceOnce(t *testing.T) {
	h := newHouse(t, table())
	q := h.question("one")
	text := textOf(q)
	h.lend(loanOf(text, []string{ada.sign(text)}, "one")).Return()
	q.ID = bailey.NewApprovalID()
	text = textOf(q)
	h.refused("the nonce again", loanOf(text, []string{ada.sign(text)}, "one"), bailey.Denied, "was used")
}

// TestApproverTakenOut checks that if an approver is removed from the table, not even an earlier answer counts.
func TestApproverTakenOut(t *testing.T) {
	h := newHouse(t, table())
	text := textOf(h.question("one"))
	sig := bob.sign(text)
	h.reapply(strings.Replace(table(), bob.approver("sre"), "", 1))
	h.refused("an approver of before", loanOf(text, []string{sig}, "one"), bailey.Denied, "not among those trusted")
}

// TestOnceAmongMany checks that if many clients present one answer at once, exactly one gets a lease.
func TestOnceAmongMany(t *testing.T) {
	h := newHouse(t, table())
	text := textOf(h.question("one"))
	sig := ada.sign(text)
	var mu sync.Mutex
	got := 0
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			lease, err := h.client.Lend(t.Context(), loanOf(text, []string{sig}, "one"))
			if err == nil {
				mu.Lock()
				got++
				mu.Unlock()
				lease.Return()
			}
		})
	}
	all.Wait()
	if got != 1 {
		t.Errorf("%d were lent", got)
	}
}

// TestFailedMintKeepsTheAnswer checks that if no value could be issued, the answer is not used up.
func TestFailedMintKeepsTheAnswer(t *testing.T) {
	t.Setenv("BROKER_TEST", "")
	h := newHouse(t, strings.Replace(table(), "one: {literal: \""+value+"\"", "one: {env: BROKER_TEST", 1))
	text := textOf(h.question("one"))
	l := loanOf(text, []string{ada.sign(text)}, "one")
	h.refused("without a value", l, bailey.Unavailable, "BROKER_TEST")
	t.Setenv("BROKER_TEST", value)
	h.lend(l).Return()
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"A", "_", "LD_PRELOAD", "a=b", "É", ""} {
		f.Add(s)
	}
	word := regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*\z`)
	f.Fuzz(func(t *testing.T, name string) {
		if validName(name) != word.MatchString(name) {
			t.Errorf("%q", name)
		}
		if up := strings.ToUpper(name); isBarred(name) != isBarred(up) {
			t.Errorf("case decides over %q", name)
		}
	})
}

// TestLentIsWhatWasShown checks that if a person was asked, a credential that needs no answer itself must also be lent
// exactly as shown, because the table may have changed since.
func TestLentIsWhatWasShown(t *testing.T) {
	h := newHouse(t, table())
	q := h.question("free", "other")
	h.lend(loanOf(textOf(q), nil, "free", "other")).Return()
	h.lend(loanOf(textOf(q), nil, "free", "other")).Return() // it is not used up
	for name, wants := range map[string][]string{"less": {"free"}, "another": {"free", "dev"}, "in another order": {"other", "free"}} {
		h.refused(name, loanOf(textOf(q), nil, wants...), bailey.Denied, "the answer ")
	}
	h.refused("no text of a question", loanOf("bailey grant 1\n", nil, "free", "other"), bailey.Denied, "not a question")
	h.reapply(strings.Replace(table(), "scope: anything", "scope: everything", 1))
	h.refused("another scope", loanOf(textOf(q), nil, "free", "other"), bailey.Denied, `for "anything"`)
	h.lend(loanOf("", nil, "free")).Return() // no person was asked
}
