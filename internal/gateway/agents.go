package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/wire"
)

// LocalAgent is who acts without a token.
const LocalAgent = "local"

// The ledger's kinds of entry for agents and their tokens. Their data are an [Agent], a [Token] and a [TokenEnd].
const (
	AgentAddEvent    = "agent.add"
	AgentRemoveEvent = "agent.remove"
	TokenAddEvent    = "token.add"
	TokenRevokeEvent = "token.revoke"
)

// What a token may be.
const (
	DefaultTokenTTL = 30 * 24 * time.Hour
	MaxTokenTTL     = 366 * 24 * time.Hour
	maxTokens       = 1000 // live ones; of those that have ended as many are remembered, to say how they ended
	maxAgents       = 1000
	maxScope        = 64
)

// Agent is one that is known by name.
type Agent struct {
	Name     string        `json:"agent"`
	At       time.Time     `json:"at"`
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// Token lets whoever shows its bearer act as an agent, for a time. The bearer itself is nowhere.
type Token struct {
	ID       string        `json:"id"`
	Agent    string        `json:"agent"`
	Scope    []string      `json:"scope,omitempty"` // globs of capabilities' ids (path.Match); empty: all
	Issued   time.Time     `json:"issued"`
	Expires  time.Time     `json:"expires"`
	Revoked  time.Time     `json:"revoked,omitzero"` // may lie ahead
	Hash     string        `json:"sha256"`           // of the bearer
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// TokenEnd revokes a token from a time on.
type TokenEnd struct {
	ID       string        `json:"id"`
	At       time.Time     `json:"at"`
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// end is when it counts no longer, and how that is called.
func (t Token) end() (time.Time, string) {
	if !t.Revoked.IsZero() && t.Revoked.Before(t.Expires) {
		return t.Revoked, "revoked"
	}
	return t.Expires, "expired"
}

// Ended says how it ended by then, and is empty while it counts.
func (t Token) Ended(now time.Time) string {
	if at, how := t.end(); !now.Before(at) {
		return how
	}
	return ""
}

// covers reports whether a capability is in its scope.
func (t Token) covers(id bailey.CapabilityID) bool {
	return len(t.Scope) == 0 || slices.ContainsFunc(t.Scope, func(glob string) bool {
		ok, err := path.Match(glob, string(id))
		return ok && err == nil
	})
}

// KnownAgents are agents and tokens as the ledger's events have them. The zero value is that of an empty ledger.
type KnownAgents struct {
	Agents map[string]Agent `json:"agents,omitempty"`
	Tokens map[string]Token `json:"tokens,omitempty"`
}

// Add takes in an agent.
func (k *KnownAgents) Add(a Agent) {
	if k.Agents == nil {
		k.Agents = map[string]Agent{}
	}
	k.Agents[a.Name] = a
}

// Remove takes out an agent: its tokens are revoked.
func (k *KnownAgents) Remove(a Agent) {
	delete(k.Agents, a.Name)
	for id, t := range k.Tokens {
		if t.Agent == a.Name {
			k.End(TokenEnd{ID: id, At: a.At})
		}
	}
}

// Issue takes in a token. What ended longest ago is forgotten, where too much is known.
func (k *KnownAgents) Issue(t Token) {
	if k.Tokens == nil {
		k.Tokens = map[string]Token{}
	}
	k.Tokens[t.ID] = t
	if len(k.Tokens) <= 3*maxTokens {
		return
	}
	var over []Token
	for _, o := range k.Tokens {
		if o.Ended(t.Issued) != "" {
			over = append(over, o)
		}
	}
	slices.SortFunc(over, func(a, b Token) int {
		aAt, _ := a.end()
		bAt, _ := b.end()
		if c := aAt.Compare(bAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	for _, o := range over[:max(0, len(over)-maxTokens)] {
		delete(k.Tokens, o.ID)
	}
}

// End revokes a token, unless it was revoked for an earlier time.
func (k *KnownAgents) End(e TokenEnd) {
	t, ok := k.Tokens[e.ID]
	if ok && (t.Revoked.IsZero() || e.At.Before(t.Revoked)) {
		t.Revoked = e.At
		k.Tokens[e.ID] = t
	}
}

func (k KnownAgents) clone() KnownAgents {
	return KnownAgents{maps.Clone(k.Agents), maps.Clone(k.Tokens)}
}

// Agents says who an agent is by the token that it shows, and what that lets it do. It is safe for concurrent use.
type Agents struct {
	note func(ctx context.Context, kind string, data any) error
	now  func() time.Time

	noting sync.Mutex // held while an event is noted: what is checked before still holds after. Never taken with mu held
	mu     sync.Mutex // guards known
	known  KnownAgents
}

// NewAgents knows what the ledger holds. note writes one event durably.
func NewAgents(known KnownAgents, note func(context.Context, string, any) error) *Agents {
	return &Agents{note: note, now: time.Now, known: known.clone()}
}

// Grant says what a token is to be.
type Grant struct {
	Agent    string
	Scope    []string
	TTL      time.Duration // 0: [DefaultTokenTTL]
	Operator wire.Operator
	Person   string
}

// AgentName reports whether an agent may be called so.
func AgentName(name string) bool {
	return len(name) > 0 && len(name) <= 64 && name != LocalAgent && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == "" &&
		strings.Trim(name[:1], "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Add makes an agent known, with its first token.
func (a *Agents) Add(ctx context.Context, g Grant) (bearer string, t Token, err error) {
	if !AgentName(g.Agent) {
		return "", t, &bailey.Error{Kind: bailey.Invalid, Message: "an agent's name is of a-z, 0-9, dot, dash and underscore, begins with a letter or digit, is 64 bytes long at most and not " + LocalAgent, Hint: "choose another name"}
	}
	if bearer, t, err = a.draw(g); err != nil {
		return "", t, err
	}
	a.noting.Lock()
	defer a.noting.Unlock()
	a.mu.Lock()
	n := len(a.known.Agents)
	a.mu.Unlock()
	switch {
	case a.knows(g.Agent) == nil:
		return "", t, &bailey.Error{Kind: bailey.Conflict, Message: "the agent " + g.Agent + " is known already", Hint: "bailey agent rotate gives it a new token"}
	case n >= maxAgents:
		return "", t, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("%d agents are known, as many as may be", maxAgents), Hint: "bailey agent remove takes one away"}
	}
	added := Agent{g.Agent, t.Issued, g.Operator, g.Person}
	if err := a.noted(ctx, AgentAddEvent, added, func(k *KnownAgents) { k.Add(added) }); err != nil {
		return "", t, err
	}
	return a.issue(ctx, bearer, t)
}

// Issue makes a token for an agent that is known.
func (a *Agents) Issue(ctx context.Context, g Grant) (bearer string, t Token, err error) {
	if bearer, t, err = a.draw(g); err != nil {
		return "", t, err
	}
	a.noting.Lock()
	defer a.noting.Unlock()
	if err := a.knows(g.Agent); err != nil {
		return "", t, err
	}
	return a.issue(ctx, bearer, t)
}

// Rotate makes a token for an agent and revokes those that it had, after an overlap. Without a scope the new one has that of the
// newest: whoever rotates does not mean to widen.
func (a *Agents) Rotate(ctx context.Context, g Grant, overlap time.Duration) (bearer string, t Token, err error) {
	if overlap < 0 || overlap > DefaultTokenTTL {
		return "", t, &bailey.Error{Kind: bailey.Invalid, Message: "an overlap is between nothing and 30 days", Hint: "--overlap 24h, for one"}
	}
	if bearer, t, err = a.draw(g); err != nil {
		return "", t, err
	}
	a.noting.Lock()
	defer a.noting.Unlock()
	if err := a.knows(g.Agent); err != nil {
		return "", t, err
	}
	had := a.List() // the newest first
	if newest := slices.IndexFunc(had, func(o Token) bool { return o.Agent == g.Agent }); len(t.Scope) == 0 && newest >= 0 {
		t.Scope = had[newest].Scope
	}
	if bearer, t, err = a.issue(ctx, bearer, t); err != nil {
		return "", t, err
	}
	for _, o := range had {
		if o.Agent != g.Agent || o.Ended(a.now()) != "" {
			continue
		}
		if _, err := a.revoke(ctx, TokenEnd{o.ID, t.Issued.Add(overlap), g.Operator, g.Person}); err != nil {
			return "", t, err
		}
	}
	return bearer, t, nil
}

// Remove takes an agent away, with all its tokens.
func (a *Agents) Remove(ctx context.Context, name string, by wire.Operator, person string) error {
	if name == LocalAgent {
		return &bailey.Error{Kind: bailey.Invalid, Message: LocalAgent + " is whoever has no other name, and is not taken away", Hint: "bailey token revoke ends one of its tokens; settings.yaml, agents: required, wants one of everybody"}
	}
	a.noting.Lock()
	defer a.noting.Unlock()
	if err := a.knows(name); err != nil {
		return err
	}
	gone := Agent{name, a.now().UTC(), by, person}
	return a.noted(ctx, AgentRemoveEvent, gone, func(k *KnownAgents) { k.Remove(gone) })
}

// Revoke ends a token at once.
func (a *Agents) Revoke(ctx context.Context, id string, by wire.Operator, person string) (Token, error) {
	a.noting.Lock()
	defer a.noting.Unlock()
	t := a.token(id)
	if t.ID == "" {
		return t, &bailey.Error{Kind: bailey.NotFound, Message: "no such token is known", Hint: "bailey token list shows them"}
	}
	if how := t.Ended(a.now()); how != "" {
		return t, &bailey.Error{Kind: bailey.Conflict, Message: id + " is " + how + " already", Hint: "bailey token list shows those that count"}
	}
	return a.revoke(ctx, TokenEnd{id, a.now().UTC(), by, person})
}

// List are all tokens that are remembered, the newest first.
func (a *Agents) List() []Token {
	a.mu.Lock()
	all := slices.Collect(maps.Values(a.known.Tokens))
	a.mu.Unlock()
	slices.SortFunc(all, func(x, y Token) int {
		if c := y.Issued.Compare(x.Issued); c != 0 {
			return c
		}
		return strings.Compare(x.ID, y.ID)
	})
	return all
}

// Names are the agents that are known, by name.
func (a *Agents) Names() []Agent {
	a.mu.Lock()
	all := slices.Collect(maps.Values(a.known.Agents))
	a.mu.Unlock()
	slices.SortFunc(all, func(x, y Agent) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// tokenPrefix marks a bearer, for whoever looks for secrets that leaked.
const tokenPrefix = "bt-"

const freshToken = "an operator makes another: bailey token add, or bailey agent rotate"

// Admit says whose token a bearer shows. What it says of one that is none never quotes it.
func (a *Agents) Admit(bearer string) (Token, error) {
	digits, ok := strings.CutPrefix(bearer, tokenPrefix)
	if b, err := hex.DecodeString(digits); !ok || err != nil || len(b) != 32 || hex.EncodeToString(b) != digits {
		return Token{}, &bailey.Error{Kind: bailey.Denied, Message: "that is no token of Bailey's: one is bt- and 64 hex digits", Hint: freshToken}
	}
	hash := tokenHash(bearer)
	var found Token
	a.mu.Lock()
	for _, t := range a.known.Tokens {
		// Hashes of 256 random bits tell nothing by the time their comparison takes; it is constant all the same.
		if subtle.ConstantTimeCompare([]byte(t.Hash), []byte(hash)) == 1 {
			found = t
		}
	}
	a.mu.Unlock()
	if found.ID == "" {
		return Token{}, &bailey.Error{Kind: bailey.Denied, Message: "the token is not known here", Hint: freshToken}
	}
	return found, a.counts(found)
}

// counts says why a token does not.
func (a *Agents) counts(t Token) error {
	if how := t.Ended(a.now()); how != "" {
		at, _ := t.end()
		return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s of %s is %s since %s", t.ID, t.Agent, how, at.UTC().Format(time.RFC3339)), Hint: freshToken}
	}
	return nil
}

// Allows says why a principal may not use a capability by its token. One without a token may.
func (a *Agents) Allows(p bailey.Principal, id bailey.CapabilityID) error {
	if p.Token == "" {
		return nil
	}
	t := a.token(p.Token)
	if t.ID == "" || t.Agent != p.Agent {
		return &bailey.Error{Kind: bailey.Denied, Message: p.Token + " of " + p.Agent + " is not known here", Hint: freshToken}
	}
	if err := a.counts(t); err != nil {
		return err
	}
	if !t.covers(id) {
		return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s of %s does not reach %s: its scope is %s", t.ID, t.Agent, id, strings.Join(t.Scope, ", ")),
			Hint: "an operator makes one that does: bailey token add --scope"}
	}
	return nil
}

// Before returns a policy that denies what a call's token does not let it do, and else decides as inner does: so a token ends in
// the middle of a connection too. Its denial names no policy: no rule says so.
func (a *Agents) Before(inner gate.Policy) gate.Policy { return scoped{a, inner} }

type scoped struct {
	a     *Agents
	inner gate.Policy
}

func (s scoped) Decide(r bailey.Request) bailey.Decision {
	d := s.inner.Decide(r)
	if err := s.a.Allows(r.Principal, r.Capability); err != nil {
		return bailey.Decision{Reason: err.Error(), Hint: bailey.HintOf(err)}
	}
	return d
}

// draw makes a token that nobody knows of yet.
func (a *Agents) draw(g Grant) (bearer string, t Token, err error) {
	invalid := func(message, hint string) (string, Token, error) {
		return "", Token{}, &bailey.Error{Kind: bailey.Invalid, Message: message, Hint: hint}
	}
	if g.TTL == 0 {
		g.TTL = DefaultTokenTTL
	}
	if g.TTL < time.Second || g.TTL > MaxTokenTTL {
		return invalid("a token counts for a second at least and 366 days at most", "--expires 30d, for one")
	}
	if len(g.Scope) > maxScope {
		return invalid(fmt.Sprintf("a scope has %d entries, %d are allowed", len(g.Scope), maxScope), "say it with fewer: git.* is all of a pack")
	}
	for _, glob := range g.Scope {
		if _, err := path.Match(glob, ""); err != nil || glob == "" || len(glob) > 128 || strings.Trim(glob, "abcdefghijklmnopqrstuvwxyz0123456789._-*?[]^") != "" {
			return invalid("a scope is of capabilities' ids, in which * stands for anything", "--scope git.status,git.log or --scope 'git.*'")
		}
	}
	var b [32]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	bearer = tokenPrefix + hex.EncodeToString(b[:])
	now := a.now().UTC().Truncate(time.Second)
	return bearer, Token{ID: "t-" + strings.ToLower(rand.Text()[:10]), Agent: g.Agent, Scope: g.Scope, Issued: now, Expires: now.Add(g.TTL),
		Hash: tokenHash(bearer), Operator: g.Operator, Person: g.Person}, nil
}

func tokenHash(bearer string) string {
	sum := sha256.Sum256([]byte("bailey token 1\x00" + bearer))
	return hex.EncodeToString(sum[:])
}

// knows refuses an agent that is not known.
func (a *Agents) knows(name string) error {
	a.mu.Lock()
	_, ok := a.known.Agents[name]
	a.mu.Unlock()
	if ok || name == LocalAgent {
		return nil
	}
	return &bailey.Error{Kind: bailey.NotFound, Message: "no such agent is known", Hint: "bailey agent add makes one known, bailey agent list shows them"}
}

// issue records a token. The caller holds noting.
func (a *Agents) issue(ctx context.Context, bearer string, t Token) (string, Token, error) {
	live, now := 0, a.now()
	a.mu.Lock()
	for _, o := range a.known.Tokens {
		if o.Ended(now) == "" {
			live++
		}
	}
	a.mu.Unlock()
	if live >= maxTokens {
		return "", t, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("%d tokens count, as many as may", maxTokens), Hint: "bailey token revoke ends one"}
	}
	if err := a.noted(ctx, TokenAddEvent, t, func(k *KnownAgents) { k.Issue(t) }); err != nil {
		return "", t, err
	}
	return bearer, t, nil
}

// revoke records an end. The caller holds noting.
func (a *Agents) revoke(ctx context.Context, e TokenEnd) (Token, error) {
	err := a.noted(ctx, TokenRevokeEvent, e, func(k *KnownAgents) { k.End(e) })
	return a.token(e.ID), err
}

// noted writes an event, and then lets it count. The caller holds noting.
func (a *Agents) noted(ctx context.Context, kind string, data any, count func(*KnownAgents)) error {
	if err := a.note(context.WithoutCancel(ctx), kind, data); err != nil {
		return &bailey.Error{Kind: bailey.Unavailable, Message: "it could not be recorded, so it does not count", Hint: "see that the ledger can be written", Err: err}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	count(&a.known)
	return nil
}

// token is the one of an id, or the zero one.
func (a *Agents) token(id string) Token {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known.Tokens[id]
}
