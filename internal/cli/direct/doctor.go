package direct

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/gateway"
	"bailey/internal/jail"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/notify"
	"bailey/internal/packstore"
	"bailey/internal/safefile"
	"bailey/internal/server"
	"bailey/internal/settings"
	"bailey/internal/terminal"
	"bailey/internal/toolchain"
	"bailey/internal/workspace"
)

type doctorReport struct {
	OK       bool              `json:"ok"` // no finding is missing
	Findings []apitype.Finding `json:"findings"`
}

func (a *commands) doctorVerb() *cobra.Command {
	var fix bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Test everything that calls need, and print fixes",
		Args: cobra.NoArgs,
		Long: `Test everything that calls need by using it: the home, the gateway, the ledger's disk, each layer
of the jail, the tools, and the client's configuration. It starts no gateway, and removes its test files. The
exit code is 1 if something that calls need is missing; warnings do not change it.

--fix first takes the rights of other users to the settings and hooks of the home away. It changes nothing else.`,
		PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			if fix {
				if err := fixModes(home); err != nil {
					return err
				}
			}
			report, err := examineAll(cmd.Context(), home)
			if err != nil {
				return err
			}
			err = cli.PrintAnswer(a.App, report, func(w io.Writer, r doctorReport) {
				cli.PrintTable(w, "", r.Findings, func(f apitype.Finding) []any {
					return []any{f.State, f.Name, terminal.Shown(f.Tried) + cli.CureLine(f.Cure)}
				})
			})
			return cli.ExitUnless(report.OK, apitype.ExitDenied, err)
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "make files of the home private that other users can access")
	return cmd
}

// privateFiles are the files of a home that a person edits.
var privateFiles = []string{settings.FileName, apitype.HooksName}

// fixModes takes the rights of other users to these files away.
func fixModes(home localapi.Home) error {
	root, err := os.OpenRoot(string(home))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return bailey.Unavailable.Wrap(err, string(home)+" cannot be opened", "see the finding home of bailey doctor")
	}
	defer root.Close()
	for _, name := range privateFiles {
		info, err := root.Lstat(name)
		if err != nil || !info.Mode().IsRegular() || !safefile.Wide(info) {
			continue
		}
		if err := root.Chmod(name, 0o600); err != nil {
			return bailey.Unavailable.Wrap(err, "the mode of "+name+" cannot be changed", "change it as its owner: chmod 600")
		}
	}
	return nil
}

// examineModes reports files of a home that other users can access.
func examineModes(home localapi.Home) (found []apitype.Finding) {
	for _, name := range privateFiles {
		path := filepath.Join(string(home), name)
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && safefile.Wide(info) {
			found = append(found, warningFinding("mode", fmt.Sprintf("other users can access %s: %v", path, info.Mode().Perm()),
				"run bailey doctor --fix"))
		}
	}
	return found
}

func examineAll(ctx context.Context, home localapi.Home) (doctorReport, error) {
	here, err := os.Getwd()
	if err != nil {
		return doctorReport{}, err
	}
	s, asked := cli.AskStatus(ctx, home, cli.StatusPatience)
	found := []apitype.Finding{examineHome(home), examineGateway(s, asked)}
	if found[0].State == apitype.Good {
		found = append(append(found, examineSocket(home)...), examineModes(home)...)
	}
	cages, tools := examineCages(ctx, toolchain.NewFinder(nil))
	found = slices.Concat(found, examineLedger(home), examinePolicy(home, s), examineHooks(home, s),
		examinePacks(home, s), examineRedaction(home, s), examineProfiles(home, s), apitype.ExamineBroker(s),
		examineNotify(s), examinePages(s), examineShims(home), cages, tools)
	found = append(found, examineToolchains(home, here)...)
	found = append(found, examineWorkspace(home, here, s), examineProgram(), examineNode(ctx), examineClaude(here))
	found = append(found, examineAgents(cli.CheckAgents(ctx, apitype.NewAgentStatus(nil), here, s.Running, true))...)
	return doctorReport{OK: !slices.ContainsFunc(found, func(f apitype.Finding) bool { return f.State == apitype.Missing }), Findings: found}, ctx.Err()
}

func goodFinding(name, tried string) apitype.Finding {
	return apitype.Finding{Name: name, State: apitype.Good, Tried: tried}
}

func infoFinding(name, tried, cure string) apitype.Finding {
	return apitype.Finding{Name: name, State: apitype.Info, Tried: tried, Cure: cure}
}

