package direct

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/terminal"
)

type findings struct {
	OK       bool              `json:"ok"` // no finding is missing
	Findings []apitype.Finding `json:"findings"`
}

func (a *commands) doctorVerb() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Test what calls need by using it, and say what cures what is missing", Args: cobra.NoArgs,
		Long: `Test everything a call needs by using it: the home, the gateway, the ledger's disk, each layer of the cage, the
tools, and the client's side. It starts no gateway; what it writes to try the disk, it takes away again. Exit code 1 when something that calls need is missing; a warning is no reason to fail.`,
		PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := localapi.FindHome()
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
				return cli.Exit(apitype.ExitDenied)
			}
			return nil
		},
	}
}

func (a *commands) diagnosis(r findings) error {
	if a.JSON {
		return a.Print(r)
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.State, f.Name, terminal.Shown(f.Tried))
		if f.Cure != "" {
			fmt.Fprintf(w, "\t\t→ %s\n", terminal.Shown(f.Cure))
		}
	}
	return w.Flush()
}

func examine(ctx context.Context, home localapi.Home) (findings, error) {
	here, err := os.Getwd()
	if err != nil {
		return findings{}, err
	}
	s, asked := cli.AskStatus(ctx, home, cli.StatusPatience)
	found := []apitype.Finding{examineHome(home), examineGateway(s, asked)}
	if found[0].State == apitype.Good {
		found = append(found, examineSocket(home)...)
	}
	found = append(found, examineLedger(home)...)
	found = append(found, examinePolicy(home, s)...)
	found = append(found, examineHooks(home, s)...)
	found = append(found, examinePacks(home, s)...)
	found = append(found, examineRedaction(home, s)...)
	found = append(found, examineProfiles(home, s)...)
	found = append(found, apitype.ExamineBroker(s)...)
	found = append(found, examineNotify(s)...)
	found = append(found, examineShims(home)...)
	cages, tools := examineCages(ctx)
	found = append(append(found, cages...), tools...)
	found = append(found, examineWorkspace(home, here, s), examineProgram(), examineNode(ctx), examineClaude(here))
	found = append(found, examineAgents(cli.CheckAgents(ctx, apitype.NewAgentStatus(nil), here, s.Running, true))...)
	return findings{OK: !slices.ContainsFunc(found, func(f apitype.Finding) bool { return f.State == apitype.Missing }), Findings: found}, ctx.Err()
}

// wrong returns a finding about an error, with the hint of the error as the cure.
func wrong(name string, s apitype.State, tried string, err error) apitype.Finding {
	cure := bailey.HintOf(err)
	if cure == "" {
		cure = "docs/operations.md lists errors and their cures"
	}
	return apitype.Finding{Name: name, State: s, Tried: tried + ": " + err.Error(), Cure: cure}
}

func examineGateway(s apitype.Status, err error) apitype.Finding {
	const tried = "asked it for its status"
	switch {
	case bailey.KindOf(err) == bailey.Invalid: // it does not know the verb
		return wrong("gateway", apitype.Warning, tried, err)
	case err != nil:
		return wrong("gateway", apitype.Missing, tried, err)
	case !s.Running:
		return apitype.Finding{Name: "gateway", State: apitype.Good, Tried: "none is running; the next call starts one, if nothing here is missing", Cure: ""}
	case s.Gateway.Version != apitype.Version:
		return apitype.Finding{Name: "gateway", State: apitype.Warning, Tried: fmt.Sprintf("%s: it is version %s, this program is %s", tried, s.Gateway.Version, apitype.Version),
			Cure: "bailey gateway stop ends it; the next call starts this version"}
	}
	return apitype.Finding{Name: "gateway", State: apitype.Good, Tried: fmt.Sprintf("%s: pid %d, version %s, protocol %d", tried, s.Gateway.PID, s.Gateway.Version, s.Gateway.Protocol), Cure: ""}
}

// examineCages builds cages for this program, as a gateway that it starts would, and plans a cage for each tool of the
// built-in packs.
func examineCages(ctx context.Context) (cages, tools []apitype.Finding) {
	cages, tools = []apitype.Finding{}, []apitype.Finding{}
	j, err := jail.New(jail.Config{})
	if err != nil {
		return append(cages, wrong("cage", apitype.Missing, "made a jail", err)), tools
	}
	defer j.Close()
	if jail.Bare {
		cages = append(cages, apitype.BareFinding())
	}
	for _, l := range j.Diagnose(ctx) {
		cages = append(cages, newCageFinding(l))
	}
	catalog, err := packstore.BuiltIn()
	if err != nil {
		return cages, append(tools, wrong("packs", apitype.Missing, "read the built-in packs", err))
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
		tools = append(tools, apitype.Finding{Name: "tools", State: apitype.Info, Tried: "looked where cages look for programs: not here are " + strings.Join(absent, ", ") + ", and agents are not offered what runs them", Cure: ""})
	}
	return cages, tools
}

func newCageFinding(l jail.Layer) apitype.Finding {
	name := "cage " + l.Name
	switch {
	case l.Err == nil:
		return apitype.Finding{Name: name, State: apitype.Good, Tried: l.How, Cure: ""}
	// For cgroup and full, another finding covers the substitute. The built-in packs do not need proc-private.
	case l.Name == "proc-private", l.Name == "cgroup", l.Name == "full":
		return wrong(name, apitype.Warning, l.How, l.Err)
	}
	return wrong(name, apitype.Missing, l.How, l.Err)
}

// examineTool plans a call of a tool. The tool must be found and read with its libraries, and only root may be able to
// write it.
func examineTool(ctx context.Context, j *jail.Jail, command string) apitype.Finding {
	name, tried := "tool "+command, "planned a call of it"
	run, err := j.Plan(ctx, bailey.Job{Command: command})
	if err != nil {
		return wrong(name, apitype.Missing, tried, err)
	}
	defer run.Close()
	return apitype.Finding{Name: name, State: apitype.Good, Tried: tried + ": " + run.Cage().Binary, Cure: ""}
}
