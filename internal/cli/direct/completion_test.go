package direct

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"bailey/internal/cli"
)

// TestCompletedVerbsExist checks that every command with its own completion, and every command for agents, exists.
func TestCompletedVerbsExist(t *testing.T) {
	verbs := map[string]*cobra.Command{}
	root := (&cli.App{Local: Work{}}).Root()
	for _, c := range cli.EveryVerb(root) {
		verbs[c.CommandPath()] = c
	}
	for path := range cli.Completed {
		if verbs["bailey "+path] == nil {
			t.Errorf("there is no verb %q", path)
		}
	}
	for _, path := range cli.AgentVerbs {
		if verbs["bailey "+path] == nil && path != "help" && path != "completion" {
			t.Errorf("there is no verb %q for agents", path)
		}
	}
	for _, c := range root.Commands() { // a new command is not for agents until agentVerbs lists it
		if !slices.Contains((&cli.App{Local: Work{}}).TopVerbs(), c.Name()) {
			t.Errorf("%s is no verb that the hook knows", c.Name())
		}
	}
	if len(verbs) < 80 {
		t.Errorf("%d verbs were found", len(verbs))
	}
}
