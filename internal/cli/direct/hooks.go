package direct

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/hook"
	"bailey/internal/cli"
	"bailey/internal/hooks"
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/server"
	"bailey/internal/settings"
	"bailey/internal/terminal"
	"bailey/internal/workspace"
)

func (a *commands) hooksRun() *cobra.Command {
	return a.YesFlag(&cobra.Command{
		Use: "run EVENT", Short: "Run the applied hooks on the frame on standard input, and print the result",
		Long: `Read the frame of an event from stdin, run the applied hooks on it, and print the resulting frame.
If a hook blocks it, the exit code is 2 and the reason is on stderr; otherwise it is 0. With --json each
hook's result is printed beside the frame.

This is an operator command: it asks on the terminal even if stdin and stdout are redirected, or needs
BAILEY_OPERATOR=1 and --yes. The ledger records it (hooks.run), with the event and the result.`,
		Example: `  echo '{"hook_event_name":"UserPromptSubmit","session_id":"s-1","cwd":"/","prompt":"hi"}' | bailey hooks run UserPromptSubmit`,
		Args:    cli.OneArg("an event: " + eventNames()),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.runChain(cmd.Context(), args[0]) },
	}, "do not ask for confirmation")
}

func (a *commands) runChain(ctx context.Context, event string) error {
	op, err := a.OperatorBeside(ctx, "hooks run", "Run the hooks on the frame on stdin?", "no hook was run")
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
		return bailey.Invalid.Errorf("use the event that hook_event_name states",
			"the frame is of %s, not of %s", e.Name(), event)
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	out, err := apitype.RunHooks.Do(ctx, c, op, apitype.HooksFrame{Frame: frame})
	if err != nil {
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

// hookExecFlags holds the flags of `hooks exec`.
type hookExecFlags struct {
	env, read, write, network []string
	timeout                   time.Duration
	pass                      bool
}

func (a *commands) hooksExec() *cobra.Command {
	var x hookExecFlags
	cmd := &cobra.Command{
		Use: "exec [flags] -- COMMAND [ARG]...", Short: "Run the hook of another agent in the jail of a hook",
		Long: `Run a hook written for another agent, such as Claude Code, in the jail of a hook: stdin, stdout,
stderr and the exit code are passed through. It sees its own folder, the system's programs and libraries, and
the paths of --read and --write; it gets the variables of --env, and reaches the hosts of --network.

If it cannot be jailed or times out, the exit code is 2, which blocks in agents that let a hook
block; with --pass it is 1.

This is an operator command: without a terminal it needs BAILEY_OPERATOR=1 and --yes. The ledger records
hooks.exec first.`,
		Example: `  BAILEY_OPERATOR=1 bailey hooks exec --yes --env CLAUDE_PROJECT_DIR -- ~/.claude/hooks/check.sh`,
		Args: cli.CheckArgs(func(cmd *cobra.Command, args []string) bool {
			return startsWithDash(cmd, args) && args[0] != ""
		}, "hooks exec needs -- and then a command", "use: bailey hooks exec -- ~/.claude/hooks/check.sh"),
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := a.execHook(cmd.Context(), x, args)
			switch {
			case err != nil && cli.SignalCode(err) == 0:
				a.PrintError(cli.Worded(err))
				code = x.failureCode()
			case err != nil:
				return err
			}
			return cli.ExitUnless(code == 0, cli.Exit(code), nil)
		},
	}
	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		err := cli.ForInside(cmd, args)
		if err == nil {
			return nil
		}
		a.PrintError(err)
		return cli.Exit(x.failureCode()) // nothing runs in the agent jail, which must not count as consent
	}
	f := cmd.Flags()
	f.StringArrayVar(&x.env, "env", nil, "pass on the variable `NAME`; may be repeated")
	f.StringArrayVar(&x.read, "read", nil, "let it read `path`; may be repeated")
	f.StringArrayVar(&x.write, "write", nil, "let it write `path`; may be repeated")
	f.StringArrayVar(&x.network, "network", nil, "let it reach `host:port`; may be repeated")
	f.DurationVar(&x.timeout, "timeout", time.Minute, "end it after this time")
	f.BoolVar(&x.pass, "pass", false, "exit with code 1, which does not block, if it cannot be run")
	return a.YesFlag(cmd, "do not ask for confirmation")
}

