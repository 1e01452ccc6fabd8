package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

func (a *App) killVerb() *cobra.Command {
	return &cobra.Command{
		Use: "kill [REASON]", Short: "Stop everything now",
		Long: `End every call under way at once, and refuse every later one, until an operator says "bailey resume". It holds over
a restart of the gateway. REASON is told to agents, and stands in the receipts.`,
		Example: `  bailey kill "the agent deletes what it should not"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			reason := strings.Join(args, " ")
			if len(reason) > apitype.MaxKillReason || !utf8.ValidString(reason) {
				return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("a reason is at most %d bytes of UTF-8", apitype.MaxKillReason), Hint: "say less; bailey kill alone will do"}
			}
			q := localapi.Query{Verb: apitype.KillVerb, Args: map[string]any{"reason": reason}}
			return Query(cmd.Context(), a, q, func(k apitype.Killed) {
				fmt.Fprintf(a.Stdout, "stopped: %s ended; every call is refused until you say: bailey resume\n", apitype.Counts(k.Calls, "call"))
			})
		},
	}
}

func (a *App) resumeVerb() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "resume", Short: "Carry calls again after a kill", Args: cobra.NoArgs,
		Long: "Carry calls again. What was ended stays ended.\n\nAn operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			op, err := a.Operator("resume", yes)
			if err != nil {
				return err
			}
			c, err := a.Client()
			if err != nil {
				return err
			}
			var now apitype.Status
			if err := c.Look(cmd.Context(), localapi.Query{Verb: "status"}, &now); err != nil {
				return err
			}
			if now.Killed != nil && !yes {
				fmt.Fprintln(a.Dialog(), apitype.KilledText(*now.Killed))
				if err := a.Confirm(cmd.Context(), "Carry calls again?"); err != nil {
					return err
				}
			}
			var was apitype.Killed
			if err := Command(cmd.Context(), c, op, apitype.ResumeVerb, nil, &was); err != nil {
				return err
			}
			if a.JSON {
				return a.Print(map[string]any{"ok": true, "was": was})
			}
			_, err = fmt.Fprintln(a.Stdout, "calls are carried again")
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
