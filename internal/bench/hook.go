package bench

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
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

// chainLength is the number of hooks in the measured chain.
const chainLength = 5

func (a *commands) benchHookVerb() *cobra.Command {
	b := jailBench{}
	cmd := a.measureVerb(&cobra.Command{
		Use: "hook [-- COMMAND [ARG]...]", Short: "Compare a hook with the program alone, and in a jail",
		Long: `Run a program (default true) repeatedly in each of these ways, in random order with a pause before
each:

  bare       fork, exec, the frame on stdin, two captured pipes, as Go's os/exec does it
  cold-cage  plan and run in the jail of a call, with nothing prepared in advance
  cold-five  five of these, one directly after the other: the kernel's cleanup of a jail then slows the next
  hook       ask it as a hook: the frame, a hook's jail, its answer
  chain      five such hooks, one after the other

The time that a hook adds to bare is compared with the time that cold-cage adds. "required" is the limit of
that ratio, or of the ratio to one hook.`,
		Example: "  bailey bench hook\n  bailey bench hook --json -n 500 -- /opt/hooks/check",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return bailey.Invalid.New("bench hook needs -- before a command",
					"use: bailey bench hook -- /opt/hooks/check")
			}
			return nil
		},
	}, func(ctx context.Context, args []string) ([]Row, error) {
		a.After = ""
		b.chosen, b.command = len(args) > 0, args
		return b.measureHooks(ctx, a.Progress("measuring"))
	})
	cmd.Flags().IntVarP(&b.turns, "n", "n", 300, "number of runs of each row")
	return cmd
}

func (b *jailBench) measureHooks(ctx context.Context, tell func(done, all int64)) (rows []Row, err error) {
	if err := b.checkTurns(); err != nil {
		return nil, err
	}
	defer b.tearDown()
	if err := b.setUp(); err != nil {
		return nil, err
	}
	ways, err := b.hookWays(ctx)
	if err != nil {
		return nil, err
	}
	times, err := b.measureWays(ctx, ways, tell)
	if err != nil {
		return nil, err
	}
	rows = newHookRows(times)
	rows[0].Note = strings.Join(b.command, " ")
	return rows, nil
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

func newHookRows(times map[string][]time.Duration) []Row {
	rows, p50 := timeRows(times, "bare", "bare", "cold-cage", "cold-five", "hook", "chain")
	hook, chain, bare := rows[3], rows[4], p50["bare"]
	return append(rows,
		hook.comparedTo("cold-cage - bare", p50["hook"]-bare, p50["cold-cage"]-bare, 1.2),
		chain.comparedTo("hook", p50["chain"], p50["hook"], chainLength),
		chain.comparedTo("cold-five", p50["chain"], p50["cold-five"], 0))
}
