package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policyfiles"
	"bailey/internal/redact"
	"bailey/internal/settings"
	"bailey/internal/terminal"
)

// initRun is a run of init: its flags, the changes that follow from them, and the report.
type initRun struct {
	*App
	client *localapi.Client
	op     localapi.Operator
	report initReport

	dir, scope  string // scope is "" if the flag is not given
	named       bool   // dir was given as an argument
	policy      string // to begin with, noStarting, or "" if the flag is not given
	apply, undo bool
	chosen      map[string]*bool // flags of the clients, by id
	clients     []agentClient    // chosen clients
}

// initReport is the JSON report.
type initReport struct {
	OK         bool                  `json:"ok"`
	Changed    bool                  `json:"changed"`
	Home       string                `json:"home"`
	Settings   string                `json:"settings,omitempty"`
	Digest     string                `json:"digest,omitempty"`
	Workspaces []string              `json:"workspaces,omitempty"`
	Redaction  redact.Config         `json:"redaction,omitzero"`
	Policy     *policyReport         `json:"policy,omitempty"` // the policy to begin with
	Clients    []clientReport        `json:"clients,omitempty"`
	Confined   bool                  `json:"confined"`         // never true: files that init writes confine no agent
	Agents     []apitype.AgentStatus `json:"agents,omitempty"` // confinement of each agent
}

// clientReport is the report about one file of a client.
type clientReport struct {
	Client     string `json:"client"`
	Scope      string `json:"scope"`
	File       string `json:"file"`
	Command    string `json:"command"`
	Configured bool   `json:"configured"`
}

// fileChange is a change of one file by init.
type fileChange struct {
	file string
	note string // summary in one line
	diff string
	make func(ctx context.Context) error
	undo func() error // if set, takes back what was written to find the difference
}

