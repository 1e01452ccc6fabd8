package agenthook

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
)

// Kinds of ledger entries for grants of sessions.
const (
	GrantEvent = "hook.grant"     // its data is a [Grant]
	UseEvent   = "hook.grant.use" // [GrantUse]
	EndEvent   = "hook.grant.end" // [GrantEnd]
)

const (
	askedTTL  = time.Hour      // how long a question of the hook can be answered for the session
	grantTTL  = 12 * time.Hour // an agent that is killed does not say that its session has ended
	maxAsked  = 512
	maxGrants = 1000
)

// Asked is a use of a tool about which the hook told the agent to ask. The agent's own dialog answers it once; a
// person can answer it here for the whole session, or for good.
type Asked struct {
	ID        bailey.ApprovalID `json:"id"`
	Session   string            `json:"session"` // as the agent names it
	Principal bailey.Principal  `json:"principal"`
	Dir       string            `json:"dir"`
	Calls     []AskedCall       `json:"calls"`
	Policy    string            `json:"policy"` // digest of the policy that asked
	At        time.Time         `json:"at"`
}

// AskedCall is a call about which rules ask, and what an answer for the session covers: the calls of the capability in
// which this input has this value.
type AskedCall struct {
	Capability bailey.CapabilityID `json:"capability"`
	Input      string              `json:"input"`
	Value      string              `json:"value"`
	Dir        string              `json:"dir,omitempty"` // where the command runs
	Rules      []bailey.Rule       `json:"rules"`
}

// Grant allows the calls of a question for the rest of its session.
type Grant struct {
	ID       bailey.GrantID `json:"id"`
	Asked    Asked          `json:"asked"`
	Person   string         `json:"person,omitempty"`
	Operator string         `json:"operator,omitempty"`
	At       time.Time      `json:"at"`
	Until    time.Time      `json:"until"`
}

// GrantUse records that a grant allowed a call.
type GrantUse struct {
	ID      bailey.GrantID   `json:"id"`
	Receipt bailey.ReceiptID `json:"receipt"`
}

// GrantEnd records that grants ended.
type GrantEnd struct {
	IDs    []bailey.GrantID `json:"ids"`
	Reason string           `json:"reason"`
	Person string           `json:"person,omitempty"`
}

// Grants has the questions and the grants of the sessions of hooked agents. They are in memory only: when the gateway
// ends, so do all grants. It is safe for concurrent use.
type Grants struct {
	note func(ctx context.Context, kind string, data any) error
	now  func() time.Time

	mu    sync.Mutex // guards the fields below
	asked map[bailey.ApprovalID]Asked
	given map[bailey.GrantID]Grant
}

// NewGrants returns Grants. note must write one event durably.
func NewGrants(note func(context.Context, string, any) error) *Grants {
	return &Grants{note: note, now: time.Now, asked: map[bailey.ApprovalID]Asked{}, given: map[bailey.GrantID]Grant{}}
}

// coverOf returns what an answer for the session would cover. It returns false if each use must be asked about: an
// unclear command can do something else the next time, and a fetch without an address says nothing.
func coverOf(p plannedCall, e Event) (a AskedCall, ok bool) {
	a.Capability = p.id
	text := func(key string) string { s, _ := p.input[key].(string); return s }
	switch literal, _ := p.input["literal"].(bool); p.id {
	case shell:
		a.Input, a.Value, a.Dir = "command", text("command"), text("cwd")
		return a, literal && a.Value != ""
	case fetch:
		u, err := url.Parse(text("url"))
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
			return a, false
		}
		a.Input, a.Value = "host", strings.ToLower(u.Host)
		return a, true
	case other:
		a.Input, a.Value = "tool", text("tool")
		return a, e.Tool != "WebFetch" && a.Value != ""
	case read, edit, write:
		a.Input, a.Value = "path", text("path")
		return a, a.Value != ""
	}
	all, err := json.Marshal(p.input)
	a.Input, a.Value, a.Dir = "inputs", string(all), p.dir
	return a, err == nil
}

// isSame reports whether an answer for a covers b.
func (a AskedCall) isSame(b AskedCall) bool {
	return a.Capability == b.Capability && a.Input == b.Input && a.Value == b.Value && a.Dir == b.Dir &&
		len(b.Rules) > 0 && !slices.ContainsFunc(b.Rules, func(r bailey.Rule) bool {
		return !slices.ContainsFunc(a.Rules, r.Same)
	})
}

// record keeps a question and returns its ID, or "" if no answer can be given for the session.
func (g *Grants) record(a Asked) bailey.ApprovalID {
	if g == nil || a.Session == "" || len(a.Calls) == 0 {
		return ""
	}
	for _, c := range a.Calls {
		if w := bailey.Combine(c.Rules); w.Count > 1 || len(w.Roles) > 0 || !bailey.Local.Meets(w.Level) {
			return ""
		}
	}
	a.ID, a.At = bailey.NewApprovalID(), g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.asked, func(_ bailey.ApprovalID, o Asked) bool { return a.At.Sub(o.At) >= askedTTL })
	if len(g.asked) >= maxAsked {
		oldest := slices.MinFunc(slices.Collect(maps.Values(g.asked)), func(a, b Asked) int { return a.At.Compare(b.At) })
		delete(g.asked, oldest.ID)
	}
	g.asked[a.ID] = a
	return a.ID
}

