package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/hook"
	"bailey/internal/cli/direct"
	"bailey/internal/hooks"
	"bailey/internal/jail"
	"bailey/internal/server"
	"bailey/internal/settings"
)

// hookBenchRow is one line of bench hook.
type hookBenchRow struct {
	benchRow
	OfCold  *float64 `json:"of_cold,omitempty"`  // added to bare, divided by what cold-cage adds
	PerFive *float64 `json:"per_five,omitempty"` // p50 divided by that of cold-five
	PerHook *float64 `json:"per_hook,omitempty"` // p50 divided by that of hook
	AtMost  *float64 `json:"at_most,omitempty"`  // limit of of_cold or per_hook
}

type hookBenchRows struct {
	Command []string       `json:"command"`
	Rows    []hookBenchRow `json:"rows"`
}

// chainLength is the number of hooks in the measured chain.
const chainLength = 5

func (a *commands) benchHookVerb() *cobra.Command {
	b := jailBench{}
	cmd := &cobra.Command{
		Use: "hook [-- COMMAND [ARG]...]", Short: "A hook beside the same program started bare, and in a cage",
		Long: `Run a program (true, if none is named) again and again in each of these ways, in random turns with a pause before each:

  bare       fork, exec, the frame on stdin, two captured pipes, as Go's os/exec does it
  cold-cage  plan and run in the cage of a call, of which nothing was made ahead
  cold-five  five of these, one right after the other: what a cage leaves to the kernel to tidy up then costs the next
  hook       ask it as a hook: the frame, a hook's cage, its answer
  chain      five such hooks, one after the other

"of cold" is what a way adds to bare over what cold-cage adds; "required" is what that, or the ratio to one hook, may be.`,
		Example: "  bailey bench hook\n  bailey bench hook --json -n 500 -- /opt/hooks/check",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return bailey.Invalid.New("bench hook wants -- before a command",
					"write: bailey bench hook -- /opt/hooks/check")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			a.After = ""
			b.chosen, b.command = len(args) > 0, args
			rows, err := b.measureHooks(cmd.Context(), a.Progress("measuring"))
			if err != nil {
				return err
			}
			return a.printHooks(rows)
		},
	}
	cmd.Flags().IntVarP(&b.turns, "n", "n", 300, "how often each way")
	return cmd
}

func (b *jailBench) measureHooks(ctx context.Context, tell func(done, all int64)) (out hookBenchRows, err error) {
	if err := b.checkTurns(); err != nil {
		return out, err
	}
	defer b.tearDown()
	if err := b.setUp(); err != nil {
		return out, err
	}
	ways, err := b.hookWays(ctx)
	if err != nil {
		return out, err
	}
	times, err := b.measureWays(ctx, ways, tell)
	if err != nil {
		return out, err
	}
	out.Command = b.command
	out.Rows = newHookRows(ways, times)
	return out, nil
}

func (b *jailBench) hookWays(ctx context.Context) ([]way, error) {
	event := direct.Sample(hook.Hook{Event: hook.OnPreToolUse})
	frame, err := hook.Encode(event)
	if err != nil {
		return nil, err
	}
	cold, err := b.openCold(ctx)
	if err != nil {
		return nil, err
	}
	ask := func(n int) func(context.Context) ([]time.Duration, error) {
		var c hook.Config
		for range n {
			c.Hooks = append(c.Hooks,
				hook.Hook{Event: hook.OnPreToolUse, Argv: b.command, Timeout: hook.DefaultTimeout})
		}
		j, err := jail.New(jail.Config{})
		if err == nil {
			b.closing = append(b.closing, func() { j.Close() })
		}
		chain := server.NewChain(hooks.Config{Applied: func() hook.Config { return c }, Cages: j},
			server.EgressPlanner{Settings: func() settings.Network { return settings.Network{} }}, nil, func() []string { return nil })
		return func(ctx context.Context) ([]time.Duration, error) {
			if err != nil {
				return nil, err
			}
			start := time.Now()
			o, asked := chain.Ask(ctx, event)
			took := time.Since(start)
			if o.Effect != hook.Kept || len(asked) != n {
				return nil, errors.New(o.Reason)
			}
			return []time.Duration{took}, nil
		}
	}
	return []way{
		{name: "bare", do: func(context.Context) ([]time.Duration, error) { return b.runWithoutCage(frame) }},
		{name: "cold-cage", do: func(ctx context.Context) ([]time.Duration, error) { return b.timeColdCall(ctx, cold, b.commandJob()) }},
		{name: "cold-five", do: func(ctx context.Context) ([]time.Duration, error) {
			var all time.Duration
			for range chainLength {
				took, err := b.timeColdCall(ctx, cold, b.commandJob())
				if err != nil {
					return nil, err
				}
				all += took[0]
			}
			return []time.Duration{all}, nil
		}},
		{name: "hook", do: ask(1)},
		{name: "chain", do: ask(chainLength)},
	}, nil
}

// runWithoutCage runs the program without a cage, with the frame on standard input.
func (b *jailBench) runWithoutCage(frame []byte) ([]time.Duration, error) {
	cmd := exec.Command(b.command[0], b.command[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(frame), &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	return []time.Duration{time.Since(start)}, err
}

func newHookRows(ways []way, times map[string][]time.Duration) (rows []hookBenchRow) {
	var names []string
	for _, w := range ways {
		names = append(names, w.name)
	}
	p50 := map[string]float64{}
	for _, r := range rowsOf(times, names).Rows {
		p50[r.Name] = r.P50
		row := hookBenchRow{benchRow: r}
		switch r.Name {
		case "hook":
			row.OfCold, row.AtMost = ratioOf(r.P50-p50["bare"], p50["cold-cage"]-p50["bare"]), new(1.2)
		case "chain":
			row.PerFive = ratioOf(r.P50, p50["cold-five"])
			row.PerHook, row.AtMost = ratioOf(r.P50, p50["hook"]), new(float64(chainLength))
		}
		rows = append(rows, row)
	}
	return rows
}

func (a *commands) printHooks(rows hookBenchRows) error {
	if a.JSON {
		return a.Print(rows)
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tn\tp50 µs\tp99 µs\t× bare\tof cold\trequired\t")
	for _, r := range rows.Rows {
		required := ""
		switch {
		case r.PerHook != nil:
			required = fmt.Sprintf("%.2f × hook, ≤ %.0f; %.2f × cold-five", *r.PerHook, *r.AtMost, *r.PerFive)
		case r.AtMost != nil:
			required = fmt.Sprintf("≤ %.2f", *r.AtMost)
		}
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%.0f\t%.2f\t%s\t%s\t\n", r.Name, r.N, r.P50, r.P99, *r.PerBare,
			threeDecimals(r.OfCold), required)
	}
	return w.Flush()
}