func (a *App) initVerb() *cobra.Command {
	i := &initRun{App: a}
	cmd := &cobra.Command{
		Use: "init [DIR]", Short: "Make a directory a workspace, and connect an agent",
		Long: `Make DIR, or the current directory, a workspace of this home: from then on, calls can use paths
only in the workspaces of the home. The command shows its changes and asks for confirmation.

With --claude-code it also connects Claude Code: it writes the MCP server into the project's .mcp.json, and
the hook that asks Bailey before each use of a tool into the project's .claude/settings.local.json, which is
not shared. --cursor, --codex and --opencode write the MCP server into the file that each of these clients
reads. With --scope user (the only scope of Codex) init writes the user's file, and adds no workspace unless
DIR is given. --undo removes exactly this configuration; workspaces stay.

--policy NAME also applies a policy to begin with, which must be the first of this home; at a terminal, init offers them:

  ` + strings.Join(policyfiles.DescribeStartings(), "\n  ") + `
  none  keep the policy in use

With --apply it applies a settings.yaml that was changed by hand.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return i.runInit(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.BoolVar(&i.apply, "apply", false, "apply a settings.yaml that was changed by hand")
	i.chosen = map[string]*bool{}
	for _, c := range agentClients() {
		i.chosen[c.id] = f.Bool(c.id, false, "write the configuration of "+c.name)
	}
	f.BoolVar(&i.undo, "undo", false, "with a client: remove what init wrote")
	f.StringVar(&i.scope, "scope", "", "with a client: `project or user`")
	f.StringVar(&i.policy, "policy", "", "the policy to begin with: `look, work, push` or none")
	return a.OperatorVerb(cmd)
}

func (i *initRun) runInit(ctx context.Context, args []string) (err error) {
	if err := i.parseArgs(args); err != nil {
		return err
	}
	if i.op, i.client, err = i.OperatorClient("init"); err != nil {
		return err
	}
	for range 100 { // another init may change the file after it was shown
		i.report = initReport{OK: true, Home: string(i.client.Home)}
		if err = i.applyOnce(ctx); !errors.Is(err, errMeanwhile) {
			break
		}
	}
	if err != nil {
		return err
	}
	if !i.undo {
		for _, c := range i.clients {
			i.report.Agents = append(i.report.Agents, checkAgent(ctx, c, i.dir, true))
		}
	}
	return i.printReport()
}

// errMeanwhile means that a file changed after it was shown.
var errMeanwhile = errors.New("it has changed since it was read")

// parseArgs parses the arguments and rejects combinations that make no sense.
func (i *initRun) parseArgs(args []string) (err error) {
	var flags []string
	i.clients = nil
	for _, c := range agentClients() {
		flags = append(flags, "--"+c.id)
		if *i.chosen[c.id] {
			i.clients = append(i.clients, c)
		}
	}
	wrong, none := "", len(i.clients) == 0
	switch {
	case i.undo && none:
		wrong = "--undo needs one of " + strings.Join(flags, ", ")
	case i.scope != "" && none:
		wrong = "--scope needs one of " + strings.Join(flags, ", ")
	case !slices.Contains([]string{"", "project", "user"}, i.scope):
		wrong = fmt.Sprintf("--scope must be project or user, not %q", i.scope)
	case i.policy != "" && (i.undo || i.apply):
		wrong = "--policy cannot be combined with --undo and --apply"
	case i.apply && (!none || len(args) > 0):
		wrong = "--apply cannot be combined with other flags"
	}
	if wrong != "" {
		return bailey.Invalid.New(wrong, "see bailey init --help")
	}
	if err := i.checkPolicyFlag(); err != nil {
		return err
	}
	i.dir, i.named = ".", len(args) == 1
	if i.named {
		i.dir = args[0]
	}
	i.dir, err = filepath.Abs(i.dir)
	return err
}

// applyOnce plans, shows, confirms and applies the changes.
func (i *initRun) applyOnce(ctx context.Context) error {
	changes, err := i.planChanges(ctx)
	if err != nil || len(changes) == 0 {
		return err
	}
	for _, c := range changes {
		i.Explain(c.String())
	}
	chosen := ""
	offers, err := i.offersPolicy(ctx)
	switch {
	case err == nil && offers:
		chosen, err = i.confirmWithPolicy(ctx)
	case err == nil:
		err = i.Confirm(ctx, "Write this?")
	}
	if err != nil {
		return undoChanges(changes, err)
	}
	for n, c := range changes {
		if err := c.make(ctx); err != nil {
			return undoChanges(changes[n:], err)
		}
		i.report.Changed = true
	}
	if chosen != "" {
		return i.applyChosenPolicy(ctx, chosen)
	}
	return nil
}

func (i *initRun) planChanges(ctx context.Context) (list []*fileChange, err error) {
	steps := []func(context.Context) (*fileChange, error){}
	ofProject := len(i.clients) == 0 || i.named
	for _, c := range i.clients {
		scope, err := c.resolveScope(i.scope)
		if err != nil {
			return nil, err
		}
		ofProject = ofProject || scope == "project"
		for _, p := range c.scopes[scope] {
			steps = append(steps,
				func(ctx context.Context) (*fileChange, error) { return i.planClientChange(ctx, c, scope, p) })
		}
	}
	switch {
	case i.apply:
		steps = append(steps, i.planApply)
	case !i.undo && ofProject:
		steps = slices.Insert(steps, 0, i.planWorkspace)
	}
	if i.policy != "" && i.policy != noStarting { // last, since it writes files for the comparison
		steps = append(steps, func(ctx context.Context) (*fileChange, error) { return i.planPolicy(ctx, i.policy) })
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
	if i.undo && len(list) == 0 {
		return nil, bailey.NotFound.New("nothing written by init is left to remove",
			"nothing to undo")
	}
	return list, nil
}

func (i *initRun) loadSettings(ctx context.Context, dir string) (st settings.State, err error) {
	st, err = apitype.ShowSettings.Ask(ctx, i.client, apitype.SettingsQuery{Dir: dir})
	i.report.Settings = st.File
	i.reportApplied(st.Applied)
	return st, err
}

// planWorkspace makes the directory a workspace, unless it is inside one.
func (i *initRun) planWorkspace(ctx context.Context) (*fileChange, error) {
	st, err := i.loadSettings(ctx, i.dir)
	for range 20 { // another init may have written the file, and not yet recorded that it is applied
		if err != nil || !st.Changed {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(25 * time.Millisecond):
		}
		st, err = i.loadSettings(ctx, i.dir)
	}
	switch {
	case err != nil:
		return nil, err
	case st.Changed:
		return nil, bailey.Conflict.New(st.File+" differs from what was applied",
			"run bailey init --apply to see the difference and apply it")
	}
	i.dir = st.Dir
	if st.Inside {
		return nil, nil
	}
	var old []byte
	if st.Digest != "" {
		old = []byte(st.Text)
	}
	now, err := settings.AddWorkspace(old, st.Dir)
	if err != nil {
		return nil, err
	}
	return &fileChange{file: st.File, note: "calls may use paths in " + terminal.CutLine(st.Dir),
		diff: terminal.Diff(st.Text, string(now)),
		make: func(ctx context.Context) error {
			text := string(now)
			return i.applySettings(ctx, apitype.SettingsRequest{Base: st.Digest, Text: &text})
		}}, nil
}

// planApply applies a settings file that was changed by hand.
func (i *initRun) planApply(ctx context.Context) (*fileChange, error) {
	st, err := i.loadSettings(ctx, "")
	switch {
	case err != nil:
		return nil, err
	case st.Fault != "":
		return nil, bailey.Invalid.New(st.Fault, cmp.Or(st.Cure, "correct the file, then run bailey init --apply"))
	case !st.Changed && st.Refusal == "":
		return nil, nil
	}
	note := "changed by hand"
	if st.Applied.Digest == "" {
		note = "is new"
	}
	if len(st.Workspaces) == 0 {
		note += "; without a workspace, it is the directory a client is started in"
	}
	diff := terminal.Diff(sortedLines(st.Applied.Workspaces), sortedLines(st.Workspaces)) +
		terminal.Diff(ruleLines(st.Applied.Redaction), ruleLines(st.Redaction)) +
		describeLoosened(st.Applied.Redaction, st.Redaction) +
		linesChange(st.Applied.Signers, st.Signers, signerLine, "a policy needs no signature any more") +
		linesChange(st.Applied.Approvers, st.Approvers, approverLine, "an answer needs no signature any more") +
		pagesChange(st.Applied.ControlPlanePages, st.ControlPlanePages) + brokerChange(st.Applied.Broker, st.Broker) + notifyChange(st.Applied.Notify, st.Notify) +
		networkChange(st.Applied.Network, st.Network) + agentsChange(st.Applied.Agents, st.Agents)
	return &fileChange{file: st.File, note: note, diff: diff,
		make: func(ctx context.Context) error { return i.applySettings(ctx, apitype.SettingsRequest{Base: st.Digest}) }}, nil
}

// sortedLines returns the workspaces, sorted, one per line.
func sortedLines(dirs []string) string {
	dirs = slices.Sorted(slices.Values(dirs))
	return strings.Join(dirs, "\n")
}

func (i *initRun) applySettings(ctx context.Context, r apitype.SettingsRequest) error {
	now, err := apitype.ApplySettings.Do(ctx, i.client, i.op, r)
	if errors.Is(err, bailey.Conflict) {
		return fmt.Errorf("%w: %w", errMeanwhile, err)
	}
	i.reportApplied(now)
	return err
}

func (i *initRun) reportApplied(a settings.Applied) {
	i.report.Digest, i.report.Workspaces, i.report.Redaction = a.Digest, a.Workspaces, a.Redaction
}

// printReport prints the report.
func (i *initRun) printReport() error {
	if i.JSON {
		return i.Print(i.report)
	}
	if !i.report.Changed {
		fmt.Fprintln(i.Stdout, "nothing to do: this table is already in use")
	}
	if i.report.Settings != "" {
		fmt.Fprintf(i.Stdout, "workspaces of %s:\n", terminal.CutLine(i.report.Home))
		for _, dir := range i.report.Workspaces {
			fmt.Fprintf(i.Stdout, "  %s\n", terminal.CutLine(dir))
		}
		if words := apitype.RuleCounts(i.report.Redaction); words != "" {
			fmt.Fprintf(i.Stdout, "redaction: %s; in use from the next session on\n", words)
		}
	}
	if p := i.report.Policy; p != nil {
		fmt.Fprintf(i.Stdout, "policy: %s; edit it in %s\n", p.Text, terminal.CutLine(p.Dir))
	}
	for _, c := range i.clients {
		i.sayClient(c)
	}
	for _, a := range i.report.Agents {
		fmt.Fprintf(i.Stdout, "%s: %s\n", a.Agent, terminal.CutLine(a.Words))
	}
	return nil
}

// sayClient prints the next step for the user.
func (i *initRun) sayClient(c agentClient) {
	for _, r := range i.report.Clients {
		switch {
		case r.Client != c.id:
			continue
		case !r.Configured:
			fmt.Fprintf(i.Stdout, "%s no longer finds Bailey by %s; workspaces stay\n", c.name,
				terminal.CutLine(r.File))
			continue
		}
		fmt.Fprintf(i.Stdout, c.finds+"\n", terminal.CutLine(r.File))
		if os.Getenv("BAILEY_HOME") != "" {
			fmt.Fprintf(i.Stdout, "BAILEY_HOME is set here: start %s with the same value\n", c.name)
		}
		return
	}
}