// failureCode returns the exit code if the hook could not run.
func (x hookExecFlags) failureCode() int {
	if x.pass {
		return 1
	}
	return 2
}

// buildHook returns the hook that the flags describe.
func (x hookExecFlags) buildHook(argv []string) (h hook.Hook, err error) {
	h = hook.Hook{Event: hook.OnPreToolUse, Argv: argv, Timeout: x.timeout, Env: x.env}
	if h.Argv[0], err = programPath(argv[0]); err != nil {
		return h, err
	}
	if x.timeout <= 0 || x.timeout > hook.MaxTimeout {
		return h, bailey.Invalid.Errorf(fmt.Sprintf("above zero and at most %v", hook.MaxTimeout),
			"--timeout %v", x.timeout)
	}
	for _, name := range x.env {
		if wrong := hook.Variable(name); wrong != "" {
			return h, bailey.Invalid.Errorf("use another name, or remove it", "--env: %.64q %s", name, wrong)
		}
	}
	for _, list := range []struct {
		from []string
		to   *[]string
	}{{x.read, &h.Read}, {x.write, &h.Write}} {
		for _, path := range list.from {
			if path == "" {
				return h, bailey.Invalid.New("an empty path was given to --read or --write",
					"name a file or a directory")
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

func (a *commands) execHook(ctx context.Context, x hookExecFlags, argv []string) (int, error) {
	h, err := x.buildHook(append([]string(nil), argv...))
	if err != nil {
		return 0, err
	}
	op, err := a.OperatorBeside(ctx, "hooks exec",
		"Run "+terminal.CutLine(strings.Join(argv, " "))+" in a jail, on these streams?", "nothing was run")
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
	defer y.cages.Close()
	run, lent, asked, err := y.newDispatcher(hook.Config{}, nil).Prepare(ctx, h)
	if err != nil {
		return 0, err
	}
	defer run.Close()
	ran := apitype.HooksRan{Argv: argv, Status: string(asked.Status), EnvNames: x.env, Cage: asked.Cage}
	if _, err := apitype.NoteHooks.Do(ctx, c, op,
		apitype.HooksNote{Kind: apitype.HooksExecEvent, Ran: ran}); err != nil {
		return 0, err
	}
	gentle, stop := gracefulContext(ctx)
	defer stop()
	e, err := run.Start(gentle, lent, bailey.Streams{Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr})
	switch {
	case err != nil:
		return 0, errors.Join(context.Cause(ctx), err)
	case e.TimedOut:
		return 0, bailey.ToolFailed.Errorf("raise --timeout, or make it faster",
			"%s did not end within %v and was killed", argv[0], x.timeout)
	case e.Over != "":
		return 0, bailey.ToolFailed.New(e.Over+", and was killed", "")
	}
	return e.Code, nil
}

// hookTrial is the JSON result of one hook.
type hookTrial struct {
	hooks.Asked
	Line    int    `json:"line"`
	Frame   string `json:"frame"` // the input of the hook
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	Goes    string `json:"goes,omitempty"`   // the resulting frame, if changed
	Blocks  bool   `json:"blocks,omitempty"` // its failure would block
	Problem bool   `json:"problem"`          // it failed
}

type hookTestResult struct {
	OK    bool        `json:"ok"` // no hook failed
	File  string      `json:"file"`
	Hooks []hookTrial `json:"hooks"`
}

// hookTestFlags holds the flags and arguments of `hooks test`.
type hookTestFlags struct {
	file, frame string
	only        []string
}

func (a *commands) hooksTest() *cobra.Command {
	var t hookTestFlags
	cmd := &cobra.Command{
		Use: "test [EVENT|NUMBER]...", Short: "Run the hooks of a file, and show the request, the answer and the result of each",
		Long: `Run each hook of hooks.json, or the hooks of given events or numbers, with a frame of its event,
in its jail. The file need not be applied, and is not applied. The output shows the frame, the hook's stdout
and stderr, its exit code, time and status, and the resulting decision. Exit code 1 if one of them failed.

Without --frame, a sample frame is used: of a call of git.status, or of a tool that the matcher matches.

This is an operator command: it needs a terminal, or BAILEY_OPERATOR=1 and --yes. The ledger
records hooks.test first.`,
		Example: "  bailey hooks test\n  bailey hooks test PreToolUse --frame push.json\n  bailey hooks test --file ./hooks.json 2",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			t.only = args
			return a.testHooks(cmd.Context(), t)
		},
	}
	f := cmd.Flags()
	f.StringVar(&t.file, "file", "", "the hooks.json to test, a `file` instead of that of the home")
	f.StringVar(&t.frame, "frame", "", "use the frame in this `file`; hooks of other events are left out")
	return a.YesFlag(cmd, noTerminalFlag)
}

func (a *commands) testHooks(ctx context.Context, t hookTestFlags) error {
	op, c, err := a.OperatorClient("hooks test")
	if err != nil {
		return err
	}
	text, config, err := t.readHooks(c.Home)
	if err != nil {
		return err
	}
	events, err := t.eventsByHook(config)
	if err != nil {
		return err
	}
	if err := a.confirmRights(ctx, config, events); err != nil {
		return err
	}
	y, err := a.openHookYard(ctx, c)
	if err != nil {
		return err
	}
	defer y.cages.Close()
	note := apitype.HooksNote{Kind: apitype.HooksTestEvent,
		Ran: apitype.HooksRan{Digest: apitype.FileDigest(text), Hooks: len(events)}}
	if _, err := apitype.NoteHooks.Do(ctx, c, op, note); err != nil {
		return err
	}
	out := hookTestResult{OK: true, File: t.file, Hooks: []hookTrial{}}
	for i, h := range config.Hooks {
		if e := events[i]; e != nil {
			trial := y.tryHook(ctx, i, h, e)
			out.OK = out.OK && !trial.Problem
			if out.Hooks = append(out.Hooks, trial); !a.JSON {
				a.showTrial(trial)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return cli.ExitUnless(out.OK, apitype.ExitDenied, a.PrintLine(out, ""))
}

// confirmRights asks for confirmation if a hook has more rights than the default: another user may have written the file.
func (a *commands) confirmRights(ctx context.Context, c hook.Config, events map[int]hook.Event) error {
	asks := false
	for i, h := range c.Hooks {
		if events[i] == nil || a.Yes {
			continue
		}
		for _, line := range apitype.Loud(h) {
			asks = true
			fmt.Fprintf(a.Dialog(), "  ! %s\n", terminal.CutLine(line))
		}
	}
	if !asks {
		return nil
	}
	return a.Confirm(ctx, "Run them?")
}

// readHooks returns the file to test.
func (t *hookTestFlags) readHooks(home localapi.Home) (text []byte, c hook.Config, err error) {
	if t.file == "" {
		t.file = filepath.Join(string(home), apitype.HooksName)
	}
	if text, err = safefile.ReadPlain(t.file, hook.MaxFrame); err != nil {
		return nil, c, err
	}
	if text == nil {
		return nil, c, bailey.NotFound.New("there is no "+t.file, "see docs/hooks.md, or give --file")
	}
	userHome, _ := os.UserHomeDir() // "" if unknown: no path may begin with ~/
	c, err = hook.ParseConfig(text, userHome)
	return text, c, err
}

// eventsByHook returns the event for each hook, by index. A hook that is not tested has no event.
func (t hookTestFlags) eventsByHook(c hook.Config) (map[int]hook.Event, error) {
	var given hook.Event
	if t.frame != "" {
		frame, err := safefile.ReadPlain(t.frame, hook.MaxFrame)
		if err == nil && frame == nil {
			err = bailey.NotFound.New("there is no "+t.frame, "give --frame a file that contains the frame of an event")
		}
		if err != nil {
			return nil, err
		}
		if given, err = hook.Decode(frame); err != nil {
			return nil, err
		}
	}
	for _, word := range t.only {
		n, err := strconv.Atoi(word)
		if err == nil && n > 0 && n <= len(c.Hooks) || slices.Contains(hook.Names(), hook.Name(word)) {
			continue
		}
		return nil, bailey.Invalid.Errorf("use an event, one of "+eventNames(),
			"%q is neither an event nor a number of the file's %s", word, apitype.Counts(len(c.Hooks), "hook"))
	}
	events := map[int]hook.Event{}
	for i, h := range c.Hooks {
		if len(t.only) > 0 && !slices.Contains(t.only, string(h.Event)) && !slices.Contains(t.only, strconv.Itoa(i+1)) {
			continue
		}
		switch {
		case given == nil:
			events[i] = Sample(h)
		case h.Matches(given):
			events[i] = given
		}
	}
	if len(events) == 0 {
		return nil, bailey.NotFound.New("no hook of "+t.file+" is run for that",
			"run bailey hooks list to show them")
	}
	return events, nil
}

func eventNames() string {
	var names []string
	for _, n := range hook.Names() {
		names = append(names, string(n))
	}
	return strings.Join(names, ", ")
}

// Sample returns an event that the hook matches.
func Sample(h hook.Hook) hook.Event {
	in := hook.Session{ID: "s-test", Dir: "/src"}
	tool := "git.status"
	if h.Matcher != "" && !h.Matches(hook.PreToolUse{ToolName: tool}) && !h.Matches(hook.PostToolUse{ToolName: tool}) {
		tool = strings.NewReplacer("*", "x", "?", "x").Replace(h.Matcher)
	}
	input := map[string]any{"path": "/src"}
	switch h.Event {
	case hook.OnUserPromptSubmit:
		return hook.UserPromptSubmit{Session: in, Prompt: "Which files changed since yesterday?"}
	case hook.OnAssistantMessageRender:
		return hook.AssistantMessageRender{Session: in, Content: "Two files changed since yesterday."}
	case hook.OnPreToolUse:
		return hook.PreToolUse{Session: in, ToolName: tool, ToolInput: input}
	case hook.OnPostToolUse:
		return hook.PostToolUse{Session: in, ToolName: tool, ToolInput: input,
			ToolResult: map[string]any{"stdout": "On branch main\n", "stderr": "", "exitCode": 0}}
	case hook.OnSessionEnd:
		return hook.SessionEnd{Session: in}
	}
	return hook.SessionStart{Session: in}
}

// hookRunner lets the command line run hooks itself, with separate cages and the network access that the settings permit.
type hookRunner struct {
	cages *jail.Jail
	ways  server.EgressPlanner
	masks []string
	held  []string
}

func (a *commands) openHookYard(ctx context.Context, c *localapi.Client) (*hookRunner, error) {
	st, err := apitype.ShowSettings.Ask(ctx, c, apitype.SettingsQuery{})
	if err != nil {
		return nil, err
	}
	y := &hookRunner{ways: server.EgressPlanner{Settings: func() settings.Network { return st.Applied.Network }},
		masks: workspace.Masks(string(c.Home), workspace.Homes()), held: st.Applied.Workspaces}
	y.cages, err = server.OpenJail(y.masks, nil)
	return y, err
}

// newDispatcher returns a dispatcher for the hooks of a config in these cages.
func (y *hookRunner) newDispatcher(c hook.Config, ear *hookOutput) *hooks.Dispatcher {
	d := server.NewChain(hooks.Config{Applied: func() hook.Config { return c }, Cages: y.cages}, y.ways, y.masks,
		func() []string { return y.held })
	if ear != nil {
		if d.Cages != nil {
			d.Cages = recordingRunner{d.Cages, ear}
		}
		d.Bare = recordingRunner{d.Bare, ear}
	}
	return d
}

// tryHook runs one hook. A failure must be distinguishable from a denial, so a failing hook does not block here.
func (y *hookRunner) tryHook(ctx context.Context, i int, h hook.Hook, e hook.Event) hookTrial {
	frame, _ := hook.Encode(e) // cannot fail: e was decoded or is a sample
	heard := &hookOutput{}
	blocks := h.OnFailure == hook.Block || h.OnFailure == "" && h.Event == hook.OnPreToolUse
	h.OnFailure = hook.Pass
	o, asked := y.newDispatcher(hook.Config{Hooks: []hook.Hook{h}}, heard).Ask(ctx, e)
	t := hookTrial{Line: h.Line, Frame: string(frame), Problem: true}
	if len(asked) == 1 {
		t.Asked, t.Problem = asked[0], asked[0].Effect == hook.Failed.String()
	}
	t.Hook, t.Blocks = i+1, t.Problem && blocks
	stdout, _ := heard.stdout.Kept()
	stderr, _ := heard.stderr.Kept()
	t.Stdout, t.Stderr = string(stdout), string(stderr)
	if o.Effect != hook.Changed {
		return t
	}
	if err := checkToolResult(e, o.Event); err != nil { // a real call would be refused
		t.Problem, t.Blocks = true, true
		t.Asked.Effect, t.Asked.Reason, t.Asked.Hint = hook.Failed.String(), err.Error(), bailey.HintOf(err)
		return t
	}
	if goes, err := hook.Encode(o.Event); err == nil {
		t.Goes = string(goes)
	}
	return t
}

// checkToolResult returns an error if the gateway would not accept the result of a tool that a hook returned. The result of
// an agent's own tool may have any form.
func checkToolResult(before, after hook.Event) error {
	was, ok := before.(hook.PostToolUse)
	is, changed := after.(hook.PostToolUse)
	if !ok || !changed {
		return nil
	}
	result, _ := was.ToolResult.(map[string]any)
	code, ok := result["exitCode"].(json.Number)
	n, err := code.Int64()
	if !ok || err != nil {
		return nil
	}
	return server.CheckResult(is.ToolResult, int(n))
}

// hookOutput records the output of a hook for its author.
type hookOutput struct{ stdout, stderr hook.Output }

// recordingRunner is a runner that records output in an ear.
type recordingRunner struct {
	bailey.Runner
	ear *hookOutput
}

func (o recordingRunner) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	r, err := o.Runner.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	return recordingRun{r, o.ear}, nil
}

type recordingRun struct {
	bailey.Run
	ear *hookOutput
}

func (r recordingRun) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	s.Stdout, s.Stderr = teeWriter{s.Stdout, &r.ear.stdout}, teeWriter{s.Stderr, &r.ear.stderr}
	return r.Run.Start(ctx, lent, s)
}

// teeWriter writes to two writers. The second always gets all the data.
type teeWriter struct{ to, also io.Writer }

func (b teeWriter) Write(p []byte) (int, error) {
	b.also.Write(p)
	return b.to.Write(p)
}

func (a *commands) showTrial(t hookTrial) {
	fmt.Fprintf(a.Stdout, "hook %d, %s: %s\n", t.Hook, t.Event, terminal.CutLine(t.Program))
	for _, part := range []struct{ name, text string }{{"asked", t.Frame}, {"stdout", t.Stdout}, {"stderr", t.Stderr}} {
		for i, line := range terminal.SplitLines(part.text) {
			if i > 0 {
				part.name = ""
			}
			fmt.Fprintf(a.Stdout, "  %-7s %s\n", part.name, terminal.CutLine(line))
		}
	}
	status := string(t.Status)
	if status == "" {
		status = "not started"
	}
	fmt.Fprintf(a.Stdout, "  %-7s exit code %d after %d ms, %s\n", "ended", t.Exit, t.Millis, status)
	fmt.Fprintf(a.Stdout, "  %-7s %s\n", t.Effect, terminal.CutLine(t.effectText()))
	if t.Hint != "" {
		fmt.Fprintf(a.Stdout, "          → %s\n", terminal.Shown(t.Hint))
	}
	for _, w := range t.Warning {
		if w.Kind != "hook.failed" {
			fmt.Fprintf(a.Stdout, "  %-7s %s: %s\n", "warning", w.Kind, terminal.CutLine(w.Text))
			if w.Hint != "" {
				fmt.Fprintf(a.Stdout, "          → %s\n", terminal.Shown(w.Hint))
			}
		}
	}
}

// effectText describes the effect of the hook.
func (t hookTrial) effectText() string {
	switch {
	case t.Blocks:
		return t.Reason + "; in use, this blocks"
	case t.Goes != "":
		return "goes on as " + strings.TrimSuffix(t.Goes, "\n")
	case t.Reason != "":
		return t.Reason
	case t.Message != "":
		return "goes on unchanged: " + t.Message
	}
	return "goes on unchanged"
}
