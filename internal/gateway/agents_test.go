package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// agentBook is the part of a ledger that holds agents: the recorded events, folded as a starting gateway folds them.
type agentBook struct {
	mu    sync.Mutex
	text  []string
	known KnownAgents
	err   error
}

func (b *agentBook) note(_ context.Context, kind string, data any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	text, err := json.Marshal(data)
	b.text = append(b.text, kind+" "+string(text))
	switch d := data.(type) {
	case apitype.Agent:
		if kind == apitype.AgentRemoveEvent {
			b.known.Remove(d)
		} else {
			b.known.Add(d)
		}
	case apitype.Token:
		b.known.Issue(d)
	case TokenEnd:
		b.known.End(d)
	}
	return err
}

// clock is a time that the test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }

func (c *clock) after(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.at = c.at.Add(d) }

func newAgentBook() (*agentBook, *Agents, *clock) {
	b, c := &agentBook{}, &clock{at: time.Now()}
	a := NewAgents(KnownAgents{}, b.note)
	a.now = c.now
	return b, a, c
}

// allowed is a policy that allows everything.
type allowed struct{}

func (allowed) Decide(bailey.Request) bailey.Decision { return bailey.Decision{Effect: bailey.Allow} }

var _ gate.Policy = allowed{}

func wants(t *testing.T, err error, kind bailey.Kind, says string) {
	t.Helper()
	if bailey.KindOf(err) != kind || !strings.Contains(fmt.Sprint(err), says) || bailey.HintOf(err) == "" {
		t.Errorf("%v (%q, hint %q), want %q: %q", err, bailey.KindOf(err), bailey.HintOf(err), kind, says)
	}
}

