package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
	"bailey/pack"
)

func (a *App) capabilitiesVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "capabilities", Short: "What can be asked for"}
	var all bool
	list := &cobra.Command{
		Use: "list", Short: "List the capabilities whose programs are on this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Query(cmd.Context(), a, localapi.Query{Verb: "capabilities"}, func(l apitype.CapabilityList) {
				w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
				absent := 0
				for _, c := range l.Capabilities {
					if c.Absent && !all {
						absent++
						continue
					}
					kind := c.SideEffect
					if c.Isolation == string(pack.Agent) {
						kind += ", the agent's own"
					}
					if c.Isolation == string(pack.Open) {
						kind += ", without a cage"
					}
					if c.Absent {
						kind += ", not installed"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\n", c.ID, kind, c.Description)
				}
				w.Flush()
				if absent > 0 {
					fmt.Fprintf(a.Stderr, "bailey: %d more are of programs that are not on this machine: --all\n", absent)
				}
			})
		},
	}
	list.Flags().BoolVar(&all, "all", false, "also those whose programs are not here")
	cmd.AddCommand(a.searchVerb(), list,
		&cobra.Command{
			Use: "show CAPABILITY", Short: "Show one capability and its inputs", Args: OneArg("a capability"),
			RunE: func(cmd *cobra.Command, args []string) error {
				q := localapi.Query{Verb: "capability", Args: map[string]any{"id": args[0]}}
				return Query(cmd.Context(), a, q, func(c apitype.Capability) {
					fmt.Fprintf(a.Stdout, "%s  %s\n\npack %s %s, risk %s, side effects %s, reversibility %s, isolation %s\n%s\n%s%s\ninputs %s\n",
						c.ID, c.Description, c.Pack, c.Version, c.Risk, c.SideEffect, c.Reversibility, c.Isolation, started(c), outside(c), previewed(c), terminal.Indent(c.InputSchema))
					if c.OutputSchema != nil {
						fmt.Fprintf(a.Stdout, "output %s\n", terminal.Indent(c.OutputSchema))
					}
				})
			},
		})
	return cmd
}

// started describes the program that a call runs.
func started(c apitype.Capability) string {
	if c.Isolation == string(pack.Agent) {
		return "the agent runs it itself, and the gate only decides"
	}
	if c.Isolation == string(pack.Open) {
		return "runs " + c.Command + " without a cage, with all that its user may do: a rule has to let it, by the waiver " + pack.NoIsolation
	}
	return "runs " + c.Command
}

// previewed describes in one line the preview that an approver sees, or returns "" without one.
func previewed(c apitype.Capability) string {
	switch {
	case len(c.Preview) == 0:
		return ""
	case c.Covers:
		return "whoever is asked sees what it would do, and with that all that matters of the files and directories it names\n"
	}
	return "whoever is asked sees what it would do\n"
}

// outside describes in one line the hosts that the tool can reach, or returns "".
func outside(c apitype.Capability) string {
	if len(c.Egress) == 0 {
		return ""
	}
	return "reaches " + strings.Join(c.Egress, ", ") + "\n"
}
