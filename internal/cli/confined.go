package cli

import (
	"context"
	"fmt"
	"os/exec"
	"slices"

	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// CheckAgents tests the confinement of this process and of each installed client. running reports whether a gateway runs
// that can answer a hook. If all is set, the tests continue after a failure.
func CheckAgents(ctx context.Context, known []apitype.AgentStatus, dir string, running,
	all bool) []apitype.AgentStatus {
	self := checkSelf(ctx, dir, all || localapi.Inside() != "")
	agents := []apitype.AgentStatus{}
	for _, a := range known {
		if a.Agent == self.Agent {
			a = self
		}
		agents = append(agents, a)
	}
	if self.State == apitype.ConfinedState {
		return agents // and so is every child process
	}
	for _, c := range agentClients() {
		if _, err := exec.LookPath(c.program); err == nil {
			agents = append(agents, checkAgent(ctx, c, dir, running))
		}
	}
	return agents
}

// checkSelf tests the agent jail around this process.
func checkSelf(ctx context.Context, dir string, all bool) apitype.AgentStatus {
	const agent, cure = "local", "run bailey wrap -- AGENT to run an agent in the agent jail"
	var tried []apitype.Trial
	for _, try := range EscapeChecks() {
		t := try(ctx, dir)
		if tried = append(tried, t); !t.Held && !all {
			break
		}
	}
	if len(tried) == 0 {
		return apitype.WalksAround(agent, "this platform cannot confine it",
			"use Linux, or a Linux virtual machine")
	}
	if i := slices.IndexFunc(tried, func(t apitype.Trial) bool { return !t.Held }); i >= 0 {
		return apitype.WalksAround(agent, "it is not confined: "+tried[i].Tried, cure, tried...)
	}
	return apitype.AgentStatus{Agent: agent, State: apitype.ConfinedState,
		Words: fmt.Sprintf("confined: %d ways out were tried, and all are closed", len(tried)), Tried: tried}
}

// checkAgent tests the hook that client c runs in dir before each use of a tool.
func checkAgent(ctx context.Context, c agentClient, dir string, running bool) apitype.AgentStatus {
	wrap := fmt.Sprintf("run bailey wrap -- %s to confine it", c.program)
	if c.id != "claude-code" {
		return apitype.WalksAround(c.id, "it uses its own tools without asking", wrap)
	}
	line, err := hookLine(settingsFiles(dir), IsSelf)
	switch {
	case err != nil:
		return apitype.WalksAround(c.id, err.Error(), "run bailey init --claude-code to install the hook; "+wrap)
	case !running:
		return apitype.WalksAround(c.id, "its hook was not tested, because no gateway is running to answer it",
			"run bailey run system.date to start one; then try again")
	}
	tried, err := tryHook(ctx, line, dir, hookPatience)
	if err != nil {
		return apitype.WalksAround(c.id, err.Error(), "run bailey init --claude-code --undo, then init again; "+wrap,
			tried...)
	}
	var warnings []string
	for _, other := range laterHooks(settingsFiles(dir), line) {
		warnings = append(warnings, other+" after Bailey's hook: if it answers with updatedInput, the tool gets an "+
			"input that Bailey has not judged; put it before Bailey's, or remove it")
	}
	return apitype.AgentStatus{Agent: c.id, State: apitype.HookedState, Tried: tried, Warnings: warnings,
		Words: "hooked: it asks before it uses a tool; the actions of programs that it then starts are not seen: " + wrap}
}
