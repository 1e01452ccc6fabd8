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

// TestEveryCommandHasAGroup checks that the help shows each command under a heading, and twelve first.
func TestEveryCommandHasAGroup(t *testing.T) {
	root := (&cli.App{Local: Work{}}).Root()
	first := 0
	for _, c := range root.Commands() {
		if c.GroupID == "" {
			t.Errorf("%s is in no group of internal/cli/app.go", c.Name())
		}
		if c.GroupID == root.Groups()[0].ID {
			first++
		}
	}
	if first != 12 {
		t.Errorf("%d commands come first, want 12", first)
	}
}
