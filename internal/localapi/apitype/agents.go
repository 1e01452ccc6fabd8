package apitype

import (
	"slices"
)

// AgentStatus reports how an agent process itself is confined, apart from its calls. Trials determine it.
type AgentStatus struct {
	Agent string  `json:"agent"`
	State string  `json:"state"` // confined, hooked, open
	Words string  `json:"words"`
	Cure  string  `json:"cure,omitempty"` // set if the state is open
	Tried []Trial `json:"tried,omitempty"`
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
	return AgentStatus{Agent: agent, State: OpenState, Words: "this agent can walk around the gate: " + why, Cure: cure, Tried: tried}
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
		agents = append(agents, WalksAround(name, "nothing was tried that would show what holds it", "bailey status, where the agent runs, tries it"))
	}
	return agents
}