func warningFinding(name, tried, cure string) apitype.Finding {
	return apitype.Finding{Name: name, State: apitype.Warning, Tried: tried, Cure: cure}
}

func missingFinding(name, tried, cure string) apitype.Finding {
	return apitype.Finding{Name: name, State: apitype.Missing, Tried: tried, Cure: cure}
}

// errorFinding returns a finding about an error, with the hint of the error as the cure.
func errorFinding(name string, s apitype.State, tried string, err error) apitype.Finding {
	cure := bailey.HintOf(err)
	if cure == "" {
		cure = "see docs/operations.md for errors and their fixes"
	}
	return apitype.Finding{Name: name, State: s, Tried: tried + ": " + err.Error(), Cure: cure}
}

func examineGateway(s apitype.Status, err error) apitype.Finding {
	const tried = "asked it for its status"
	switch {
	case bailey.KindOf(err) == bailey.Invalid: // it does not know the verb
		return errorFinding("gateway", apitype.Warning, tried, err)
	case err != nil:
		return errorFinding("gateway", apitype.Missing, tried, err)
	case !s.Running:
		return goodFinding("gateway", "none is running; the next call starts one if everything here passes")
	case s.Gateway.Version != apitype.Version:
		return warningFinding("gateway",
			fmt.Sprintf("%s: it is version %s, this program is %s", tried, s.Gateway.Version, apitype.Version),
			"run bailey gateway stop; the next call starts this version")
	}
	return goodFinding("gateway",
		fmt.Sprintf("%s: pid %d, version %s, protocol %d", tried, s.Gateway.PID, s.Gateway.Version, s.Gateway.Protocol))
}

// examineCages builds cages for this program, as a gateway that it starts would, and plans a cage for each tool of the
// built-in packs.
func examineCages(ctx context.Context, finder *toolchain.Finder) (cages, tools []apitype.Finding) {
	cages, tools = []apitype.Finding{}, []apitype.Finding{}
	j, err := jail.New(jail.Config{})
	if err != nil {
		return append(cages, errorFinding("cage", apitype.Missing, "made a jail", err)), tools
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
		return cages, append(tools, errorFinding("packs", apitype.Missing, "read the built-in packs", err))
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
		if !j.Installed(command) && finder.Installed(command) {
			continue // see the toolchains
		} else if !j.Installed(command) {
			absent = append(absent, command)
			continue
		}
		tools = append(tools, examineTool(ctx, j, command))
	}
	if len(absent) > 0 { // optional: only users of their capabilities need them
		tools = append(tools, infoFinding("tools",
			"searched the directories of programs; not found: "+strings.Join(absent, ", ")+", so agents are not offered the capabilities that need them",
			""))
	}
	return cages, tools
}

func newCageFinding(l jail.Layer) apitype.Finding {
	name := "cage " + l.Name
	switch {
	case l.Err == nil:
		return goodFinding(name, l.How)
	// For cgroup and full, another finding covers the substitute. The built-in packs do not need proc-private.
	case l.Name == "proc-private", l.Name == "cgroup", l.Name == "full":
		return errorFinding(name, apitype.Warning, l.How, l.Err)
	}
	return errorFinding(name, apitype.Missing, l.How, l.Err)
}

// examineTool plans a call of a tool. The tool must be found and read with its libraries, and only root may be able to
// write it.
func examineTool(ctx context.Context, j *jail.Jail, command string) apitype.Finding {
	name, tried := "tool "+command, "planned a call with it"
	run, err := j.Plan(ctx, bailey.Job{Command: command})
	if err != nil {
		return errorFinding(name, apitype.Missing, tried, err)
	}
	defer run.Close()
	return goodFinding(name, tried+": "+run.Cage().Binary)
}

// examineHome tests the home, or the place where it would be created.
func examineHome(home localapi.Home) apitype.Finding {
	const name = "home"
	dir := string(home)
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		parent := nearestExisting(dir)
		if err := roomFor(parent); err != nil {
			return missingFinding(name,
				fmt.Sprintf("%s does not exist and cannot be created in %s: %v", dir, parent, err),
				"set BAILEY_HOME to a directory that you can write")
		}
		return goodFinding(name, fmt.Sprintf("%s does not exist yet; the first call creates it in %s", dir, parent))
	}
	if err != nil {
		return missingFinding(name, fmt.Sprintf("examined %s: %v", dir, err),
			"set BAILEY_HOME to a directory that you can write")
	}
	if !info.IsDir() {
		return missingFinding(name, dir+" is not a directory", "move it away, or set BAILEY_HOME")
	}
	if err := home.Owned(); err != nil {
		return errorFinding(name, apitype.Missing, "examined the owner of "+dir, err)
	}
	if err := checkWritable(dir); err != nil {
		return missingFinding(name, fmt.Sprintf("%s cannot be written: %v", dir, err),
			"mount it read-write, chmod 700 it, or set BAILEY_HOME to a directory that you can write")
	}
	return goodFinding(name, dir+" is private, and can be written")
}

