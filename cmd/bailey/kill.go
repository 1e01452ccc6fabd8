package main

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/wire"
)

// Verbs of the kill switch. Only the command line, with its terminal UI, has it. This is a separate channel: no
// interface for agents has it. Every user may stop calls; only an operator may resume them.
const killVerb, resumeVerb = "kill", "resume"

// killedLook is the query for processes that must end when the kill switch is set.
const killedLook = "killed"

// maxKillReason limits a reason, in bytes. It becomes part of every refusal and its receipt.
const maxKillReason = 400

func (a *app) killVerb() *cobra.Command {
	return &cobra.Command{
		Use: "kill [REASON]", Short: "Stop everything now",
		Long: `End every call under way at once, and refuse every later one, until an operator says "bailey resume". It holds over
a restart of the gateway. REASON is told to agents, and stands in the receipts.`,
		Example: `  bailey kill "the agent deletes what it should not"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			reason := strings.Join(args, " ")
			if len(reason) > maxKillReason || !utf8.ValidString(reason) {
				return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("a reason is at most %d bytes of UTF-8", maxKillReason), Hint: "say less; bailey kill alone will do"}
			}
			q := wire.Query{Verb: killVerb, Args: map[string]any{"reason": reason}}
			return look(cmd.Context(), a, q, func(k gateway.Killed) {
				fmt.Fprintf(a.stdout, "stopped: %s ended; every call is refused until you say: bailey resume\n", counts(k.Calls, "call"))
			})
		},
	}
}

func (a *app) resumeVerb() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "resume", Short: "Carry calls again after a kill", Args: cobra.NoArgs,
		Long: "Carry calls again. What was ended stays ended.\n\nAn operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			op, err := a.operator("resume", yes)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			var now status
			if err := c.Look(cmd.Context(), wire.Query{Verb: "status"}, &now); err != nil {
				return err
			}
			if now.Killed != nil && !yes {
				fmt.Fprintln(a.dialog(), killedWords(*now.Killed))
				if err := a.confirm(cmd.Context(), "Carry calls again?"); err != nil {
					return err
				}
			}
			var was gateway.Killed
			if err := act(cmd.Context(), c, op, resumeVerb, nil, &was); err != nil {
				return err
			}
			if a.json {
				return a.print(map[string]any{"ok": true, "was": was})
			}
			_, err = fmt.Fprintln(a.stdout, "calls are carried again")
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func killedWords(k gateway.Killed) string {
	words := "everything is stopped since " + k.At.Format(time.RFC3339)
	if k.Person != "" {
		words += " by " + cell(k.Person)
	}
	if k.Reason != "" {
		words += ": " + cell(k.Reason)
	}
	return words + "; bailey resume carries calls again"
}

// stop handles `bailey kill`. It must complete even if the client disconnects.
func (s *stack) stop(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	reason := s.redaction.Text(from.Session.ID, text(q.Args, "reason"))
	if len(reason) > 2*maxKillReason {
		reason = ""
	}
	return s.kill.Kill(context.WithoutCancel(ctx), reason, from.Principal.Person)
}

func (s *stack) resume(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	return s.kill.Resume(ctx, gateway.Resumed{Operator: q.Operator, Person: from.Principal.Person})
}

func (s *stack) killed(context.Context, wire.Query, bailey.Call) (any, error) {
	return s.kill.State(), nil
}
