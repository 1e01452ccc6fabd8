package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/shellparse"
	"bailey/pack"
)

func (a *App) shimCheckVerb() *cobra.Command {
	var lines bool
	cmd := &cobra.Command{
		Use: "check [LINE]", Short: "Show the capability that a command line means",
		Long: `Show the capability that a command line, for example "git log -5", means, with its side-effect
class and its input. If the line means none, or more than one, the reason and the nearest capabilities are
printed, and the exit code is 1. The built-in and the installed packs are searched.
Nothing is run.

The line is LINE, as one argument, or standard input.

--jsonl reads lines of {"line":"…"} and answers each with one line {"capability":…,"class":…,"input":…}, or
{"capability":null,"reason":…,"nearest":[…]}. Other members are ignored. If a line is not of this form, or
longer than 64 KiB, the command ends with its number and exit code 2; earlier lines have their answers.`,
		Example: "  bailey shim check 'git log -5'\n  bailey shim check --jsonl < lines.jsonl",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if lines && len(args) > 0 {
				return bailey.Invalid.New("shim check --jsonl reads standard input", "Leave out the argument.")
			}
			known, err := a.installedCatalog()
			if err != nil {
				return err
			}
			if lines {
				return a.checkShimLines(known.All(), os.Stdin)
			}
			return a.checkShimLine(known.All(), args)
		},
	}
	cmd.Flags().BoolVar(&lines, "jsonl", false, `read lines of {"line":"…"}`)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// lineMeaning is the answer about one line.
type lineMeaning struct {
	Capability *string        `json:"capability"`
	Class      string         `json:"class,omitempty"`
	Input      map[string]any `json:"input,omitempty"`
	Reason     string         `json:"reason,omitempty"`
	Nearest    []string       `json:"nearest,omitempty"`
}

// explainLine returns the one call that a line means, or why there is none.
func explainLine(list []*pack.Capability, line string) lineMeaning {
	commands, err := shellparse.ParseAs(line, "", os.Geteuid() == 0)
	switch {
	case err != nil:
		return lineMeaning{Reason: err.Error()}
	case len(commands) != 1:
		return lineMeaning{Reason: fmt.Sprintf("the line has %d commands, and a call is one", len(commands))}
	case commands[0].Opaque != "":
		return lineMeaning{Reason: commands[0].Opaque}
	case len(commands[0].Files) > 0:
		return lineMeaning{Reason: "a redirection opens " + commands[0].Files[0].Path}
	}
	argv := commands[0].Words
	found := pack.Meanings(list, argv)
	var ids []string
	for _, m := range found {
		ids = append(ids, string(m.ID))
	}
	switch {
	case len(found) == 0:
		for _, m := range pack.Near(list, argv) {
			ids = append(ids, string(m.ID))
		}
		return lineMeaning{Reason: "no capability does what this line of " + argv[0] + " does", Nearest: ids}
	case len(found) > 1:
		return lineMeaning{Reason: "the line may mean " + strings.Join(ids, " or "), Nearest: ids}
	}
	for _, input := range found[0].Inputs {
		if _, err := found[0].Check(input, true); err != nil {
			return lineMeaning{Reason: err.Error(), Nearest: ids}
		}
	}
	return lineMeaning{Capability: &ids[0], Class: string(found[0].SideEffect), Input: found[0].Inputs[0]}
}

func (a *App) checkShimLine(list []*pack.Capability, args []string) error {
	line := strings.Join(args, " ")
	if len(args) == 0 {
		text, err := io.ReadAll(io.LimitReader(os.Stdin, maxCheckLine+2))
		if err != nil {
			return bailey.Unavailable.Wrap(err, "cannot read standard input", "")
		}
		line = strings.TrimSuffix(string(text), "\n")
	}
	m := explainLine(list, line)
	if m.Capability == nil {
		hint := "bailey capabilities list shows all capabilities."
		if len(m.Nearest) > 0 {
			hint = "The nearest are " + strings.Join(m.Nearest, ", ") + "."
		}
		return bailey.NotFound.New(m.Reason, hint)
	}
	if a.JSON {
		return a.Print(m)
	}
	input, err := json.Marshal(m.Input)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "%s (%s) %s\n", *m.Capability, m.Class, input)
	return err
}

func (a *App) checkShimLines(list []*pack.Capability, from io.Reader) error {
	return answerLines(from, "line", func(line string) error { return a.Print(explainLine(list, line)) })
}