// examineSocket creates a socket next to the gateway's socket and removes it. Not every file system supports sockets.
func examineSocket(home localapi.Home) []apitype.Finding {
	const name, tried = "socket", "created a socket in the home and connected to it"
	dir, err := os.Open(string(home))
	if err != nil {
		return nil // does not exist yet
	}
	defer dir.Close()
	l, err := net.Listen("unix", cli.SocketIn(dir, fmt.Sprintf("doctor-%d.sock", os.Getpid())))
	if err == nil {
		defer l.Close() // removes the socket
		var c net.Conn
		if c, err = net.Dial("unix", l.Addr().String()); err == nil {
			c.Close()
		}
	}
	if err != nil {
		return []apitype.Finding{missingFinding(name, tried+": "+err.Error(),
			"set BAILEY_HOME to a directory on a local disk: ext4, xfs, btrfs or tmpfs")}
	}
	return []apitype.Finding{goodFinding(name, tried)}
}

// nearestExisting returns path, or if it does not exist, its nearest parent that exists.
func nearestExisting(path string) string {
	for {
		above := filepath.Dir(path)
		if _, err := os.Stat(path); err == nil || above == path {
			return path
		}
		path = above
	}
}

// roomFor creates a directory in parent and removes it. For root, access(2) reports more access than there is.
func roomFor(parent string) error {
	dir, err := os.MkdirTemp(parent, ".bailey-doctor-")
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

// examineLedger verifies the ledger if it exists, and tests its disk.
func examineLedger(home localapi.Home) []apitype.Finding {
	found := []apitype.Finding{}
	dir := home.Ledger()
	if _, err := os.Lstat(dir); err == nil {
		found = append(found, examineChain(dir))
	}
	dir = nearestExisting(dir)
	frail, err := ledger.Durability(dir)
	switch {
	case err != nil:
		found = append(found, errorFinding("ledger durable", apitype.Missing, "identified the file system", err))
	case frail != "":
		found = append(found, warningFinding("ledger durable", frail,
			"keep BAILEY_HOME on a local disk: ext4, xfs or btrfs"))
	default:
		found = append(found, goodFinding("ledger durable", "the file system of "+dir+" keeps synced data"))
	}
	if dir != home.Ledger() && dir != string(home) {
		return found // nothing may be written outside the home
	}
	return append(found, examineSpace(dir))
}

func examineChain(dir string) apitype.Finding {
	const name = "ledger"
	report, err := ledger.Verify(dir)
	switch {
	case err != nil:
		return errorFinding(name, apitype.Missing, "verified "+dir, err)
	case report.Segments == 0:
		return goodFinding(name, dir+" is empty; the first call fills it")
	case !report.OK:
		return missingFinding(name, fmt.Sprintf("verified %s: %v", dir, report.FirstBad),
			"restart the gateway if the tail is torn; otherwise keep it, compare it with a copy, and move "+dir+" aside to start a new one")
	}
	return goodFinding(name, fmt.Sprintf("verified %s: %d entries, head %.16s…", dir, report.Entries, report.Head))
}

// dayBytes should be free for one day of the ledger.
const dayBytes = 64 << 20

// examineSpace treats a temporary file as the ledger treats its own: it reserves space, writes and syncs.
func examineSpace(dir string) apitype.Finding {
	const name = "ledger space"
	tried := "reserved, wrote and synced a file in " + dir
	free, err := ledger.Rehearse(dir)
	if err != nil {
		return errorFinding(name, apitype.Missing, tried,
			bailey.Unavailable.Wrap(err, "the ledger could not be written",
				diskCure(err)))
	}
	if free < dayBytes {
		return warningFinding(name, fmt.Sprintf("%s; %d KiB are free", tried, free>>10),
			"free some space in BAILEY_HOME")
	}
	return goodFinding(name, tried)
}

func diskCure(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space, or raise the quota, in BAILEY_HOME"
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
		return "the file system cannot reserve space: keep BAILEY_HOME on ext4, xfs, btrfs or tmpfs"
	case errors.Is(err, syscall.EFBIG):
		return "raise the limit on file sizes (ulimit -f)"
	case errors.Is(err, syscall.EROFS):
		return "mount it read-write, or set BAILEY_HOME to a directory that you can write"
	}
	return "check the disk and the kernel's log, or set BAILEY_HOME to a directory that you can write"
}

