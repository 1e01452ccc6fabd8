package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

func (a *App) runVerb() *cobra.Command {
	var inputs []string
	var call localapi.CallQuery
	var raw bool
	cmd := &cobra.Command{
		Use:   "run CAPABILITY [-i key=value]...",
		Short: "Make one call through the gate",
		Long: `Make one call through the gate: decided by policy, run in a fresh cage, receipted.

Exit codes: 0 ok, 1 denied, 2 bad input or approval needed, 3 the tool failed, 77 not in the profiles in use,
126 no such capability, 127 the gateway is not reachable, 128+n ended by signal n.

To a terminal the tool's output is written with escape sequences and other controls escaped; in a pipe, and with --raw, it is as
the tool wrote it.

A call that a person has to approve is parked: it ends with 2 and the approval's id, and the same call takes it up, once,
when that is granted. With --wait it stays for the answer.`,
		Example: "  bailey run git.log -i repo=. -i limit=5\n  bailey run system.echo -i message=hi --dry-run --json",
		Args:    OneArg("a capability, as in: bailey run git.status -i repo=."),
		PreRun:  a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := apitype.ParseInputs(inputs)
			if err != nil {
				return err
			}
			call.Capability, call.Input, call.Text = bailey.CapabilityID(args[0]), input, true
			c, err := a.Client()
			if err != nil {
				return err
			}
			var stdout, stderr io.Writer
			ended := func() {}
			switch {
			case a.JSON:
			case raw:
				stdout, stderr = a.Stdout, a.Stderr
			default:
				var done, doneErr func()
				stdout, done = terminal.For(a.Stdout, os.Stdout)
				stderr, doneErr = terminal.For(a.Stderr, os.Stderr)
				ended = func() { done(); doneErr() }
			}
			c.Waits = func(n localapi.Notice) { n.Tell(a.Stderr) }
			// ends the call if the reader of the output closes it
			ctx, stop := terminal.UntilSignal(cmd.Context(), syscall.SIGPIPE)
			defer stop()
			reply, err := c.Call(ctx, call, stdout, stderr)
			ended()
			if err != nil {
				return err
			}
			return a.report(reply)
		},
	}
	cmd.Flags().StringArrayVarP(&inputs, "input", "i", nil, "an input, `key=value`; may be repeated")
	cmd.Flags().BoolVar(&call.DryRun, "dry-run", false, "decide and plan, execute nothing")
	cmd.Flags().BoolVar(&raw, "raw", false, "write the tool's output as it is, also to a terminal: what it holds may address that")
	cmd.Flags().BoolVar(&call.Wait, "wait", false, "stay until a person has answered, if one is asked")
	return cmd
}

// report prints the reply to a call and returns its exit code as an error.
func (a *App) report(r localapi.Reply) error {
	switch {
	case a.JSON:
		if err := a.Print(r); err != nil {
			return err
		}
	case r.OK && r.DryRun:
		fmt.Fprintf(a.Stdout, "would run: %s\n  %s by %s\n  receipt %s\n", strings.Join(r.Argv, " "), r.Decision, apitype.RuleNames(r.Rules), r.ReceiptID)
	case !r.OK:
		a.Say(r.Word(), r.Reason, r.Hint)
		if r.ReceiptID != "" {
			fmt.Fprintf(a.Stderr, "  receipt %s\n", r.ReceiptID)
		}
		if r.ApprovalRequired && !r.DryRun && r.ApprovalID != "" {
			id := terminal.Shown(string(r.ApprovalID))
			fmt.Fprintf(a.Stderr, "  bailey approve %s lets it run: the same words again, from the same directory, take it up, and it runs once (--wait stays for the answer)\n", id)
		}
	}
	if !a.JSON {
		r.TellWalls(a.Stderr)
	}
	if r.Result != nil && r.Result.Truncated && !a.JSON {
		fmt.Fprintf(a.Stderr, "bailey: the output was cut at %d bytes\n", bailey.OutputCap)
		if r.Result.Narrow != "" {
			fmt.Fprintf(a.Stderr, "  %s\n", r.Result.Narrow)
		}
	}
	if code := apitype.ReplyCode(r); code != apitype.ExitOK {
		return Exit(code)
	}
	return nil
}

// someArgs requires at least one argument, described by what.
func someArgs(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return &bailey.Error{Kind: bailey.Invalid, Message: "want an argument, got none", Hint: "name " + what}
		}
		return nil
	}
}

// OneArg requires exactly one argument, described by what.
func OneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("want one argument, got %d", len(args)), Hint: "name " + what}
		}
		return nil
	}
}
