//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"bailey/internal/bench"
	"bailey/internal/cli"
	"bailey/internal/cli/direct"
	"bailey/internal/ktest"
	"bailey/internal/localapi/apitype"
)

// speaksOtherwise contains the commands whose standard output is not JSON, even with --json, or that no script can run,
// each with the reason.
var speaksOtherwise = map[string]string{
	"unenroll":               "needs a control plane: TestTeamDocument runs it",
	"team approvals list":    "needs a control plane: TestTeamDocument runs it with --json",
	"team approvals show":    "needs a control plane: TestTeamDocument runs it",
	"team approvals approve": "needs a control plane: TestTeamDocument runs it",
	"team approvals deny":    "needs a control plane with an admin",
	"team sandboxes create":  "needs a control plane: TestSandboxOfTeam runs it with --json",
	"team sandboxes exec":    "needs a control plane: TestSandboxOfTeam runs it with --json",
	"team sandboxes destroy": "needs a control plane: TestSandboxOfTeam runs it with --json",
	"team sandboxes list":    "needs a control plane: TestSandboxOfTeam runs it with --json",
	"team sandboxes refresh": "needs a control plane: TestSandboxOfTeam runs it with --json",
	"team sources list":      "needs a control plane: TestTeamCommands runs it with --json",
	"team sources run":       "needs a control plane: TestTeamCommands runs it with --json",
	"team sources read":      "needs a control plane: TestTeamCommands runs it with --json",
	"team operations list":   "needs a control plane: TestTeamCommands runs it with --json",
	"team operations show":   "needs a control plane: TestTeamCommands runs it with --json",
	"team spend":             "needs a control plane: TestTeamCommands runs it with --json",
	"team budgets list":      "needs a control plane: TestTeamCommands runs it with --json",
	"team budgets set":       "needs a control plane: TestTeamCommands runs it with --json",
	"team budgets end":       "needs a control plane: TestTeamCommands runs it with --json",
	"approvals serve":        "it serves until it is ended; approve-page.txtar has the line with which it begins",
	"completion":             "cobra's own: a script for a shell",
	"gateway":                "it serves until it is ended, and prints nothing",
	"help":                   "cobra's own: a page",
	"hooks exec":             "the hook's own streams",
	"hooks run":              "the frame that goes on",
	"jail run":               "the program's own streams; what held it is JSON on stderr",
	"image verify":           "it needs a machine: TestSandboxLogin runs it",
	"image from-source":      "it needs a host and all its packages; TestPlanSource has its plan, and TestReadHost the calls",
	"judge claude-code":      "the protocol of the agent's hooks",
	"man":                    "a page, for man(1)",
	"model start":            "it serves until it is ended; model.txtar uses what it prints",
	"receipts export":        "the format that was asked for, a line a receipt",
	"redact":                 "the text; the summary is JSON on stderr, and with --report on stdout",
	"serve":                  "MCP's messages",
	"shim activate":          "a script for a shell",
	"tui":                    "a screen",
	"wrap":                   "the agent's own streams",
}

func verbOf(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "bailey ") }

// TestEveryVerbSpeaksJSON checks that each command succeeds with --json in some script, mostly json.txtar, or is listed
// above. A command with invalid arguments must report that in the same form as all others.
func TestEveryVerbSpeaksJSON(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	root := (&cli.App{Local: direct.Work{}}).Root()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	front, _, _ := root.Find([]string{"bench"})
	root.RemoveCommand(front) // bench starts another program, whose commands are
	benches := bench.Root(&cli.App{})
	benches.Use = "bench"
	root.AddCommand(benches)
	spoken := map[string]bool{}
	scripts, _ := filepath.Glob("../../test/script/testdata/script/*.txtar")
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) > 3 && words[0] == "speaks" && words[1] == "0" {
				found, _, err := root.Find(words[3:])
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				spoken[verbOf(found)] = true
			}
		}
	}
	// source hosts need a real sshd, and sandboxes real machines, which these tests have
	for group, file := range map[string]string{"source": "hosts_test.go", "sandbox": "sandboxes_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if _, words, ok := strings.Cut(line, "bailey "+group+" "); ok && strings.Contains(words, "--json") {
				found, _, err := root.Find([]string{group, strings.Fields(words)[0]})
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				spoken[verbOf(found)] = true
			}
		}
	}
	if len(spoken) < 80 {
		t.Fatalf("%d verbs are spoken: this test does not see the scripts", len(spoken))
	}
	for _, c := range cli.EveryVerb(root) {
		if verb := verbOf(c); !spoken[verb] && !c.HasSubCommands() && speaksOtherwise[verb] == "" {
			t.Errorf("no script has %s succeed with --json: speaks 0 bailey %s --json", verb, verb)
		}
	}
	for verb := range speaksOtherwise {
		if c, _, err := root.Find(strings.Fields(verb)); err != nil || verbOf(c) != verb {
			t.Errorf("there is no verb %q to except", verb)
		}
	}
	for _, c := range append(cli.EveryVerb(root), root) {
		if c.DisableFlagParsing {
			t.Errorf("%s takes --json for a word of its own", verbOf(c))
		}
		words := append(strings.Fields(c.CommandPath())[1:], "--json", "--no-such-flag")
		cmd := exec.Command(os.Args[0], words...)
		cmd.Args[0], cmd.Env = "bailey", append(os.Environ(), "BAILEY_HOME="+t.TempDir())
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != apitype.ExitInput {
			t.Errorf("%s: %v", words, err)
		}
		if err := ktest.RefusalJSON(out); err != nil {
			t.Errorf("%s: %v", words, err)
		}
	}
}