// TestTokenIsWhoItSays checks that a bearer leads to its token, also in a gateway that starts later, and that the
// ledger does not contain the bearer.
func TestTokenIsWhoItSays(t *testing.T) {
	b, a, _ := newAgentBook()
	bearer, tok, err := a.Add(t.Context(), Grant{Agent: "reviewer", Scope: []string{"git.*"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []*Agents{a, NewAgents(b.known, b.note)} {
		if got, err := known.Admit(bearer); err != nil || got.ID != tok.ID || got.Agent != "reviewer" {
			t.Errorf("%+v %v", got, err)
		}
	}
	if all := strings.Join(b.text, "\n"); strings.Contains(all, bearer) || strings.Contains(all, bearer[3:]) {
		t.Errorf("the ledger has the bearer: %s", all)
	}
	if d := tok.Expires.Sub(tok.Issued); d != defaultTokenTTL {
		t.Errorf("it counts for %v", d)
	}
	wants(t, func() error { _, _, err := a.Add(t.Context(), Grant{Agent: "reviewer"}); return err }(), bailey.Conflict, "already exists")
}

// TestTokenThatDoesNotCount checks that the errors for unknown, expired and revoked tokens differ, and that no error
// quotes the bearer.
func TestTokenThatDoesNotCount(t *testing.T) {
	_, a, c := newAgentBook()
	expiring, _, err := a.Issue(t.Context(), Grant{Agent: apitype.LocalAgent, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	revoked, tok, err := a.Issue(t.Context(), Grant{Agent: apitype.LocalAgent})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Revoke(t.Context(), tok.ID, localapi.Env, "ada"); err != nil {
		t.Fatal(err)
	}
	wants(t, func() error { _, err := a.Revoke(t.Context(), tok.ID, localapi.Env, "ada"); return err }(), bailey.Conflict, "revoked already")
	wants(t, func() error { _, err := a.Revoke(t.Context(), "t-none", localapi.Env, "ada"); return err }(), bailey.NotFound, "no such token")
	c.after(time.Hour)
	for bearer, says := range map[string]string{
		expiring: "expired since", revoked: "revoked since", tokenPrefix + strings.Repeat("0", 64): "unknown here", tokenPrefix + strings.Repeat("A", 64): "not a token of Bailey",
		tokenPrefix + "00": "not a token of Bailey", "": "not a token of Bailey", "bs-" + strings.Repeat("0", 32): "not a token of Bailey", expiring + "0": "not a token of Bailey", strings.ToUpper(revoked): "not a token of Bailey",
	} {
		_, err := a.Admit(bearer)
		wants(t, err, bailey.Denied, says)
		if len(bearer) > 5 && strings.Contains(fmt.Sprint(err, bailey.HintOf(err)), bearer[3:]) {
			t.Errorf("%v quotes the bearer", err)
		}
	}
}

// TestTokenBoundsCalls checks that a call outside the scope of its token is denied even if policy allows it, and so is
// a call whose token has ended.
func TestTokenBoundsCalls(t *testing.T) {
	_, a, c := newAgentBook()
	_, tok, err := a.Add(t.Context(), Grant{Agent: "reviewer", Scope: []string{"git.*", "system.date"}, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p := a.Before(allowed{})
	decide := func(who bailey.Principal, id bailey.CapabilityID) bailey.Decision {
		return p.Decide(bailey.Request{Principal: who, Capability: id})
	}
	who := bailey.Principal{Agent: "reviewer", Token: tok.ID}
	for id, want := range map[bailey.CapabilityID]string{"git.status": "", "system.date": "", "system.echo": "does not allow system.echo", "gitx.status": "does not allow", "npm.git.x": "does not allow"} {
		if d := decide(who, id); (d.Effect == bailey.Allow) != (want == "") || !strings.Contains(d.Reason, want) {
			t.Errorf("%s: %+v", id, d)
		}
	}
	if d := decide(bailey.Principal{Agent: apitype.LocalAgent}, "system.echo"); d.Effect != bailey.Allow {
		t.Errorf("without a token: %+v", d)
	}
	if d := decide(bailey.Principal{Agent: "other", Token: tok.ID}, "git.status"); d.Effect == bailey.Allow {
		t.Errorf("another agent's token: %+v", d)
	}
	if d := decide(bailey.Principal{Agent: "reviewer", Token: "t-none"}, "git.status"); d.Effect == bailey.Allow {
		t.Errorf("an unknown token: %+v", d)
	}
	c.after(time.Hour)
	if d := decide(who, "git.status"); d.Effect == bailey.Allow || !strings.Contains(d.Reason, "expired") || d.Hint == "" {
		t.Errorf("expired: %+v", d)
	}
}

// TestTokensRotate checks that old tokens end after the overlap, or at once if there is no overlap, and that a removed
// agent has no valid token.
func TestTokensRotate(t *testing.T) {
	_, a, c := newAgentBook()
	first, _, err := a.Add(t.Context(), Grant{Agent: "n"})
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := a.Rotate(t.Context(), Grant{Agent: "n"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	admits := func(bearer string) bool { _, err := a.Admit(bearer); return err == nil }
	if !admits(first) || !admits(second) {
		t.Error("in the overlap both count")
	}
	c.after(time.Hour)
	if admits(first) || !admits(second) {
		t.Error("after the overlap the new one counts alone")
	}
	third, _, err := a.Rotate(t.Context(), Grant{Agent: "n"}, 0)
	if err != nil || admits(second) || !admits(third) {
		t.Errorf("without an overlap the old one counts on (%v)", err)
	}
	if err := a.Remove(t.Context(), "n", localapi.Env, "ada"); err != nil || admits(third) || len(a.Names()) != 0 {
		t.Errorf("the token of an agent that was taken away: %v", err)
	}
	for name, err := range map[string]error{
		"removed": a.Remove(t.Context(), "n", localapi.Env, "ada"),
		"rotated": func() error { _, _, err := a.Rotate(t.Context(), Grant{Agent: "n"}, 0); return err }(),
		"issued":  func() error { _, _, err := a.Issue(t.Context(), Grant{Agent: "n"}); return err }(),
	} {
		if !errors.Is(err, bailey.NotFound) {
			t.Errorf("%s again: %v", name, err)
		}
	}
}

// TestRotationDoesNotWiden checks that a new token has the scope of the one before, unless a scope is given, and that
// the local agent cannot be removed.
func TestRotationDoesNotWiden(t *testing.T) {
	_, a, c := newAgentBook()
	if _, _, err := a.Add(t.Context(), Grant{Agent: "n", Scope: []string{"git.*"}, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ scope, want []string }{{nil, []string{"git.*"}}, {[]string{"*"}, []string{"*"}}, {nil, []string{"*"}}, {[]string{"git.log"}, []string{"git.log"}}} {
		c.after(2 * time.Hour) // even if every token has expired
		_, tok, err := a.Rotate(t.Context(), Grant{Agent: "n", Scope: step.scope, TTL: time.Hour}, 0)
		if err != nil || !slices.Equal(tok.Scope, step.want) {
			t.Errorf("rotated with %v: %v, want %v (%v)", step.scope, tok.Scope, step.want, err)
		}
	}
	wants(t, a.Remove(t.Context(), apitype.LocalAgent, localapi.Env, "ada"), bailey.Invalid, "be removed")
}

// TestTokensRefuse checks that no token is created if the grant is invalid or if the ledger cannot record it.
func TestTokensRefuse(t *testing.T) {
	b, a, _ := newAgentBook()
	for name, g := range map[string]Grant{
		"no name": {}, "the local agent": {Agent: apitype.LocalAgent}, "capitals": {Agent: "Ada"}, "a space": {Agent: "a b"}, "a dash first": {Agent: "-a"}, "a long name": {Agent: strings.Repeat("a", 65)},
		"no time": {Agent: "a", TTL: time.Millisecond}, "negative": {Agent: "a", TTL: -time.Hour}, "for ever": {Agent: "a", TTL: 367 * 24 * time.Hour},
		"a broken glob": {Agent: "a", Scope: []string{"[a"}}, "an empty glob": {Agent: "a", Scope: []string{""}}, "a space in a glob": {Agent: "a", Scope: []string{"git. *"}},
		"too many": {Agent: "a", Scope: make([]string, maxScope+1)},
	} {
		if _, _, err := a.Add(t.Context(), g); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.err = errors.New("no space left on device")
	if _, _, err := a.Add(t.Context(), Grant{Agent: "a"}); !errors.Is(err, bailey.Unavailable) || len(a.Names()) != 0 || len(a.List()) != 0 {
		t.Errorf("%v, and %v is known", err, a.Names())
	}
	if len(b.text) != 0 {
		t.Errorf("noted: %v", b.text)
	}
}

// TestTenThousandTokens checks that endless adds and revocations leave a book of bounded size, and that the maximum of
// valid tokens can still be issued.
func TestTenThousandTokens(t *testing.T) {
	ktest.Long(t)
	b, a, c := newAgentBook()
	for range 10_000 {
		c.after(time.Second)
		_, tok, err := a.Issue(t.Context(), Grant{Agent: apitype.LocalAgent})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Revoke(t.Context(), tok.ID, localapi.Env, ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.known.Tokens); n > 3*maxTokens {
		t.Errorf("%d tokens are remembered", n)
	}
	for range maxTokens {
		if _, _, err := a.Issue(t.Context(), Grant{Agent: apitype.LocalAgent}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := a.Issue(t.Context(), Grant{Agent: apitype.LocalAgent})
	wants(t, err, bailey.Conflict, "the maximum")
}

// TestTokensAtOnce adds, admits and revokes tokens concurrently. It is for the race detector.
func TestTokensAtOnce(t *testing.T) {
	_, a, _ := newAgentBook()
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			name := fmt.Sprint("n", i)
			bearer, tok, err := a.Add(t.Context(), Grant{Agent: name})
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := a.Admit(bearer); err != nil || got.Agent != name {
				t.Errorf("%+v %v", got, err)
			}
			if _, err := a.Revoke(t.Context(), tok.ID, localapi.Env, ""); err != nil {
				t.Error(err)
			}
			if _, err := a.Admit(bearer); err == nil {
				t.Error("a revoked token is admitted")
			}
			a.List()
		})
	}
	all.Wait()
}

// FuzzAdmit checks that no text except the bearer is admitted.
func FuzzAdmit(f *testing.F) {
	_, a, _ := newAgentBook()
	bearer, _, err := a.Issue(f.Context(), Grant{Agent: apitype.LocalAgent})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bearer[:len(bearer)-1] + "x")
	f.Add(tokenPrefix + strings.Repeat("0", 64))
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := a.Admit(text); err == nil && text != bearer {
			t.Errorf("%q is admitted", text)
		}
	})
}
