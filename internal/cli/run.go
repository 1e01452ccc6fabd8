package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/mcp"
	"bailey/internal/terminal"
	"bailey/pack"
)

func (a *App) runVerb() *cobra.Command {
	var inputs []string
	var call localapi.CallQuery
	var raw bool
	cmd := &cobra.Command{
		Use:   "run CAPABILITY [-i key=value]...",
		Short: "Run one call through the gate",
		Long: `Make one call through the gate: decided by policy, run in a new jail, and recorded in a receipt.

Exit codes: 0 ok, 1 denied, 2 bad input or approval needed, 3 the tool failed, 77 not in the profiles in use,
126 no such capability, 127 the gateway is not reachable, 128+n ended by signal n.

On a terminal, escape sequences and other control characters in the tool's output are escaped; in a pipe, and
with --raw, the output is unchanged.

If a call needs an approval, it ends with exit code 2 and the approval's ID. After the approval, repeat the
same call; it runs once. With --wait it waits for the answer.`,
		Example: "  bailey run git.log -i repo=. -i limit=5\n  bailey run system.echo -i message=hi --dry-run --json",
		Args:    OneArg("a capability, for example: bailey run git.status -i repo=."),
		PreRun:  a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := apitype.ParseInputs(inputs)
			if err != nil {
				return err
			}
			call.Capability, call.Input, call.Text = bailey.CapabilityID(args[0]), input, true
			return a.MakeCall(cmd.Context(), call, raw)
		},
	}
	cmd.Flags().StringArrayVarP(&inputs, "input", "i", nil, "an input, `key=value`; may be repeated")
	cmd.Flags().BoolVar(&call.DryRun, "dry-run", false, "decide and plan, execute nothing")
	cmd.Flags().BoolVar(&raw, "raw", false,
		"write the tool's output unchanged, also to a terminal, which it can then control")
	cmd.Flags().DurationVar(&call.Timeout, "timeout", 0,
		"end the tool after this `time`, for example 30s; at most the capability's own limit, which is the default")
	cmd.Flags().BoolVar(&call.Wait, "wait", false, "if an approval is needed, wait for the answer")
	return cmd
}

// MakeCall makes a call through the gate and prints its output and its reply. raw writes the output unchanged.
func (a *App) MakeCall(ctx context.Context, call localapi.CallQuery, raw bool) error {
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
	ctx, stop := terminal.UntilSignal(ctx, syscall.SIGPIPE)
	defer stop()
	reply, err := c.Call(ctx, call, stdout, stderr)
	ended()
	if err != nil {
		return err
	}
	return a.printReply(reply)
}

// printReply prints the reply to a call and returns its exit code as an error.
func (a *App) printReply(r localapi.Reply) error {
	switch {
	case a.JSON:
		if err := a.Print(r); err != nil {
			return err
		}
	case r.OK && r.DryRun:
		fmt.Fprintf(a.Stdout, "would run: %s\n  %s by %s\n  receipt %s\n", strings.Join(r.Argv, " "), r.Decision,
			apitype.RuleNames(r.Rules), r.ReceiptID)
	case !r.OK:
		a.Say(r.Word(), r.Reason, r.Hint)
		if r.ReceiptID != "" {
			fmt.Fprintf(a.Stderr, "  receipt %s\n", r.ReceiptID)
		}
		if r.ApprovalRequired && !r.DryRun && r.ApprovalID != "" {
			id := terminal.Shown(string(r.ApprovalID))
			fmt.Fprintf(a.Stderr,
				"  To approve: bailey approve %s. Then repeat the same command in the same directory; it will run once. Use --wait to block until it is answered.\n", id)
		}
	}
	if !a.JSON {
		r.TellWalls(a.Stderr)
		if r.Result != nil && r.Result.Truncated {
			fmt.Fprintf(a.Stderr, "bailey: the output was truncated at %d bytes\n", bailey.OutputCap)
			if r.Result.Narrow != "" {
				fmt.Fprintf(a.Stderr, "  %s\n", r.Result.Narrow)
			}
		}
	}
	code := apitype.ReplyCode(r)
	return ExitUnless(code == apitype.ExitOK, Exit(code), nil)
}

// CheckArgs returns an error with this message and hint if ok reports that the arguments are wrong.
func CheckArgs(ok func(cmd *cobra.Command, args []string) bool, message, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if !ok(cmd, args) {
			return bailey.Invalid.New(message, hint)
		}
		return nil
	}
}

