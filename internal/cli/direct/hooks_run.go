package direct

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/hook"
	"bailey/internal/cli"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

func (a *commands) hooksRun() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "run EVENT", Short: "Ask the hooks that were applied about a frame on stdin, and print what goes on",
		Long: `Read the frame of an event on stdin, ask the chain of the hooks that were applied, and print the frame that goes on. Exit code
2 where it is blocked, with the reason on stderr; else 0. With --json what each hook came to stands beside the frame.

An operator verb, which asks on the terminal wherever stdin and stdout lead, or wants BAILEY_OPERATOR=1 and --yes. The ledger has
it (hooks.run), with the event and what came of it.`,
		Example: `  echo '{"hook_event_name":"UserPromptSubmit","session_id":"s-1","cwd":"/","prompt":"hi"}' | bailey hooks run UserPromptSubmit`,
		Args:    cli.OneArg("an event: " + eventNames()),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.runChain(cmd.Context(), args[0], yes) },
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *commands) runChain(ctx context.Context, event string, yes bool) error {
	op, err := cli.OperatorBeside(ctx, "hooks run", "Ask the hooks about the frame on stdin?", "nobody was asked", yes)
	if err != nil {
		return err
	}
	frame, err := io.ReadAll(io.LimitReader(a.Stdin, hook.MaxFrame+1)) // one byte over the limit makes Decode fail
	if err != nil {
		return err
	}
	e, err := hook.Decode(frame)
	if err != nil {
		return err
	}
	if string(e.Name()) != event {
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the frame is of %s, not of %s", e.Name(), event), Hint: "hook_event_name says which event it is"}
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	var out apitype.ChainRun
	if err := cli.Command(ctx, c, op, apitype.HooksRunVerb, map[string]any{"frame": base64.StdEncoding.EncodeToString(frame)}, &out); err != nil {
		return err
	}
	switch {
	case a.JSON:
		err = a.Print(out)
	case out.OK:
		_, err = io.WriteString(a.Stdout, out.Frame)
	}
	if err == nil && !out.OK {
		if !a.JSON {
			a.Say("blocked", out.Reason, out.Hint)
		}
		return cli.Exit(apitype.ExitInput)
	}
	return err
}

// executing holds the flags of `hooks exec`.
type executing struct {
	env, read, write, network []string
	timeout                   time.Duration
	pass, yes                 bool
}

func (a *commands) hooksExec() *cobra.Command {
	var x executing
	cmd := &cobra.Command{
		Use: "exec [flags] -- COMMAND [ARG]...", Short: "Run another agent's hook in a hook's cage, on its own streams",
		Long: `Run a hook that speaks another agent's JSON, as Claude Code's do, in the cage of a hook: stdin, stdout and stderr are passed
through, and so is the exit code. It sees its own folder, the system's programs and libraries, and what --read and --write name; it
gets the variables that --env names, and reaches the hosts that --network names.

What cannot be caged, or does not end in its time, ends with exit code 2, which blocks where that agent lets a hook
block; with --pass it is 1.

An operator verb: where there is no terminal to ask on it wants BAILEY_OPERATOR=1 and --yes. The ledger's event hooks.exec
comes first.`,
		Example: `  BAILEY_OPERATOR=1 bailey hooks exec --yes --env CLAUDE_PROJECT_DIR -- ~/.claude/hooks/check.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 || len(args) == 0 || args[0] == "" {
				return &bailey.Error{Kind: bailey.Invalid, Message: "hooks exec wants -- and then a command", Hint: "write: bailey hooks exec -- ~/.claude/hooks/check.sh"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := a.execHook(cmd.Context(), x, args)
			switch {
			case err != nil && cli.SignalCode(err) == 0:
				a.PrintError(cli.Worded(err))
				code = x.failed()
			case err != nil:
				return err
			}
			if code != 0 {
				return cli.Exit(code)
			}
			return nil
		},
	}
	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		err := cli.ForInside(cmd, args)
		if err == nil {
			return nil
		}
		a.PrintError(err)
		return cli.Exit(x.failed()) // nothing runs in the agent jail, which must not count as consent
	}
	f := cmd.Flags()
	f.StringArrayVar(&x.env, "env", nil, "pass the variable `NAME` on; may be repeated")
	f.StringArrayVar(&x.read, "read", nil, "let it read `path`; may be repeated")
	f.StringArrayVar(&x.write, "write", nil, "let it write `path`; may be repeated")
	f.StringArrayVar(&x.network, "network", nil, "let it reach `host:port`; may be repeated")
	f.DurationVar(&x.timeout, "timeout", time.Minute, "end it after this time")
	f.BoolVar(&x.pass, "pass", false, "what cannot be run does not block: exit code 1")
	f.BoolVar(&x.yes, "yes", false, "do not ask")
	return cmd
}

// failed returns the exit code if the hook could not run.
func (x executing) failed() int {
	if x.pass {
		return 1
	}
	return 2
}

// hook returns the hook that the flags describe.
func (x executing) hook(argv []string) (h hook.Hook, err error) {
	h = hook.Hook{Event: hook.OnPreToolUse, Argv: argv, Timeout: x.timeout, Env: x.env}
	if h.Argv[0], err = program(argv[0]); err != nil {
		return h, err
	}
	if x.timeout <= 0 || x.timeout > hook.MaxTimeout {
		return h, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("--timeout %v", x.timeout), Hint: fmt.Sprintf("above zero and at most %v", hook.MaxTimeout)}
	}
	for _, name := range x.env {
		if wrong := hook.Variable(name); wrong != "" {
			return h, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("--env: %.64q %s", name, wrong), Hint: "name another, or none"}
		}
	}
	for _, list := range []struct {
		from []string
		to   *[]string
	}{{x.read, &h.Read}, {x.write, &h.Write}} {
		for _, path := range list.from {
			if path == "" {
				return h, &bailey.Error{Kind: bailey.Invalid, Message: "an empty path was given to --read or --write", Hint: "name a file or a directory"}
			}
			if path, err = filepath.Abs(path); err != nil {
				return h, err
			}
			*list.to = append(*list.to, path)
		}
	}
	for _, place := range x.network {
		e, err := bailey.ParseEndpoint(place)
		if err != nil {
			return h, err
		}
		h.Network = append(h.Network, e)
	}
	return h, nil
}

func (a *commands) execHook(ctx context.Context, x executing, argv []string) (int, error) {
	h, err := x.hook(append([]string(nil), argv...))
	if err != nil {
		return 0, err
	}
	op, err := cli.OperatorBeside(ctx, "hooks exec", "Run "+terminal.CutLine(strings.Join(argv, " "))+" in a cage, on these streams?", "nothing was run", x.yes)
	if err != nil {
		return 0, err
	}
	c, err := a.Client()
	if err != nil {
		return 0, err
	}
	y, err := a.openHookYard(ctx, c)
	if err != nil {
		return 0, err
	}
	defer y.close()
	run, lent, asked, err := y.chain(hook.Config{}, nil).Prepare(ctx, h)
	if err != nil {
		return 0, err
	}
	defer run.Close()
	ran := apitype.HooksRan{Argv: argv, Status: string(asked.Status), EnvNames: x.env, Cage: asked.Cage}
	if err := cli.Command(ctx, c, op, apitype.HooksNoteVerb, map[string]any{"kind": apitype.HooksExecEvent, "ran": ran}, &struct{}{}); err != nil {
		return 0, err
	}
	gentle, stop := gently(ctx)
	defer stop()
	e, err := run.Start(gentle, lent, bailey.Streams{Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr})
	switch {
	case err != nil:
		return 0, errors.Join(context.Cause(ctx), err)
	case e.TimedOut:
		return 0, &bailey.Error{Kind: bailey.ToolFailed, Message: fmt.Sprintf("%s did not end within %v, and was ended", argv[0], x.timeout), Hint: "--timeout bounds it"}
	case e.Over != "":
		return 0, &bailey.Error{Kind: bailey.ToolFailed, Message: e.Over + ", and was ended"}
	}
	return e.Code, nil
}
