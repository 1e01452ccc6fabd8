package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/jail"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// finding is the result of one test of the doctor.
type finding struct {
	Name  string `json:"name"`
	State state  `json:"state"`
	Tried string `json:"tried"`          // the test and its result
	Cure  string `json:"cure,omitempty"` // empty only if the state is ok or info
}

// state is the severity of a finding. Only missing sets the exit code to 1, because calls fail without it.
type state string

const (
	good    state = "ok"
	info    state = "info" // a matter of choice, for example a missing tool
	warning state = "warning"
	missing state = "missing"
)

type findings struct {
	OK       bool      `json:"ok"` // no finding is missing
	Findings []finding `json:"findings"`
}

func (a *app) doctorVerb() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Test what calls need by using it, and say what cures what is missing", Args: cobra.NoArgs,
		Long: `Test everything a call needs by using it: the home, the gateway, the ledger's disk, each layer of the cage, the
tools, and the client's side. It starts no gateway; what it writes to try the disk, it takes away again. Exit code 1 when something that calls need is missing; a warning is no reason to fail.`,
		PreRun: a.warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := wire.FindHome()
			if err != nil {
				return err
			}
			report, err := examine(cmd.Context(), home)
			if err != nil {
				return err
			}
			if err := a.diagnosis(report); err != nil {
				return err
			}
			if !report.OK {
				return exit(exitDenied)
			}
			return nil
		},
	}
}

func (a *app) diagnosis(r findings) error {
	if a.json {
		return a.print(r)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.State, f.Name, terminal.Shown(f.Tried))
		if f.Cure != "" {
			fmt.Fprintf(w, "\t\t→ %s\n", terminal.Shown(f.Cure))
		}
	}
	return w.Flush()
}

func examine(ctx context.Context, home wire.Home) (findings, error) {
	here, err := os.Getwd()
	if err != nil {
		return findings{}, err
	}
	s, asked := askStatus(ctx, home, statusPatience)
	found := []finding{examineHome(home), examineGateway(s, asked)}
	if found[0].State == good {
		found = append(found, examineSocket(home)...)
	}
	found = append(found, examineLedger(home)...)
	found = append(found, examinePolicy(home, s)...)
	found = append(found, examineHooks(home, s)...)
	found = append(found, examinePacks(home, s)...)
	found = append(found, examineRedaction(home, s)...)
	found = append(found, examineProfiles(home, s)...)
	found = append(found, examineBroker(s)...)
	found = append(found, examineNotify(s)...)
	found = append(found, examineShims(home)...)
	cages, tools := examineCages(ctx)
	found = append(append(found, cages...), tools...)
	found = append(found, examineWorkspace(home, here, s), examineProgram(), examineNode(ctx), examineClaude(here))
	found = append(found, examineAgents(tryAgents(ctx, newAgentStatus(nil), here, s.Running, true))...)
	return findings{OK: !slices.ContainsFunc(found, func(f finding) bool { return f.State == missing }), Findings: found}, ctx.Err()
}

// wrong returns a finding about an error, with the hint of the error as the cure.
func wrong(name string, s state, tried string, err error) finding {
	cure := bailey.HintOf(err)
	if cure == "" {
		cure = "docs/operations.md lists errors and their cures"
	}
	return finding{name, s, tried + ": " + err.Error(), cure}
}

func examineGateway(s status, err error) finding {
	const tried = "asked it for its status"
	switch {
	case bailey.KindOf(err) == bailey.Invalid: // it does not know the verb
		return wrong("gateway", warning, tried, err)
	case err != nil:
		return wrong("gateway", missing, tried, err)
	case !s.Running:
		return finding{"gateway", good, "none is running; the next call starts one, if nothing here is missing", ""}
	case s.Gateway.Version != version:
		return finding{"gateway", warning, fmt.Sprintf("%s: it is version %s, this program is %s", tried, s.Gateway.Version, version),
			"bailey gateway stop ends it; the next call starts this version"}
	}
	return finding{"gateway", good, fmt.Sprintf("%s: pid %d, version %s, protocol %d", tried, s.Gateway.PID, s.Gateway.Version, s.Gateway.Protocol), ""}
}

// examineCages builds cages for this program, as a gateway that it starts would, and plans a cage for each tool of the
// built-in packs.
func examineCages(ctx context.Context) (cages, tools []finding) {
	cages, tools = []finding{}, []finding{}
	j, err := jail.New(jail.Config{})
	if err != nil {
		return append(cages, wrong("cage", missing, "made a jail", err)), tools
	}
	defer j.Close()
	if jail.Bare {
		cages = append(cages, bareFinding())
	}
	for _, l := range j.Diagnose(ctx) {
		cages = append(cages, newCageFinding(l))
	}
	catalog, err := builtIn()
	if err != nil {
		return cages, append(tools, wrong("packs", missing, "read the built-in packs", err))
	}
	var commands []string
	for _, m := range catalog.All() {
		if m.Command != "" { // empty for tools that agents run themselves
			command := m.Command
			if at := slices.IndexFunc(m.Programs(), j.Installed); at >= 0 {
				command = m.Programs()[at]
			}
			commands = append(commands, command)
		}
	}
	slices.Sort(commands)
	var absent []string
	for _, command := range slices.Compact(commands) {
		if !j.Installed(command) {
			absent = append(absent, command)
			continue
		}
		tools = append(tools, examineTool(ctx, j, command))
	}
	if len(absent) > 0 { // optional: only users of their capabilities need them
		tools = append(tools, finding{"tools", info, "looked where cages look for programs: not here are " + strings.Join(absent, ", ") + ", and agents are not offered what runs them", ""})
	}
	return cages, tools
}

func newCageFinding(l jail.Layer) finding {
	name := "cage " + l.Name
	switch {
	case l.Err == nil:
		return finding{name, good, l.How, ""}
	// For cgroup and full, another finding covers the substitute. The built-in packs do not need proc-private.
	case l.Name == "proc-private", l.Name == "cgroup", l.Name == "full":
		return wrong(name, warning, l.How, l.Err)
	}
	return wrong(name, missing, l.How, l.Err)
}

// examineTool plans a call of a tool. The tool must be found and read with its libraries, and only root may be able to
// write it.
func examineTool(ctx context.Context, j *jail.Jail, command string) finding {
	name, tried := "tool "+command, "planned a call of it"
	run, err := j.Plan(ctx, bailey.Job{Command: command})
	if err != nil {
		return wrong(name, missing, tried, err)
	}
	defer run.Close()
	return finding{name, good, tried + ": " + run.Cage().Binary, ""}
}