// someArgs requires at least one argument, described by what.
func someArgs(what string) cobra.PositionalArgs {
	return CheckArgs(func(_ *cobra.Command, args []string) bool { return len(args) > 0 }, "an argument is missing",
		"name "+what)
}

// OneArg requires exactly one argument, described by what.
func OneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return bailey.Invalid.Errorf("name "+what, "one argument is needed, not %d", len(args))
		}
		return nil
	}
}

func (a *App) capabilitiesVerb() *cobra.Command {
	return GroupVerb("capabilities", "List, show and search capabilities", "",
		a.searchVerb(), a.capabilitiesList(), a.capabilitiesShow())
}

func (a *App) capabilitiesList() *cobra.Command {
	var all bool
	cmd := &cobra.Command{Use: "list", Short: "List the capabilities whose programs are on this machine",
		Long: `List the capabilities whose programs are on this machine: first those that the policy in use allows or asks
about, everyday ones first, then those that it denies.`}
	cmd.Flags().BoolVar(&all, "all", false, "also show those whose programs are not installed")
	return QueryVerb(a, cmd, apitype.ListCapabilities, nil, func(w io.Writer, l apitype.CapabilityList) {
		absent := 0
		usable, denied := splitDenied(l.Capabilities)
		row := func(c apitype.Capability) []any {
			if c.Absent && !all {
				absent++
				return nil
			}
			kind := c.SideEffect
			if c.Isolation == string(pack.Agent) {
				kind += ", run by the agent"
			}
			if c.Isolation == string(pack.Model) {
				kind += ", made by the model proxy"
			}
			if c.Isolation == string(pack.Open) {
				kind += ", without a jail"
			}
			if c.Absent {
				kind += ", not installed"
			}
			return []any{c.ID, kind, c.Description}
		}
		PrintTable(w, "", usable, row)
		if len(denied) > 0 {
			fmt.Fprintln(w, "\ndenied by the policy in use; an operator allows one with: bailey allow CAPABILITY")
			PrintTable(w, "", denied, row)
		}
		if absent > 0 {
			fmt.Fprintf(a.Stderr, "bailey: %d more need programs that are not installed here: --all\n", absent)
		}
	})
}

// everydayPacks are the packs that a list begins with.
var everydayPacks = []string{"git", "base", "go", "npm", "python", "make", "gh", "jq"}

// splitDenied returns the capabilities that are not denied for every input, those of everyday packs first, and the
// others.
func splitDenied(list []apitype.Capability) (usable, denied []apitype.Capability) {
	for _, c := range list {
		if c.Denied {
			denied = append(denied, c)
		} else {
			usable = append(usable, c)
		}
	}
	rank := func(c apitype.Capability) int {
		if i := slices.Index(everydayPacks, c.Pack); i >= 0 {
			return i
		}
		return len(everydayPacks)
	}
	for _, part := range [][]apitype.Capability{usable, denied} {
		slices.SortStableFunc(part, func(a, b apitype.Capability) int { return rank(a) - rank(b) })
	}
	return usable, denied
}

func (a *App) capabilitiesShow() *cobra.Command {
	return QueryVerb(a, &cobra.Command{
		Use: "show CAPABILITY", Short: "Show one capability and its inputs", Args: OneArg("a capability"),
	}, apitype.ShowCapability, OneID, func(w io.Writer, c apitype.Capability) {
		fmt.Fprintf(w,
			"%s  %s\n\npack %s %s, risk %s, side effects %s, reversibility %s, isolation %s\n%s\n%s%s%s\ninputs %s\n",
			c.ID, c.Description, c.Pack, c.Version, c.Risk, c.SideEffect, c.Reversibility, c.Isolation,
			describeProgram(c), describeEgress(c), describeWaivers(c), describePreview(c), terminal.Indent(c.InputSchema))
		if c.OutputSchema != nil {
			fmt.Fprintf(w, "output %s\n", terminal.Indent(c.OutputSchema))
		}
	})
}

// describeProgram describes the program that a call runs.
func describeProgram(c apitype.Capability) string {
	if c.Isolation == string(pack.Agent) {
		return "the agent runs it itself; the gate only decides"
	}
	if c.Isolation == string(pack.Model) {
		return "the model proxy makes it for its clients"
	}
	if c.Isolation == string(pack.Open) {
		return "runs " + c.Command +
			" without a jail, with all rights of its user: a rule must allow it with the waiver " + pack.NoIsolation
	}
	return "runs " + c.Command
}

