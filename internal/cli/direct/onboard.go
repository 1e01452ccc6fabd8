package direct

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/localapi/apitype"
	"bailey/internal/onboard"
	"bailey/internal/server"
	"bailey/internal/terminal"
	"bailey/internal/workspace"
	"bailey/pack"
)

// onboardFlags holds the parsed arguments of `pack onboard`.
type onboardFlags struct {
	tool, dir string
	depth     int
	ro        []string
}

func (a *commands) packOnboardVerb() *cobra.Command {
	var o onboardFlags
	cmd := &cobra.Command{
		Use: "onboard TOOL", Short: "Draft a pack from the help texts of a tool",
		Long: `Draft a pack from the help texts of a tool.

It runs TOOL --help, and the same for the subcommands that the help lists, each time in a separate jail:
no network, an empty home, none of your files. The limits are ` + fmt.Sprint(maxProbes) + ` runs, and ` + probeTime.String() + ` and 256 KiB for each.
It writes the commands that it understands to DIR/pack.yaml. DIR/README.md lists the checks that you must
make before the pack is used.

The draft is cautious: a command whose name does not show that it only reads is classed as irreversible.
Options that run programs, write, hold settings or secrets, or change where the tool connects are left out
and named in a comment.

This is an operator command: it needs a terminal, or BAILEY_OPERATOR=1 and --yes. The ledger records
pack.onboard first.`,
		Example: "  bailey pack onboard jq --dir packs/jq",
		Args:    cli.OneArg("a program, for example: bailey pack onboard jq"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.tool = args[0]
			return a.onboardTool(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", "",
		"write the pack to `directory`, which must not exist (default the tool's name)")
	f.IntVar(&o.depth, "max-depth", 3, "maximum depth of subcommands")
	f.StringArrayVar(&o.ro, "ro", nil,
		"show `path` to the tool, now and in the manifest, for example a script's library; may be repeated")
	return a.YesFlag(cmd, noTerminalFlag)
}

// onboardResult is the answer of `pack onboard`.
type onboardResult struct {
	OK           bool              `json:"ok"`
	Pack         string            `json:"pack"`
	Dir          string            `json:"dir"`
	Capabilities []onboard.Drafted `json:"capabilities"`
	LeftOut      []onboard.Left    `json:"leftOut,omitempty"`
	Options      int               `json:"optionsLeftOut"`
	Probes       int               `json:"probes"`
}

// onboardTool records the run in the ledger, asks the tool for its help, and writes the draft.
func (a *commands) onboardTool(ctx context.Context, o onboardFlags) error {
	op, err := a.Operator("pack onboard")
	if err != nil {
		return err
	}
	if err := o.settleOn(); err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	cages, err := server.OpenJail(workspace.Masks(string(client.Home), workspace.Homes()), nil)
	if err != nil {
		return err
	}
	defer cages.Close()
	p := &toolProber{app: a.App, cages: cages, tool: o.tool}
	query, err := p.planFirstProbe(ctx, o)
	if err != nil {
		return err
	}
	if _, err := apitype.OnboardPack.Do(ctx, client, op, query); err != nil {
		return err
	}
	draft, err := p.draftPack(ctx, o)
	if err != nil {
		return err
	}
	if err := cli.Settle(o.dir, map[string][]byte{"pack.yaml": draft.YAML, "README.md": draft.Notes()}); err != nil {
		return err
	}
	return a.printOnboarded(onboardResult{OK: true, Pack: draft.Pack, Dir: o.dir, Capabilities: draft.Capabilities,
		LeftOut: draft.LeftOut, Options: draft.Options, Probes: p.asked})
}

// settleOn checks the arguments and determines the directory of the pack.
func (o *onboardFlags) settleOn() (err error) {
	if o.depth < 0 || o.depth > 16 {
		return bailey.Invalid.New("--max-depth must be from 0 to 16", "leave it out for the default, 3")
	}
	if o.dir, err = filepath.Abs(cmp.Or(o.dir, filepath.Base(o.tool))); err != nil {
		return err
	}
	return cli.Vacant(o.dir)
}

func (a *commands) printOnboarded(o onboardResult) error {
	looks := 0
	for _, c := range o.Capabilities {
		if c.SideEffect == string(pack.ReadOnly) {
			looks++
		}
	}
	return a.PrintLine(o, "%s: pack %s, %d capabilities, of which %d only read according to their names; left out: %d commands, %d options\n"+
		"read README.md there before you install it\n",
		terminal.CutLine(o.Dir), o.Pack, len(o.Capabilities), looks, len(o.LeftOut), o.Options)
}

// Limits of the probes of a tool.
const (
	maxProbes = 64
	probeTime = 5 * time.Second
)

// toolProber runs a tool repeatedly, each time in a new cage.
type toolProber struct {
	app     *cli.App
	cages   bailey.Runner
	tool    string
	command string   // as in a manifest
	read    []string // paths that the manifest shows to the tool
	asked   int
}

// probeJob returns the job of one probe. It contains no data of the user.
func (p *toolProber) probeJob(args []string) bailey.Job {
	return bailey.Job{Command: p.command, Args: args, Timeout: probeTime, Env: []string{"NO_COLOR=1", "TERM=dumb"},
		Read: append(p.read[:len(p.read):len(p.read)], "/usr/lib/locale/C.utf8")}
}

// planFirstProbe plans the first probe, so that the ledger can record it. A second pass adds the libraries of a script's
// interpreter, which is known only after the first.
func (p *toolProber) planFirstProbe(ctx context.Context, o onboardFlags) (apitype.OnboardQuery, error) {
	var err error
	if p.command, err = programPath(o.tool); err != nil {
		return apitype.OnboardQuery{}, err
	}
	for _, path := range o.ro {
		place, err := openNamed(path, false)
		if err != nil {
			return apitype.OnboardQuery{}, err
		}
		place.File.Close()
		p.read = append(p.read, place.Path)
	}
	var cage bailey.Cage
	for range 2 {
		run, err := p.cages.Plan(ctx, p.probeJob([]string{"--help"}))
		if err != nil {
			return apitype.OnboardQuery{}, err
		}
		cage = run.Cage()
		run.Close()
		if cage.PlanDigest == "" {
			return apitype.OnboardQuery{}, bailey.Unavailable.New("there is no jail here to run "+o.tool+" in",
				"onboard it on Linux; it was not run")
		}
		libraries := moduleDirs(cage)
		if len(libraries) == 0 || len(o.ro) > 0 || len(p.read) > 0 {
			break
		}
		p.read = libraries
	}
	return apitype.OnboardQuery{OnboardEvent: apitype.OnboardEvent{Tool: o.tool, Probes: maxProbes, Depth: o.depth,
		ReadOnly: p.read, Cage: cage}, Plan: cage.Plan}, nil
}

// draftPack runs the probes and writes a manifest. It parses the manifest as it would parse any pack.
func (p *toolProber) draftPack(ctx context.Context, o onboardFlags) (*onboard.Draft, error) {
	tree, err := onboard.Explore(ctx, onboard.Bounds{Depth: o.depth, Probes: maxProbes}, p.runProbe)
	if err != nil {
		return nil, err
	}
	draft, err := onboard.New(onboard.Tool{Name: filepath.Base(o.tool), Command: p.command, Read: p.read, Root: tree})
	if err != nil {
		return nil, err
	}
	if _, err := pack.Parse(filepath.Join(o.dir, "pack.yaml"), draft.YAML); err != nil {
		return nil, bailey.Internal.New("the draft is not a valid pack, which is a bug of this program: "+err.Error(),
			"write the pack by hand, and report this with the tool's help")
	}
	return draft, nil
}

// moduleDirs returns Debian's directories for the modules of the interpreter. Others must be named with --ro.
func moduleDirs(cage bailey.Cage) (dirs []string) {
	for _, p := range cage.Programs {
		var list []string
		switch name := filepath.Base(p.Path); {
		case strings.HasPrefix(name, "python3"):
			list = []string{"/usr/lib/python3", "/usr/lib/" + name}
		case strings.HasPrefix(name, "perl"):
			list = []string{"/usr/share/perl5", "/usr/share/perl"}
		}
		for _, dir := range list {
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// errFull ends a probe whose output exceeds the limit.
var errFull = errors.New("the tool's help is too long")

// runProbe runs the tool once. If the tool fails, hangs or writes too much, this is not an error. If no cage can be
// created, it is.
func (p *toolProber) runProbe(ctx context.Context, args []string) (stdout, stderr string, err error) {
	p.asked++
	line := strings.Join(append([]string{filepath.Base(p.tool)}, args...), " ")
	fmt.Fprintf(p.app.Stderr, "bailey: probe %d of at most %d: %s\n", p.asked, maxProbes, terminal.Shown(line))
	run, err := p.cages.Plan(ctx, p.probeJob(args))
	if err != nil {
		return "", "", err
	}
	defer run.Close()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, complaint := &limitedOutput{full: cancel}, &limitedOutput{full: cancel}
	if _, err = run.Start(inner, bailey.Lent{}, bailey.Streams{Stdout: out, Stderr: complaint}); ctx.Err() == nil &&
		errors.Is(context.Cause(inner), errFull) {
		err = nil
	}
	return out.text.String(), complaint.text.String(), err
}

// limitedOutput keeps the first [onboard.MaxText] bytes of output.
type limitedOutput struct {
	text strings.Builder
	full context.CancelCauseFunc
}

func (h *limitedOutput) Write(b []byte) (int, error) {
	room := onboard.MaxText - h.text.Len()
	if h.text.Write(b[:min(room, len(b))]); len(b) > room {
		h.full(errFull)
	}
	return len(b), nil
}
