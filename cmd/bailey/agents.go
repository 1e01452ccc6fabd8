package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"

	"bailey/internal/gateway"
	"bailey/internal/wire"
)

// agentStatus reports how an agent process itself is confined, apart from its calls. Trials determine it.
type agentStatus struct {
	Agent string  `json:"agent"`
	State string  `json:"state"` // confined, hooked, open
	Words string  `json:"words"`
	Cure  string  `json:"cure,omitempty"` // set if the state is open
	Tried []trial `json:"tried,omitempty"`
}

// The states of an [agentStatus].
const (
	confinedState = "confined"
	hookedState   = "hooked"
	openState     = "open"
)

// trial is the result of one test of an agent's confinement.
type trial struct {
	Name  string `json:"name"`
	Held  bool   `json:"held"`
	Tried string `json:"tried"` // the action and its result
}

// walksAround returns the status of an agent without any known confinement.
func walksAround(agent, why, cure string, tried ...trial) agentStatus {
	return agentStatus{Agent: agent, State: openState, Words: "this agent can walk around the gate: " + why, Cure: cure, Tried: tried}
}

// newAgentStatus returns one status per connected agent. The agent of the command line, local, is always included.
func newAgentStatus(sessions []gateway.LiveSession) []agentStatus {
	names := []string{"local"}
	for _, s := range sessions {
		names = append(names, s.Agent)
	}
	slices.Sort(names)
	var agents []agentStatus
	for _, name := range slices.Compact(names) {
		agents = append(agents, walksAround(name, "nothing was tried that would show what holds it", "bailey status, where the agent runs, tries it"))
	}
	return agents
}

// tryAgents tests the confinement of this process and of each installed client. running reports whether a gateway runs
// that can answer a hook. If all is set, the tests continue after a failure.
func tryAgents(ctx context.Context, known []agentStatus, dir string, running, all bool) []agentStatus {
	self := trySelf(ctx, dir, all || wire.Inside() != "")
	agents := []agentStatus{}
	for _, a := range known {
		if a.Agent == self.Agent {
			a = self
		}
		agents = append(agents, a)
	}
	if self.State == confinedState {
		return agents // and so is every child process
	}
	for _, c := range agentClients() {
		if _, err := exec.LookPath(c.program); err == nil {
			agents = append(agents, tryAgent(ctx, c, dir, running))
		}
	}
	return agents
}

// trySelf tests the agent jail around this process.
func trySelf(ctx context.Context, dir string, all bool) agentStatus {
	const agent, cure = "local", "bailey wrap -- AGENT runs an agent inside of a wall"
	var tried []trial
	for _, try := range wallTrials() {
		t := try(ctx, dir)
		if tried = append(tried, t); !t.Held && !all {
			break
		}
	}
	if len(tried) == 0 {
		return walksAround(agent, "on this platform nothing confines it", "use Linux, or a Linux virtual machine")
	}
	if i := slices.IndexFunc(tried, func(t trial) bool { return !t.Held }); i >= 0 {
		return walksAround(agent, "it is not confined: "+tried[i].Tried, cure, tried...)
	}
	return agentStatus{Agent: agent, State: confinedState, Words: fmt.Sprintf("confined: %d ways out were tried, and each is closed", len(tried)), Tried: tried}
}

// tryAgent tests the hook that client c runs in dir before each use of a tool.
func tryAgent(ctx context.Context, c agentClient, dir string, running bool) agentStatus {
	wrap := fmt.Sprintf("bailey wrap -- %s confines it", c.program)
	if c.id != "claude-code" {
		return walksAround(c.id, "it uses tools of its own without asking", wrap)
	}
	line, err := hookLine(settingsFiles(dir), isSelf)
	switch {
	case err != nil:
		return walksAround(c.id, err.Error(), "bailey init --claude-code hooks it; "+wrap)
	case !running:
		return walksAround(c.id, "its hook was not tried, for no gateway runs that would answer it", "bailey run system.date starts one; then ask again")
	}
	tried, err := tryHook(ctx, line, dir, hookPatience)
	if err != nil {
		return walksAround(c.id, err.Error(), "bailey init --claude-code --undo, then init again; "+wrap, tried...)
	}
	return agentStatus{Agent: c.id, State: hookedState, Tried: tried,
		Words: "hooked: it asks before it uses a tool; what a program does that it was allowed to start is not seen, and " + wrap}
}

// examineAgents returns one finding per agent, and one per trial of each agent that is confined or hooked. For an open
// agent, the first failure is enough.
func examineAgents(agents []agentStatus) (found []finding) {
	for _, a := range agents {
		name := "agent " + cell(a.Agent)
		switch a.State {
		case openState:
			found = append(found, finding{name, warning, a.Words, a.Cure})
			continue
		default:
			found = append(found, finding{name, good, a.Words, ""})
		}
		for _, t := range a.Tried {
			if t.Held {
				found = append(found, finding{name + " " + t.Name, good, t.Tried, ""})
			} else {
				found = append(found, finding{name + " " + t.Name, warning, t.Tried, a.Cure})
			}
		}
	}
	return found
}