// describePreview describes in one line the preview that an approver sees, or returns "" without one.
func describePreview(c apitype.Capability) string {
	switch {
	case len(c.Preview) == 0:
		return ""
	case c.Covers:
		return "the approver sees what it would do, and thereby all relevant contents of the files and directories it names\n"
	}
	return "the approver sees what it would do\n"
}

// describeEgress describes in one line the hosts that the tool can reach, or returns "".
func describeEgress(c apitype.Capability) string {
	if len(c.Egress) == 0 {
		return ""
	}
	return "reaches " + strings.Join(c.Egress, ", ") + "\n"
}

// describeWaivers describes in one line what the manifest gives up of the jail, or returns "".
func describeWaivers(c apitype.Capability) string {
	if len(c.Waivers) == 0 {
		return ""
	}
	return "waives " + strings.Join(c.Waivers, ", ") + ": only a rule that names it in context.waivers allows it\n"
}

func (a *App) searchVerb() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "search WORD...", Short: "Search capabilities by purpose, best match first",
		Long:    "Find capabilities by words of their ID, description and inputs: whole, as a prefix or misspelt. The best match\ncomes first. An empty result is not an error.",
		Example: "  bailey capabilities search commits\n  bailey capabilities search what changed --limit 3 --json",
		Args: CheckArgs(func(_ *cobra.Command, args []string) bool {
			return strings.TrimSpace(strings.Join(args, "")) != "" && limit >= 1
		}, "search needs a word, and a limit of at least 1", "use for example: bailey capabilities search commits"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := apitype.SearchRequest{Words: strings.Join(args, " "), Limit: limit}
			l, err := Ask(cmd.Context(), a, apitype.SearchCapabilities, r)
			if err != nil {
				return err
			}
			if len(l.Capabilities) == 0 {
				fmt.Fprintln(a.Stderr, "bailey: no capability matches these words\n  run bailey capabilities list to show all")
			}
			return PrintAnswer(a, l, func(w io.Writer, l apitype.SearchList) {
				PrintTable(w, "", l.Capabilities, func(c apitype.SearchRow) []any {
					return []any{c.ID, c.SideEffect, c.Description, "(" + strings.Join(c.Inputs, ", ") + ")"}
				})
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 10, "maximum number of capabilities")
	return cmd
}

func (a *App) toolsVerb() *cobra.Command {
	return GroupVerb("tools", "Export tools for agents that do not use MCP", "", a.toolsExport())
}

func (a *App) toolsExport() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "export", Short: "Print the tools in the format of a model's API", Args: cobra.NoArgs,
		Long: `Print the tools that an agent would see now, as JSON in the tools format of a model's API.

Formats: claude, openai and gemini have a definition for each capability; two-tool has one that searches and
one that calls. A tool's capability is its name with the first _ replaced by a dot. To call it: bailey run
CAPABILITY --json; to search: bailey capabilities search --json`,
		Example: "  bailey tools export --format openai > tools.json",
	}
	cmd.Flags().StringVar(&format, "format", "claude", "claude, gemini, openai or two-tool")
	cmd.RegisterFlagCompletionFunc("format",
		cobra.FixedCompletions(mcp.Formats(), cobra.ShellCompDirectiveNoFileComp))
	return QueryVerb(a, cmd, apitype.ExportTools, func([]string) (apitype.ToolsRequest, error) {
		return apitype.ToolsRequest{Format: format}, nil
	}, func(w io.Writer, tools json.RawMessage) { fmt.Fprintln(w, terminal.Indent(tools)) })
}

// NewJailQuery returns the request that records the run of argv in cage. The places of the job are split into writable
// and read-only paths.
func NewJailQuery(argv []string, job bailey.Job, cage bailey.Cage) apitype.JailQuery {
	q := apitype.JailQuery{JailRunning: apitype.JailRunning{Argv: argv, Dir: job.Dir, Exec: job.Exec, TTY: job.TTY,
		Cage: cage}, Env: job.Env, Plan: cage.Plan}
	for _, p := range job.Places {
		if p.Write {
			q.Writable = append(q.Writable, p.Path)
		} else {
			q.ReadOnly = append(q.ReadOnly, p.Path)
		}
	}
	return q
}
