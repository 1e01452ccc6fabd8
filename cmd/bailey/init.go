package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/redact"
)

// walkAround is what no configuration of this version changes.
const walkAround = "this agent can walk around the gate: its own shell is not confined by this version"

// initial is one init on its way: what was asked for, the changes that follow, and what is reported.
type initial struct {
	*app
	client *gateway.Client
	op     gateway.Operator
	report initReport

	dir, scope               string
	named                    bool // dir was given in words
	yes, apply, claude, undo bool
}

// initReport is the answer, as JSON.
type initReport struct {
	OK         bool          `json:"ok"`
	Changed    bool          `json:"changed"`
	Home       string        `json:"home"`
	Settings   string        `json:"settings,omitempty"`
	Digest     string        `json:"digest,omitempty"`
	Workspaces []string      `json:"workspaces,omitempty"`
	Redaction  redact.Config `json:"redaction,omitzero"`
	Claude     *claudeReport `json:"claudeCode,omitempty"`
	Confined   bool          `json:"confined"`
	Notice     string        `json:"notice,omitempty"`
}

type claudeReport struct {
	Scope      string `json:"scope"`
	File       string `json:"file"`
	Command    string `json:"command"`
	Configured bool   `json:"configured"`
}

// change is one file that init would write.
type change struct {
	file string
	note string // what it comes to, a line
	diff string
	make func(ctx context.Context) error
}