// examinePolicy reports whether the policy that was applied last can be used, and whether its files are unchanged. If
// no gateway runs, it loads the policy as the next gateway would.
func examinePolicy(home localapi.Home, s apitype.Status) []apitype.Finding {
	const name, tried = "policy", "compared the applied policy with its files"
	if !s.Running {
		if !ledger.Begun(home.Ledger()) {
			return []apitype.Finding{goodFinding(name, "none was applied: the built-in policy is in use")}
		}
		if err := server.StandIn(home, &s); err != nil {
			return []apitype.Finding{errorFinding(name, apitype.Missing, "loaded the applied policy", err)}
		}
	}
	var found []apitype.Finding
	if s.Killed != nil {
		found = append(found, missingFinding("kill switch", apitype.KilledText(*s.Killed),
			"run bailey resume when the cause is gone"))
	}
	switch {
	case s.Fault != "":
		found = append(found, missingFinding(name, s.Fault, "run bailey policy check, then bailey policy apply"))
	case s.Drift != "":
		found = append(found, warningFinding(name, tried+": "+s.Drift,
			"run bailey policy apply to see the difference and apply it, or restore the files"))
	case s.Applied == nil || s.Applied.Dir == "":
		found = append(found, goodFinding(name, "none was applied: the built-in policy is in use"))
	default:
		found = append(found, goodFinding(name,
			fmt.Sprintf("%s: %s of %s", tried, apitype.Counts(s.Applied.Rules, "rule"), s.Applied.Dir)))
	}
	return found
}

// examineAgents returns one finding per agent, and one per trial of each agent that is confined or hooked. For an open
// agent, the first failure is enough.
func examineAgents(agents []apitype.AgentStatus) (found []apitype.Finding) {
	for _, a := range agents {
		name := "agent " + terminal.TableCell(a.Agent)
		if a.State == apitype.OpenState {
			found = append(found, warningFinding(name, a.Words, a.Cure))
			continue
		}
		found = append(found, goodFinding(name, a.Words))
		for _, words := range a.Warnings {
			found = append(found, warningFinding(name, words, ""))
		}
		for _, t := range a.Tried {
			finding := goodFinding(name+" "+t.Name, t.Tried)
			if !t.Held {
				finding = warningFinding(name+" "+t.Name, t.Tried, a.Cure)
			}
			found = append(found, finding)
		}
	}
	return found
}

// examineHooks reports whether the applied hooks can be used, and whether the file is unchanged.
func examineHooks(home localapi.Home, s apitype.Status) []apitype.Finding {
	const name, tried = "hooks", "compared the applied hooks with " + apitype.HooksName
	st := s.Hooks
	if !s.Running {
		b, err := server.StandInHooks(home)
		if err != nil {
			return []apitype.Finding{errorFinding(name, apitype.Missing, "read "+apitype.HooksName, err)}
		}
		st = b.Status()
	}
	switch {
	case st == nil:
		return nil
	case st.Fault != "":
		return []apitype.Finding{missingFinding(name, st.Fault, "run bailey hooks reload")}
	case st.Drift != "":
		return []apitype.Finding{warningFinding(name, tried+": "+st.Drift,
			"run bailey hooks reload to see the difference and apply it, or restore the file")}
	case jail.Bare:
		return []apitype.Finding{warningFinding(name,
			"this platform has no jail: hooks that require one do not start",
			`set "sandbox": false to run a hook with all your rights`)}
	}
	return []apitype.Finding{goodFinding(name, tried+": "+apitype.Counts(st.Applied.Hooks, "hook"))}
}

// examinePages warns if the control plane is trusted to show what is asked.
func examinePages(s apitype.Status) []apitype.Finding {
	if !s.ControlPlanePages {
		return nil
	}
	return []apitype.Finding{warningFinding("approvals", "checked where passkeys may answer: "+apitype.PagesAccepted,
		"remove controlPlanePages from "+settings.FileName+" if the control plane is not yours, then run bailey init --apply")}
}