// Find returns a question that can still be answered.
func (g *Grants) Find(id bailey.ApprovalID) (Asked, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a, ok := g.asked[id]
	if !ok || g.now().Sub(a.At) >= askedTTL {
		return Asked{}, bailey.NotFound.Errorf("let the agent try again; the answer names the question",
			"no hook asked %q in the last hour", id)
	}
	return a, nil
}

// Give grants a question for its session, after that is recorded. policy is the digest of the policy in use.
func (g *Grants) Give(ctx context.Context, id bailey.ApprovalID, policy, person, operator string) (Grant, error) {
	a, err := g.Find(id)
	switch {
	case err != nil:
		return Grant{}, err
	case a.Policy != policy:
		return Grant{}, bailey.Conflict.New("the policy was changed after the question", "let the agent try again")
	case len(g.List(policy)) >= maxGrants:
		return Grant{}, bailey.Unavailable.New("too many grants are active", "run bailey grants revoke to end some")
	}
	now := g.now()
	one := Grant{ID: bailey.NewGrantID(), Asked: a, Person: person, Operator: operator, At: now, Until: now.Add(grantTTL)}
	if err := g.note(context.WithoutCancel(ctx), GrantEvent, one); err != nil {
		return Grant{}, bailey.Unavailable.Wrap(err, "make sure that the ledger can be written",
			"cannot record the grant, so it is not valid")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.asked[id]; !ok { // its session ended, or everything was stopped, while this was recorded
		return Grant{}, bailey.Conflict.New("the session of the question ended meanwhile", "let the agent try again")
	}
	delete(g.asked, id)
	g.given[one.ID] = one
	return one, nil
}

// use reports which grant of the session allows a call, after that is recorded.
func (g *Grants) use(ctx context.Context, a Asked, receipt bailey.ReceiptID) (bailey.GrantID, error) {
	if g == nil || a.Session == "" || len(a.Calls) != 1 {
		return "", nil
	}
	for _, one := range g.List(a.Policy) {
		if one.Asked.Session == a.Session && samePrincipal(one.Asked.Principal, a.Principal) &&
			slices.ContainsFunc(one.Asked.Calls, func(c AskedCall) bool { return c.isSame(a.Calls[0]) }) {
			return one.ID, g.note(context.WithoutCancel(ctx), UseEvent, GrantUse{one.ID, receipt})
		}
	}
	return "", nil
}

func samePrincipal(a, b bailey.Principal) bool {
	return a.Agent == b.Agent && a.Person == b.Person && a.Organisation == b.Organisation && a.Token == b.Token
}

// List returns the active grants, oldest first. A grant ends when another policy than that of its question is in use.
func (g *Grants) List(policy string) []Grant {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	maps.DeleteFunc(g.given, func(_ bailey.GrantID, one Grant) bool {
		return !now.Before(one.Until) || one.Asked.Policy != policy
	})
	return slices.SortedFunc(maps.Values(g.given), func(a, b Grant) int {
		return strings.Compare(string(a.ID), string(b.ID))
	})
}

// Revoke ends one grant and reports whether it was active.
func (g *Grants) Revoke(ctx context.Context, id bailey.GrantID, person string) (bool, error) {
	return g.end(ctx, GrantEnd{Reason: "revoked", Person: person}, func(one Grant) bool { return one.ID == id },
		func(Asked) bool { return false })
}

// EndSession ends the grants of a session, or of all sessions if it is "". Its questions can no longer be answered.
func (g *Grants) EndSession(ctx context.Context, session, reason string) error {
	isEnded := func(a Asked) bool { return session == "" || a.Session == session }
	_, err := g.end(ctx, GrantEnd{Reason: reason}, func(one Grant) bool { return isEnded(one.Asked) }, isEnded)
	return err
}

// end ends grants before it records that: if the write fails, they must not allow anything more.
func (g *Grants) end(ctx context.Context, why GrantEnd, want func(Grant) bool, forget func(Asked) bool) (bool, error) {
	if g == nil {
		return false, nil
	}
	g.mu.Lock()
	for id, one := range g.given {
		if want(one) {
			delete(g.given, id)
			why.IDs = append(why.IDs, id)
		}
	}
	maps.DeleteFunc(g.asked, func(_ bailey.ApprovalID, a Asked) bool { return forget(a) })
	g.mu.Unlock()
	if len(why.IDs) == 0 {
		return false, nil
	}
	slices.Sort(why.IDs)
	return true, g.note(context.WithoutCancel(ctx), EndEvent, why)
}
