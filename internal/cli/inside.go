package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
)

// insideVerbs are the commands that are available inside the agent jail.
var insideVerbs = []string{"run", "serve", "capabilities", "search", "judge", "status", "help", "completion", "__complete", "__completeNoDesc"}

// AgentVerbs are the commands that an agent may use outside the agent jail, where its hook asks. They call, query or
// stop. All others require operator rights.
var AgentVerbs = []string{"run", "capabilities", "serve", "status", "doctor", "metrics", "kill", "deny", "judge", "help", "completion", "session",
	"receipts list", "receipts show", "receipts report", "approvals list", "approvals show", "audit verify", "policy check", "policy explain", "policy show",
	"budget", "jail explain", "pack list", "pack show", "shim list", "shim activate", "source check"}

// TopVerbs returns the names of all top-level commands, from the command table.
func (a *App) TopVerbs() (names []string) {
	for _, cmd := range a.Root().Commands() {
		names = append(names, cmd.Name())
	}
	return names
}

// ForInside refuses every other command inside the agent jail. It must run before any effect.
func ForInside(cmd *cobra.Command, _ []string) error {
	words := strings.Fields(cmd.CommandPath())
	if localapi.Inside() == "" || len(words) < 2 || slices.Contains(insideVerbs, words[1]) {
		return nil
	}
	return staysOutside(strings.Join(words[1:], " "))
}

func staysOutside(verb string) error {
	return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("bailey %s: operator verbs stay outside of the wall, and this is inside", verb),
		Hint: "inside there are bailey run, serve and capabilities; a person does the rest in a terminal of theirs"}
}