func (a *app) initVerb() *cobra.Command {
	i := &initial{app: a}
	cmd := &cobra.Command{
		Use: "init [DIR]", Short: "Make a directory a workspace, and connect an agent",
		Long: `Make DIR, or the current directory, a workspace of this home: from then on calls name paths in the
home's workspaces and nowhere else. Shows what it will write, and asks.

With --claude-code it also connects Claude Code, by the project's .mcp.json; with --scope user by
~/.claude.json, and then without a workspace unless DIR is given. --undo takes exactly that
configuration away again; workspaces stay.

With --apply it puts a settings.yaml to use that was changed by hand.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return i.run(cmd.Context(), cmd.Flags().Changed("scope"), args)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&i.yes, "yes", false, "do not ask")
	f.BoolVar(&i.apply, "apply", false, "apply a settings.yaml that was changed by hand")
	f.BoolVar(&i.claude, "claude-code", false, "write the MCP configuration of Claude Code")
	f.BoolVar(&i.undo, "undo", false, "with --claude-code: remove what it wrote")
	f.StringVar(&i.scope, "scope", "project", "with --claude-code: `project or user`")
	return cmd
}

func (i *initial) run(ctx context.Context, scoped bool, args []string) (err error) {
	if err := i.fit(scoped, args); err != nil {
		return err
	}
	if i.op, err = i.operator("init", i.yes); err != nil {
		return err
	}
	if i.client, err = i.app.client(); err != nil {
		return err
	}
	for range 100 { // another init may come between what was shown and what is written
		i.report = initReport{OK: true, Home: string(i.client.Home)}
		if err = i.once(ctx); !errors.Is(err, errMeanwhile) {
			break
		}
	}
	if err != nil {
		return err
	}
	return i.say()
}

// errMeanwhile says that a file is no longer what was shown.
var errMeanwhile = errors.New("it changed meanwhile")

// fit reads the words and refuses those that do not go together.
func (i *initial) fit(scoped bool, args []string) (err error) {
	wrong := ""
	switch {
	case i.undo && !i.claude:
		wrong = "--undo goes with --claude-code"
	case scoped && !i.claude:
		wrong = "--scope goes with --claude-code"
	case i.scope != "project" && i.scope != "user":
		wrong = fmt.Sprintf("the scope is project or user, not %q", i.scope)
	case i.apply && (i.claude || len(args) > 0):
		wrong = "--apply stands alone"
	}
	if wrong != "" {
		return &bailey.Error{Kind: bailey.Invalid, Message: wrong, Hint: "bailey init --help"}
	}
	i.dir, i.named = ".", len(args) == 1
	if i.named {
		i.dir = args[0]
	}
	i.dir, err = filepath.Abs(i.dir)
	return err
}

// once plans, shows, asks and does.
func (i *initial) once(ctx context.Context) error {
	changes, err := i.plan(ctx)
	if err != nil || len(changes) == 0 {
		return err
	}
	if !i.yes || !i.json {
		for _, c := range changes {
			fmt.Fprintf(i.dialog(), "%s: %s\n%s", visible(c.file), c.note, c.diff)
		}
	}
	if !i.yes {
		if err := i.confirm(ctx, "Write this?"); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if err := c.make(ctx); err != nil {
			return err
		}
		i.report.Changed = true
	}
	return nil
}

func (i *initial) plan(ctx context.Context) (list []*change, err error) {
	steps := []func(context.Context) (*change, error){}
	switch {
	case i.apply:
		steps = append(steps, i.applied)
	case !i.undo && (i.named || !i.claude || i.scope == "project"):
		steps = append(steps, i.workspace)
	}
	if i.claude {
		steps = append(steps, i.claudeCode)
	}
	for _, step := range steps {
		c, err := step(ctx)
		if err != nil {
			return nil, err
		}
		if c != nil {
			list = append(list, c)
		}
	}
	return list, nil
}

func (i *initial) state(ctx context.Context, dir string) (st gateway.SettingsState, err error) {
	err = i.client.Look(ctx, gateway.Query{Verb: "settings", Args: map[string]any{"dir": dir}}, &st)
	i.report.Settings = st.File
	i.holds(st.Applied)
	return st, err
}

// workspace makes the directory one, unless it lies in one.
func (i *initial) workspace(ctx context.Context) (*change, error) {
	st, err := i.state(ctx, i.dir)
	switch {
	case err != nil:
		return nil, err
	case st.Changed:
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: st.File + " is not what was applied last", Hint: "bailey init --apply shows the difference and applies it"}
	}
	i.dir = st.Dir
	if st.Inside {
		return nil, nil
	}
	var old []byte
	if st.Digest != "" {
		old = []byte(st.Text)
	}
	now, err := gateway.AddWorkspace(old, st.Dir)
	if err != nil {
		return nil, err
	}
	return &change{file: st.File, note: "calls may name paths in " + visible(st.Dir), diff: difference(st.Text, string(now)),
		make: func(ctx context.Context) error {
			return i.put(ctx, map[string]any{"base": st.Digest, "text": string(now)})
		}}, nil
}

// applied puts a file to use that was changed by hand.
func (i *initial) applied(ctx context.Context) (*change, error) {
	st, err := i.state(ctx, "")
	switch {
	case err != nil:
		return nil, err
	case st.Fault != "":
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: st.Fault, Hint: cmp.Or(st.Cure, "correct the file, then bailey init --apply")}
	case !st.Changed && st.Refusal == "":
		return nil, nil
	}
	note := "changed by hand"
	if st.Applied.Digest == "" {
		note = "is new"
	}
	if len(st.Workspaces) == 0 {
		note += "; without a workspace, the directory a client is started in is the one"
	}
	diff := difference(listed(st.Applied.Workspaces), listed(st.Workspaces)) +
		difference(ruleLines(st.Applied.Redaction), ruleLines(st.Redaction)) + loosened(st.Applied.Redaction, st.Redaction) +
		signerChange(st.Applied.Signers, st.Signers) + approverChange(st.Applied.Approvers, st.Approvers) +
		brokerChange(st.Applied.Broker, st.Broker) + notifyChange(st.Applied.Notify, st.Notify) + networkChange(st.Applied.Network, st.Network)
	return &change{file: st.File, note: note, diff: diff,
		make: func(ctx context.Context) error { return i.put(ctx, map[string]any{"base": st.Digest}) }}, nil
}

// listed is a list of workspaces, sorted, a line each.
func listed(dirs []string) string {
	dirs = slices.Sorted(slices.Values(dirs))
	return strings.Join(dirs, "\n")
}

func (i *initial) put(ctx context.Context, args map[string]any) error {
	var now gateway.Applied
	err := act(ctx, i.client, i.op, "apply", args, &now)
	if errors.Is(err, bailey.Conflict) {
		return fmt.Errorf("%w: %w", errMeanwhile, err)
	}
	i.holds(now)
	return err
}

func (i *initial) holds(a gateway.Applied) {
	i.report.Digest, i.report.Workspaces, i.report.Redaction = a.Digest, a.Workspaces, a.Redaction
}

// say reports what was done, and what it is not.
func (i *initial) say() error {
	if i.claude && !i.undo {
		i.report.Notice = walkAround
	}
	if i.json {
		return i.print(i.report)
	}
	if !i.report.Changed {
		fmt.Fprintln(i.stdout, "nothing changes: it is so already")
	}
	if i.report.Settings != "" {
		fmt.Fprintf(i.stdout, "workspaces of %s:\n", visible(i.report.Home))
		for _, dir := range i.report.Workspaces {
			fmt.Fprintf(i.stdout, "  %s\n", visible(dir))
		}
		if words := ruleCounts(i.report.Redaction); words != "" {
			fmt.Fprintf(i.stdout, "redaction: %s; it holds from the next session on\n", words)
		}
	}
	if c := i.report.Claude; c != nil && c.Configured {
		fmt.Fprintf(i.stdout, "Claude Code finds Bailey by %s: start claude there once and accept the server, then claude mcp list says it is connected\n", visible(c.File))
		if os.Getenv("BAILEY_HOME") != "" {
			fmt.Fprintln(i.stdout, "BAILEY_HOME is set here: Claude Code has to be started with the same")
		}
	} else if c != nil {
		fmt.Fprintln(i.stdout, "Claude Code no longer finds Bailey by "+visible(c.File)+"; workspaces stay")
	}
	if i.report.Notice != "" {
		fmt.Fprintln(i.stdout, i.report.Notice)
	}
	return nil
}
