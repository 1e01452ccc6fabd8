package apitype

import (
	"path"
	"slices"
	"time"

	"bailey"
	"bailey/internal/localapi"
)

// AgentStatus reports how an agent process itself is confined, apart from its calls. Trials determine it.
type AgentStatus struct {
	Agent string  `json:"agent"`
	State string  `json:"state"` // confined, hooked, open
	Words string  `json:"words"`
	Cure  string  `json:"cure,omitempty"` // set if the state is open
	Tried []Trial `json:"tried,omitempty"`
	// Warnings are facts that weaken the state, each with its cure.
	Warnings []string `json:"warnings,omitempty"`
}

// The states of an [agentStatus].
const (
	ConfinedState = "confined"
	HookedState   = "hooked"
	OpenState     = "open"
)

// Trial is the result of one test of an agent's confinement.
type Trial struct {
	Name  string `json:"name"`
	Held  bool   `json:"held"`
	Tried string `json:"tried"` // the action and its result
}

// WalksAround returns the status of an agent without any known confinement.
func WalksAround(agent, why, cure string, tried ...Trial) AgentStatus {
	return AgentStatus{Agent: agent, State: OpenState, Words: "this agent can bypass the gate: " + why, Cure: cure,
		Tried: tried}
}

// NewAgentStatus returns one status per connected agent. The agent of the command line, local, is always included.
func NewAgentStatus(sessions []LiveSession) []AgentStatus {
	names := []string{"local"}
	for _, s := range sessions {
		names = append(names, s.Agent)
	}
	slices.Sort(names)
	var agents []AgentStatus
	for _, name := range slices.Compact(names) {
		agents = append(agents,
			WalksAround(name, "no check of its confinement was made",
				"run bailey status where the agent runs"))
	}
	return agents
}

// LocalAgent is the name of an agent that presents no token.
const LocalAgent = "local"

// ControlPlaneAgent is the agent of calls that people make through the control plane. No agent can have this name.
// Their principal also has the address of the account as the person, and the organisation.
const ControlPlaneAgent = "@control-plane"

// Kinds of ledger entries for agents and their tokens. Their data are an [Agent], a [Token] and a [TokenEnd].
const (
	AgentAddEvent    = "agent.add"
	AgentRemoveEvent = "agent.remove"
	TokenAddEvent    = "token.add"
	TokenRevokeEvent = "token.revoke"
)

// Agent is an agent that is known by name.
type Agent struct {
	Name     string            `json:"agent"`
	At       time.Time         `json:"at"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// Token lets the holder of its bearer act as an agent until it expires or is revoked. The bearer itself is not stored.
type Token struct {
	ID       string            `json:"id"`
	Agent    string            `json:"agent"`
	Scope    []string          `json:"scope,omitempty"` // globs of capability ids (path.Match); empty: all
	Issued   time.Time         `json:"issued"`
	Expires  time.Time         `json:"expires"`
	Revoked  time.Time         `json:"revoked,omitzero"` // may be in the future
	Hash     string            `json:"sha256"`           // of the bearer
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// End returns when the token ends, and the word for it: "revoked" or "expired".
func (t Token) End() (time.Time, string) {
	if !t.Revoked.IsZero() && t.Revoked.Before(t.Expires) {
		return t.Revoked, "revoked"
	}
	return t.Expires, "expired"
}

// Ended returns how the token had ended by now, or "" if it is still valid.
func (t Token) Ended(now time.Time) string {
	if at, how := t.End(); !now.Before(at) {
		return how
	}
	return ""
}

// Covers reports whether the scope includes a capability.
func (t Token) Covers(id bailey.CapabilityID) bool {
	return len(t.Scope) == 0 || slices.ContainsFunc(t.Scope, func(glob string) bool {
		ok, err := path.Match(glob, string(id))
		return ok && err == nil
	})
}

// IssuedToken is a token with its bearer string, which is shown only once.
type IssuedToken struct {
	OK bool `json:"ok"`
	Token
	Bearer string `json:"bearer"` // a secret: it authenticates the agent
}

// TokenList is the answer with the tokens of all agents, without bearer strings.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

// AgentList is the answer with all agents, sorted by name.
type AgentList struct {
	Agents []Agent `json:"agents"`
}

// TokenRequest asks for a token of an agent.
type TokenRequest struct {
	Agent   string   `json:"agent,omitempty"`   // "": [LocalAgent]
	Scope   []string `json:"scope,omitempty"`   // globs of capability ids; empty: all, or the scope before
	TTL     int64    `json:"ttl,omitempty"`     // in seconds; 0: the default
	Overlap int64    `json:"overlap,omitempty"` // how long the old tokens still count, in seconds; for rotation
}

// AgentName names an agent.
type AgentName struct {
	OK    bool   `json:"ok,omitempty"` // in an answer
	Agent string `json:"agent"`
}

// ID names the object of a request.
type ID struct {
	ID string `json:"id"`
}
