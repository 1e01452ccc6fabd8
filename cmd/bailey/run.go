package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"bailey/internal/terminal"
	"bailey/internal/wire"

	"github.com/spf13/cobra"

	"bailey"
)

func (a *app) runVerb() *cobra.Command {
	var inputs []string
	var call wire.CallQuery
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
		Args:    oneArg("a capability, as in: bailey run git.status -i repo=."),
		PreRun:  a.warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := parseInputs(inputs)
			if err != nil {
				return err
			}
			call.Capability, call.Input, call.Text = bailey.CapabilityID(args[0]), input, true
			c, err := a.client()
			if err != nil {
				return err
			}
			var stdout, stderr io.Writer
			ended := func() {}
			switch {
			case a.json:
			case raw:
				stdout, stderr = a.stdout, a.stderr
			default:
				var done, doneErr func()
				stdout, done = terminal.For(a.stdout, os.Stdout)
				stderr, doneErr = terminal.For(a.stderr, os.Stderr)
				ended = func() { done(); doneErr() }
			}
			c.Waits = func(n wire.Notice) { n.Tell(a.stderr) }
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

// parseInputs parses key=value pairs. It returns an error if a key is given twice.
func parseInputs(pairs []string) (map[string]any, error) {
	input := map[string]any{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%q is not key=value", pair), Hint: "write -i key=value"}
		}
		if _, twice := input[key]; twice {
			return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input %s is given twice", key), Hint: "give each input once; a list is one JSON array"}
		}
		input[key] = value
	}
	return input, nil
}

// report prints the reply to a call and returns its exit code as an error.
func (a *app) report(r wire.Reply) error {
	switch {
	case a.json:
		if err := a.print(r); err != nil {
			return err
		}
	case r.OK && r.DryRun:
		fmt.Fprintf(a.stdout, "would run: %s\n  %s by %s\n  receipt %s\n", strings.Join(r.Argv, " "), r.Decision, ruleNames(r.Rules), r.ReceiptID)
	case !r.OK:
		a.say(r.Word(), r.Reason, r.Hint)
		if r.ReceiptID != "" {
			fmt.Fprintf(a.stderr, "  receipt %s\n", r.ReceiptID)
		}
		if r.ApprovalRequired && !r.DryRun && r.ApprovalID != "" {
			id := terminal.Shown(string(r.ApprovalID))
			fmt.Fprintf(a.stderr, "  bailey approve %s lets it run: the same words again, from the same directory, take it up, and it runs once (--wait stays for the answer)\n", id)
		}
	}
	if !a.json {
		r.TellWalls(a.stderr)
	}
	if r.Result != nil && r.Result.Truncated && !a.json {
		fmt.Fprintf(a.stderr, "bailey: the output was cut at %d bytes\n", bailey.OutputCap)
		if r.Result.Narrow != "" {
			fmt.Fprintf(a.stderr, "  %s\n", r.Result.Narrow)
		}
	}
	if code := replyCode(r); code != exitOK {
		return exit(code)
	}
	return nil
}

// replyCode is the only mapping from the result of a call to an exit code.
func replyCode(r wire.Reply) int {
	switch {
	case r.OK:
		return exitOK
	case r.ApprovalRequired:
		return exitInput
	}
	switch r.Error {
	case bailey.Invalid:
		return exitInput
	case bailey.ToolFailed:
		return exitTool
	case bailey.NotFound:
		return exitNoMatch
	case bailey.Blocked:
		return exitBlocked
	}
	return exitDenied
}

func ruleNames(rules []bailey.Rule) string {
	if len(rules) == 0 {
		return "no rule"
	}
	var names []string
	for _, r := range rules {
		names = append(names, fmt.Sprintf("%s (%s)", r.ID, r.Source))
	}
	return strings.Join(names, ", ")
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

// oneArg requires exactly one argument, described by what.
func oneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("want one argument, got %d", len(args)), Hint: "name " + what}
		}
		return nil
	}
}