// examineNotify checks whether a person learns of a pending question without looking for it.
func examineNotify(s apitype.Status) []apitype.Finding {
	const name = "notify"
	n := s.Notify
	if n == nil {
		return nil
	}
	tried := "checked how people are notified of questions: " + n.Summary()
	bad := slices.ContainsFunc(n.Ways,
		func(w notify.State) bool { return w.Absent != "" || w.Dropped > 0 || w.Failed > 0 && w.Last != "" })
	switch {
	case n.Fault != "":
		return []apitype.Finding{warningFinding(name, tried,
			"run bailey notify key to create the key; bailey notify test to try it")}
	case bad:
		return []apitype.Finding{warningFinding(name, tried, "run bailey notify test to see the current error")}
	case len(n.Ways) > 0:
		return []apitype.Finding{goodFinding(name, tried)}
	case n.Asks > 0:
		return []apitype.Finding{warningFinding(name,
			fmt.Sprintf("%s, and %s of the policy can ask: a question waits until a person looks for it", tried, apitype.Counts(n.Asks, "rule")),
			"write notify: {desktop: true} or a webhook's url into "+settings.FileName+", then run bailey init --apply (docs/notify.md)")}
	}
	return nil
}

// examinePacks returns the doctor's findings about packs and trusted keys that differ from the ledger. A pack that
// cannot be loaded has the state missing, because its calls fail.
func examinePacks(home localapi.Home, s apitype.Status) (list []apitype.Finding) {
	const name = "packs"
	found := s.Packed
	if !s.Running && ledger.Begun(home.Ledger()) {
		known, err := server.Replayed(home)
		if err != nil {
			return []apitype.Finding{errorFinding(name, apitype.Missing, "read the installed packs", err)}
		}
		_, found = packstore.LoadInstalled(home, known.Packs)
	}
	for _, f := range found {
		state := apitype.Warning
		if f.Pack != "" {
			state = apitype.Missing
		}
		list = append(list, apitype.Finding{Name: name, State: state, Tried: f.Text, Cure: f.Cure})
	}
	return list
}

// examineProfiles returns the doctor's finding about the profiles in use. If no gateway is running, it examines the
// profiles that the next gateway would use.
func examineProfiles(home localapi.Home, s apitype.Status) []apitype.Finding {
	const name, tried = "profiles", "compared the active profiles with their files"
	if !s.Running && ledger.Begun(home.Ledger()) {
		l, err := server.Replayed(home)
		if err != nil {
			return []apitype.Finding{errorFinding(name, apitype.Missing, "read the active profiles", err)}
		}
		homes := workspace.Homes()
		s.Profile = server.ProfileStatus(gateway.OpenProfiles(home,
			workspace.NewWorkspaces(workspace.Masks(string(home), homes),
				homes), l.Profiles, nil, slog.New(slog.DiscardHandler)))
	}
	switch p := s.Profile; {
	case p == nil:
		return nil
	case p.Fault != "":
		return []apitype.Finding{missingFinding(name, p.Fault, p.Cure())}
	case len(p.Changed) > 0:
		return []apitype.Finding{warningFinding(name, tried+": "+p.Drift(), p.Cure())}
	default:
		return []apitype.Finding{goodFinding(name, tried+": "+strings.Join(p.InUse, ", "))}
	}
}

// examineRedaction returns the doctor's finding about the custom rules, or nil if there are none.
func examineRedaction(home localapi.Home, s apitype.Status) []apitype.Finding {
	const name = "redaction"
	c := s.Redaction
	if !s.Running {
		last, _ := server.Replayed(home) // an unreadable ledger is a separate finding
		c = last.Settings.Redaction
	}
	tried := "counted the rules of this home: " + apitype.RuleCounts(c)
	switch {
	case len(c.Allow)+len(c.Without) > 0:
		return []apitype.Finding{infoFinding(name,
			tried+"; as applied, agents see "+strings.Join(cli.Passing(c), ", "), "")}
	case len(c.Patterns) > 0:
		return []apitype.Finding{goodFinding(name, tried)}
	}
	return nil
}

// examineShims returns the doctor's findings about the shims, or nil if there are none.
func examineShims(home localapi.Home) (found []apitype.Finding) {
	list, err := cli.Shims(home)
	if err != nil {
		return []apitype.Finding{warningFinding("shims", "read "+cli.ShimDir(home)+": "+err.Error(),
			"chmod 700 it, or move it away")}
	}
	for _, s := range list {
		switch s.State {
		case "ok":
			found = append(found, goodFinding("shim "+s.Name, "PATH leads to it, and it starts this bailey"))
		case "inactive":
			found = append(found, infoFinding("shim "+s.Name, s.Why, s.Cure))
		default:
			found = append(found, warningFinding("shim "+s.Name, s.Why, s.Cure))
		}
	}
	return found
}
