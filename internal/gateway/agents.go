package gateway

import (
	"cmp"
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
	"bailey/internal/applied"
	"bailey/internal/gate"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

const (
	defaultTokenTTL = 30 * 24 * time.Hour
	maxTokenTTL     = 366 * 24 * time.Hour
	maxTokens       = 1000 // valid tokens; as many ended ones are kept, to report how they ended
	maxAgents       = 1000
	maxScope        = 64
)

// TokenEnd revokes a token at a given time.
type TokenEnd struct {
	ID       string            `json:"id"`
	At       time.Time         `json:"at"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// KnownAgents holds the agents and tokens from the ledger's events. The zero value fits an empty ledger.
type KnownAgents struct {
	Agents map[string]apitype.Agent `json:"agents,omitempty"`
	Tokens map[string]apitype.Token `json:"tokens,omitempty"`
}

// Add adds an agent.
func (k *KnownAgents) Add(a apitype.Agent) {
	if k.Agents == nil {
		k.Agents = map[string]apitype.Agent{}
	}
	k.Agents[a.Name] = a
}

// Remove removes an agent and revokes its tokens.
func (k *KnownAgents) Remove(a apitype.Agent) {
	delete(k.Agents, a.Name)
	for id, t := range k.Tokens {
		if t.Agent == a.Name {
			k.End(TokenEnd{ID: id, At: a.At})
		}
	}
}

// Issue adds a token. If more than 3*maxTokens are known, it removes the tokens that ended first.
func (k *KnownAgents) Issue(t apitype.Token) {
	if k.Tokens == nil {
		k.Tokens = map[string]apitype.Token{}
	}
	k.Tokens[t.ID] = t
	if len(k.Tokens) <= 3*maxTokens {
		return
	}
	var over []apitype.Token
	for _, o := range k.Tokens {
		if o.Ended(t.Issued) != "" {
			over = append(over, o)
		}
	}
	slices.SortFunc(over, func(a, b apitype.Token) int {
		aAt, _ := a.End()
		bAt, _ := b.End()
		return cmp.Or(aAt.Compare(bAt), cmp.Compare(a.ID, b.ID))
	})
	for _, o := range over[:max(0, len(over)-maxTokens)] {
		delete(k.Tokens, o.ID)
	}
}

// End revokes a token, unless it was already revoked for an earlier time.
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

// Agents identifies agents by their tokens and decides which capabilities a token allows. It is safe for concurrent
// use.
type Agents struct {
	note  func(ctx context.Context, kind string, data any) error
	now   func() time.Time
	known applied.Store[KnownAgents]

	commands sync.Mutex // one command at a time, so that its checks stay valid until its events are recorded
}

// NewAgents returns Agents with the ledger's state. note must write one event durably.
func NewAgents(known KnownAgents, note func(context.Context, string, any) error) *Agents {
	a := &Agents{note: note, now: time.Now}
	a.known.Restore(known.clone())
	return a
}

// Grant describes a token to be issued.
type Grant struct {
	Agent    string
	Scope    []string
	TTL      time.Duration // 0: [defaultTokenTTL]
	Operator localapi.Operator
	Person   string
}

// isAgentName reports whether name is a valid name of an agent.
func isAgentName(name string) bool {
	return len(name) > 0 && len(name) <= 64 && name != apitype.LocalAgent &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == "" &&
		strings.Trim(name[:1], "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Add adds an agent and issues its first token.
func (a *Agents) Add(ctx context.Context, g Grant) (bearer string, t apitype.Token, err error) {
	if !isAgentName(g.Agent) {
		return "", t, bailey.Invalid.New("an agent's name must be a-z, 0-9, dot, dash and underscore, begin with a letter or digit, have at most 64 bytes and not be "+apitype.LocalAgent,
			"use another name")
	}
	if bearer, t, err = a.newToken(g); err != nil {
		return "", t, err
	}
	a.commands.Lock()
	defer a.commands.Unlock()
	switch n := len(a.known.Load().Agents); {
	case a.checkAgent(g.Agent) == nil:
		return "", t, bailey.Conflict.New("the agent "+g.Agent+" already exists",
			"run bailey agent rotate for a new token")
	case n >= maxAgents:
		return "", t, bailey.Conflict.Errorf("run bailey agent remove to remove one",
			"there are %d agents, the maximum", maxAgents)
	}
	added := apitype.Agent{Name: g.Agent, At: t.Issued, Operator: g.Operator, Person: g.Person}
	if err := a.recordEvent(ctx, apitype.AgentAddEvent, added, func(k *KnownAgents) { k.Add(added) }); err != nil {
		return "", t, err
	}
	return a.recordToken(ctx, bearer, t)
}

// Issue issues a token for a known agent.
func (a *Agents) Issue(ctx context.Context, g Grant) (bearer string, t apitype.Token, err error) {
	if bearer, t, err = a.newToken(g); err != nil {
		return "", t, err
	}
	a.commands.Lock()
	defer a.commands.Unlock()
	if err := a.checkAgent(g.Agent); err != nil {
		return "", t, err
	}
	return a.recordToken(ctx, bearer, t)
}

// Rotate issues a token for an agent and revokes its earlier tokens after overlap. If g has no scope, the new token
// gets that of the newest token, because a rotation should not widen it.
func (a *Agents) Rotate(ctx context.Context, g Grant,
	overlap time.Duration) (bearer string, t apitype.Token, err error) {
	if overlap < 0 || overlap > defaultTokenTTL {
		return "", t, bailey.Invalid.New("an overlap must be from 0 to 30 days", "use for example --overlap 24h")
	}
	if bearer, t, err = a.newToken(g); err != nil {
		return "", t, err
	}
	a.commands.Lock()
	defer a.commands.Unlock()
	if err := a.checkAgent(g.Agent); err != nil {
		return "", t, err
	}
	had := a.List() // newest first
	if newest := slices.IndexFunc(had, func(o apitype.Token) bool { return o.Agent == g.Agent }); len(t.Scope) == 0 &&
		newest >= 0 {
		t.Scope = had[newest].Scope
	}
	if bearer, t, err = a.recordToken(ctx, bearer, t); err != nil {
		return "", t, err
	}
	for _, o := range had {
		if o.Agent != g.Agent || o.Ended(a.now()) != "" {
			continue
		}
		if _, err := a.recordRevoke(ctx, TokenEnd{o.ID, t.Issued.Add(overlap), g.Operator, g.Person}); err != nil {
			return "", t, err
		}
	}
	return bearer, t, nil
}

// Remove removes an agent and revokes all its tokens.
func (a *Agents) Remove(ctx context.Context, name string, by localapi.Operator, person string) error {
	if name == apitype.LocalAgent {
		return bailey.Invalid.New(apitype.LocalAgent+" is every caller without a name and cannot be removed",
			"revoke one of its tokens with bailey token revoke; or set agents: required in settings.yaml")
	}
	a.commands.Lock()
	defer a.commands.Unlock()
	if err := a.checkAgent(name); err != nil {
		return err
	}
	gone := apitype.Agent{Name: name, At: a.now().UTC(), Operator: by, Person: person}
	return a.recordEvent(ctx, apitype.AgentRemoveEvent, gone, func(k *KnownAgents) { k.Remove(gone) })
}

// Revoke revokes a token immediately.
func (a *Agents) Revoke(ctx context.Context, id string, by localapi.Operator, person string) (apitype.Token, error) {
	a.commands.Lock()
	defer a.commands.Unlock()
	t := a.findToken(id)
	if t.ID == "" {
		return t, bailey.NotFound.New("there is no such token", "run bailey token list to show them")
	}
	if how := t.Ended(a.now()); how != "" {
		return t, bailey.Conflict.New(id+" is "+how+" already", "run bailey token list to show the valid ones")
	}
	return a.recordRevoke(ctx, TokenEnd{id, a.now().UTC(), by, person})
}

// List returns all known tokens, newest first.
func (a *Agents) List() []apitype.Token {
	return slices.SortedFunc(maps.Values(a.known.Load().Tokens), func(x, y apitype.Token) int {
		return cmp.Or(y.Issued.Compare(x.Issued), cmp.Compare(x.ID, y.ID))
	})
}

// Names returns the known agents, sorted by name.
func (a *Agents) Names() []apitype.Agent {
	return slices.SortedFunc(maps.Values(a.known.Load().Agents), func(x, y apitype.Agent) int {
		return cmp.Compare(x.Name, y.Name)
	})
}

// tokenPrefix marks a bearer, so that scanners for leaked secrets recognize it.
const tokenPrefix = "bt-"

const freshToken = "ask an operator for another: bailey token add, or bailey agent rotate"

// Admit returns the token of a bearer. If the bearer is invalid, the error never quotes it.
func (a *Agents) Admit(bearer string) (apitype.Token, error) {
	if !isBearer(bearer, tokenPrefix, 32) {
		return apitype.Token{}, bailey.Denied.New("this is not a token of Bailey: it must be bt- and 64 hex digits",
			freshToken)
	}
	hash := tokenHash(bearer)
	var found apitype.Token
	for _, t := range a.known.Load().Tokens {
		// The comparison's time reveals nothing about hashes of 256 random bits, but it is constant anyway.
		if subtle.ConstantTimeCompare([]byte(t.Hash), []byte(hash)) == 1 {
			found = t
		}
	}
	if found.ID == "" {
		return apitype.Token{}, bailey.Denied.New("the token is unknown here", freshToken)
	}
	return found, a.checkExpiry(found)
}

// isBearer reports whether a bearer is the prefix and n bytes in hex, as this package writes them.
func isBearer(bearer, prefix string, n int) bool {
	digits, ok := strings.CutPrefix(bearer, prefix)
	b, err := hex.DecodeString(digits)
	return ok && err == nil && len(b) == n && hex.EncodeToString(b) == digits
}

// checkExpiry returns an error if a token has ended.
func (a *Agents) checkExpiry(t apitype.Token) error {
	if how := t.Ended(a.now()); how != "" {
		at, _ := t.End()
		return bailey.Denied.Errorf(freshToken,
			"%s of %s has been %s since %s", t.ID, t.Agent, how, at.UTC().Format(time.RFC3339))
	}
	return nil
}

// Allows returns an error if a principal's token does not permit a capability. Without a token, every capability is
// permitted.
func (a *Agents) Allows(p bailey.Principal, id bailey.CapabilityID) error {
	if p.Token == "" {
		return nil
	}
	t := a.findToken(p.Token)
	if t.ID == "" || t.Agent != p.Agent {
		return bailey.Denied.New(p.Token+" of "+p.Agent+" is unknown here", freshToken)
	}
	if err := a.checkExpiry(t); err != nil {
		return err
	}
	if !t.Covers(id) {
		return bailey.Denied.Errorf("ask an operator for another token: bailey token add --scope",
			"%s of %s does not allow %s: its scope is %s", t.ID, t.Agent, id, strings.Join(t.Scope, ", "))
	}
	return nil
}

// Before returns a policy that denies a call if its token does not permit it, and otherwise decides as inner does. A
// token can therefore end during a connection. The denial names no policy, because no rule made it.
func (a *Agents) Before(inner gate.Policy) gate.Policy { return scopePolicy{a, inner} }

type scopePolicy struct {
	a     *Agents
	inner gate.Policy
}

func (s scopePolicy) Decide(r bailey.Request) bailey.Decision {
	d := s.inner.Decide(r)
	if err := s.a.Allows(r.Principal, r.Capability); err != nil {
		return bailey.Decision{Reason: err.Error(), Hint: bailey.HintOf(err)}
	}
	return d
}

// newToken generates a token without recording it.
func (a *Agents) newToken(g Grant) (bearer string, t apitype.Token, err error) {
	invalid := func(message, hint string) (string, apitype.Token, error) {
		return "", apitype.Token{}, bailey.Invalid.New(message, hint)
	}
	if g.TTL == 0 {
		g.TTL = defaultTokenTTL
	}
	if g.TTL < time.Second || g.TTL > maxTokenTTL {
		return invalid("a token must be valid for a second to 366 days", "use for example --expires 30d")
	}
	if len(g.Scope) > maxScope {
		return invalid(fmt.Sprintf("a scope has %d entries, but at most %d are allowed", len(g.Scope), maxScope),
			"use fewer: git.* covers all of a pack")
	}
	for _, glob := range g.Scope {
		if _, err := path.Match(glob, ""); err != nil || glob == "" || len(glob) > 128 ||
			strings.Trim(glob, "abcdefghijklmnopqrstuvwxyz0123456789._-*?[]^") != "" {
			return invalid("a scope must be a list of capability IDs, in which * matches anything",
				"use --scope git.status,git.log or --scope 'git.*'")
		}
	}
	var b [32]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	bearer = tokenPrefix + hex.EncodeToString(b[:])
	now := a.now().UTC().Truncate(time.Second)
	return bearer, apitype.Token{ID: "t-" + strings.ToLower(rand.Text()[:10]), Agent: g.Agent, Scope: g.Scope, Issued: now, Expires: now.Add(g.TTL),
		Hash: tokenHash(bearer), Operator: g.Operator, Person: g.Person}, nil
}

func tokenHash(bearer string) string {
	sum := sha256.Sum256([]byte("bailey token 1\x00" + bearer))
	return hex.EncodeToString(sum[:])
}

// checkAgent returns an error if no agent has this name.
func (a *Agents) checkAgent(name string) error {
	if _, ok := a.known.Load().Agents[name]; ok || name == apitype.LocalAgent {
		return nil
	}
	return bailey.NotFound.New("there is no such agent",
		"run bailey agent add to add one, or bailey agent list to show them")
}

// recordToken records a token. The caller must hold commands.
func (a *Agents) recordToken(ctx context.Context, bearer string, t apitype.Token) (string, apitype.Token, error) {
	live, now := 0, a.now()
	for _, o := range a.known.Load().Tokens {
		if o.Ended(now) == "" {
			live++
		}
	}
	if live >= maxTokens {
		return "", t, bailey.Conflict.Errorf("run bailey token revoke to end one",
			"%d tokens are valid, the maximum", maxTokens)
	}
	if err := a.recordEvent(ctx, apitype.TokenAddEvent, t, func(k *KnownAgents) { k.Issue(t) }); err != nil {
		return "", t, err
	}
	return bearer, t, nil
}

// recordRevoke records the end of a token. The caller must hold commands.
func (a *Agents) recordRevoke(ctx context.Context, e TokenEnd) (apitype.Token, error) {
	err := a.recordEvent(ctx, apitype.TokenRevokeEvent, e, func(k *KnownAgents) { k.End(e) })
	return a.findToken(e.ID), err
}

// recordEvent writes an event and then applies it with count. The caller must hold commands.
func (a *Agents) recordEvent(ctx context.Context, kind string, data any, count func(*KnownAgents)) error {
	return a.known.Apply(func(known KnownAgents) (KnownAgents, func() error, error) {
		next := known.clone()
		count(&next)
		return next, func() error {
			if err := a.note(context.WithoutCancel(ctx), kind, data); err != nil {
				return bailey.Unavailable.Wrap(err, "cannot record it, so it has no effect",
					"make sure that the ledger can be written")
			}
			return nil
		}, nil
	})
}

func (a *Agents) findToken(id string) apitype.Token { return a.known.Load().Tokens[id] }
