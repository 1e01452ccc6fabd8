package main

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
	"bailey/internal/hooks"
	"bailey/internal/wire"
)

// hooksRunVerb is the command that runs the chain of an event, and its ledger event.
const hooksRunVerb = "hooks.run"

// chainRun is the result of a chain.
type chainRun struct {
	OK     bool          `json:"ok"` // not blocked
	Effect string        `json:"effect"`
	Frame  string        `json:"frame,omitempty"` // the resulting frame
	Reason string        `json:"reason,omitempty"`
	Hint   string        `json:"hint,omitempty"`
	Said   string        `json:"message,omitempty"` // message of the hooks to the user
	Hooks  []hooks.Asked `json:"hooks"`
}

func (a *app) hooksRun() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "run EVENT", Short: "Ask the hooks that were applied about a frame on stdin, and print what goes on",
		Long: `Read the frame of an event on stdin, ask the chain of the hooks that were applied, and print the frame that goes on. Exit code
2 where it is blocked, with the reason on stderr; else 0. With --json what each hook came to stands beside the frame.

An operator verb, which asks on the terminal wherever stdin and stdout lead, or wants BAILEY_OPERATOR=1 and --yes. The ledger has
it (hooks.run), with the event and what came of it.`,
		Example: `  echo '{"hook_event_name":"UserPromptSubmit","session_id":"s-1","cwd":"/","prompt":"hi"}' | bailey hooks run UserPromptSubmit`,
		Args:    oneArg("an event: " + eventNames()),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.runChain(cmd.Context(), args[0], yes) },
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) runChain(ctx context.Context, event string, yes bool) error {
	op, err := operatorBeside(ctx, "hooks run", "Ask the hooks about the frame on stdin?", "nobody was asked", yes)
	if err != nil {
		return err
	}
	frame, err := io.ReadAll(io.LimitReader(a.stdin, hook.MaxFrame+1)) // one byte over the limit makes Decode fail
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
	c, err := a.client()
	if err != nil {
		return err
	}
	var out chainRun
	if err := act(ctx, c, op, hooksRunVerb, map[string]any{"frame": base64.StdEncoding.EncodeToString(frame)}, &out); err != nil {
		return err
	}
	switch {
	case a.json:
		err = a.print(out)
	case out.OK:
		_, err = io.WriteString(a.stdout, out.Frame)
	}
	if err == nil && !out.OK {
		if !a.json {
			a.say("blocked", out.Reason, out.Hint)
		}
		return exit(exitInput)
	}
	return err
}

// runHooks is the command of hooksRunVerb.
func (s *stack) runHooks(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	if fault := s.hooks.book.Fault(); fault != nil {
		return nil, fault
	}
	frame, err := base64.StdEncoding.DecodeString(text(q.Args, "frame"))
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "a frame comes in base64", Err: err}
	}
	e, err := hook.Decode(frame)
	if err != nil {
		return nil, err
	}
	o, asked := s.hooks.askAll(ctx, e)
	out := chainRun{OK: o.Effect != hook.Blocked, Effect: o.Effect.String(), Reason: o.Reason, Hint: o.Hint, Said: o.Message, Hooks: asked}
	if out.OK {
		goes, err := hook.Encode(o.Event)
		if err != nil {
			return nil, err
		}
		out.Frame = string(goes)
	}
	data, err := s.hidden(from.Session.ID, map[string]any{"event": e.Name(), "session": e.In().ID, "effect": out.Effect, "hooks": len(asked),
		"operator": q.Operator, "person": from.Principal.Person})
	if err == nil {
		err = s.scribe.note(ctx, hooksRunVerb, data)
	}
	return out, err
}

// executing holds the flags of `hooks exec`.
type executing struct {
	env, read, write, network []string
	timeout                   time.Duration
	pass, yes                 bool
}

func (a *app) hooksExec() *cobra.Command {
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
			case err != nil && signalCode(err) == 0:
				a.complain(worded(err))
				code = x.failed()
			case err != nil:
				return err
			}
			if code != 0 {
				return exit(code)
			}
			return nil
		},
	}
	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		err := forInside(cmd, args)
		if err == nil {
			return nil
		}
		a.complain(err)
		return exit(x.failed()) // nothing runs in the agent jail, which must not count as consent
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

func (a *app) execHook(ctx context.Context, x executing, argv []string) (int, error) {
	h, err := x.hook(append([]string(nil), argv...))
	if err != nil {
		return 0, err
	}
	op, err := operatorBeside(ctx, "hooks exec", "Run "+visible(strings.Join(argv, " "))+" in a cage, on these streams?", "nothing was run", x.yes)
	if err != nil {
		return 0, err
	}
	c, err := a.client()
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
	ran := hooksRan{Argv: argv, Status: string(asked.Status), EnvNames: x.env, Cage: asked.Cage}
	if err := act(ctx, c, op, hooksNoteVerb, map[string]any{"kind": hooksExecEvent, "ran": ran}, &struct{}{}); err != nil {
		return 0, err
	}
	gentle, stop := gently(ctx)
	defer stop()
	e, err := run.Start(gentle, lent, bailey.Streams{Stdin: a.stdin, Stdout: a.stdout, Stderr: a.stderr})
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
