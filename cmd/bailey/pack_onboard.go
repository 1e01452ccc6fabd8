package main

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
	"bailey/internal/gateway"
	"bailey/internal/onboard"
	"bailey/pack"
)

// Bounds on asking a tool for its help.
const (
	maxProbes = 64
	probeTime = 5 * time.Second
)

// onboarding is what the words of `pack onboard` come to.
type onboarding struct {
	tool, dir string
	depth     int
	ro        []string
	yes       bool
}

func (a *app) packOnboardVerb() *cobra.Command {
	var o onboarding
	cmd := &cobra.Command{
		Use: "onboard TOOL", Short: "Draft a pack from a tool's own help",
		Long: `Draft a pack from what a tool says of itself.

It runs TOOL --help, and the same for the subcommands it lists, each time in a cage of its own: no network, an empty
home, nothing of yours to see. At most ` + fmt.Sprint(maxProbes) + ` times, ` + probeTime.String() + ` and 256 KiB each. What it understands becomes DIR/pack.yaml, and
DIR/README.md says what to look at before anybody calls it.

The draft is cautious: what does not look by its name is taken for irreversible; options that run programs, write,
hold settings or secrets, or change where the tool connects are left out, and named in a comment.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes. The ledger's event pack.onboard comes first.`,
		Example: "  bailey pack onboard jq --dir packs/jq",
		Args:    oneArg("a program, as in: bailey pack onboard jq"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.tool = args[0]
			return a.onboard(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", "", "write the pack to `directory`, which must not exist; the tool's name here unless said")
	f.IntVar(&o.depth, "max-depth", 3, "look so many levels of subcommands deep")
	f.StringArrayVar(&o.ro, "ro", nil, "show `path` to the tool, now and in the manifest: a script's library; may be repeated")
	f.BoolVar(&o.yes, "yes", false, "do not want a terminal (with BAILEY_OPERATOR=1)")
	return cmd
}

// onboarded is the answer of `pack onboard`.
type onboarded struct {
	OK           bool              `json:"ok"`
	Pack         string            `json:"pack"`
	Dir          string            `json:"dir"`
	Capabilities []onboard.Drafted `json:"capabilities"`
	LeftOut      []onboard.Left    `json:"leftOut,omitempty"`
	Options      int               `json:"optionsLeftOut"`
	Probes       int               `json:"probes"`
}

// onboard asks, drafts, and has the draft read as any pack is before it is written.
func (a *app) onboard(ctx context.Context, o onboarding) error {
	op, err := a.operator("pack onboard", o.yes)
	if err != nil {
		return err
	}
	if o.depth < 0 || o.depth > 16 {
		return &bailey.Error{Kind: bailey.Invalid, Message: "--max-depth is from 0 to 16", Hint: "leave it out for 3"}
	}
	if o.dir, err = filepath.Abs(cmp.Or(o.dir, filepath.Base(o.tool))); err != nil {
		return err
	}
	if err := vacant(o.dir); err != nil {
		return err
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	cages, err := openJail(gateway.Masks(client.Home, gateway.Homes()), nil)
	if err != nil {
		return err
	}
	defer cages.Close()
	p := &prober{app: a, cages: cages, tool: o.tool}
	query, err := p.prepare(ctx, o)
	if err != nil {
		return err
	}
	if err := act(ctx, client, op, packOnboardEvent, map[string]any{"onboard": query}, &struct{}{}); err != nil {
		return err
	}
	tree, err := onboard.Explore(ctx, onboard.Bounds{Depth: o.depth, Probes: maxProbes}, p.probe)
	if err != nil {
		return err
	}
	draft, err := onboard.New(onboard.Tool{Name: filepath.Base(o.tool), Command: p.command, Read: p.read, Root: tree})
	if err != nil {
		return err
	}
	if _, err := pack.Parse(filepath.Join(o.dir, "pack.yaml"), draft.YAML); err != nil {
		return &bailey.Error{Kind: bailey.Internal, Message: "the draft is no pack, which is a fault of this program: " + err.Error(), Hint: "write the pack by hand, and report this with the tool's help"}
	}
	if err := settle(o.dir, map[string][]byte{"pack.yaml": draft.YAML, "README.md": draft.Notes()}); err != nil {
		return err
	}
	return a.onboarded(onboarded{OK: true, Pack: draft.Pack, Dir: o.dir, Capabilities: draft.Capabilities, LeftOut: draft.LeftOut, Options: draft.Options, Probes: p.asked})
}

func (a *app) onboarded(o onboarded) error {
	if a.json {
		return a.print(o)
	}
	looks := 0
	for _, c := range o.Capabilities {
		if c.SideEffect == string(pack.ReadOnly) {
			looks++
		}
	}
	fmt.Fprintf(a.stdout, "%s: pack %s, %d capabilities, of which %d look only by their names; left out: %d commands, %d options\n",
		visible(o.Dir), o.Pack, len(o.Capabilities), looks, len(o.LeftOut), o.Options)
	fmt.Fprintln(a.stdout, "read README.md there before you install it")
	return nil
}

// prober runs a tool in one cage after the other.
type prober struct {
	app     *app
	cages   bailey.Runner
	tool    string
	command string   // as a manifest names it
	read    []string // what a manifest shows it
	asked   int
}

// job is one probe. Nothing of the caller's is in it.
func (p *prober) job(args []string) bailey.Job {
	return bailey.Job{Command: p.command, Args: args, Timeout: probeTime, Env: []string{"NO_COLOR=1", "TERM=dumb"},
		Read: append(p.read[:len(p.read):len(p.read)], "/usr/lib/locale/C.utf8")}
}

// prepare plans the first probe, so that the ledger can say what will run. What a script's interpreter reads is known
// when the interpreter is.
func (p *prober) prepare(ctx context.Context, o onboarding) (onboardQuery, error) {
	var err error
	if p.command, err = program(o.tool); err != nil {
		return onboardQuery{}, err
	}
	for _, path := range o.ro {
		place, err := openNamed(path, false)
		if err != nil {
			return onboardQuery{}, err
		}
		place.File.Close()
		p.read = append(p.read, place.Path)
	}
	var cage bailey.Cage
	for range 2 {
		run, err := p.cages.Plan(ctx, p.job([]string{"--help"}))
		if err != nil {
			return onboardQuery{}, err
		}
		cage = run.Cage()
		run.Close()
		if cage.PlanDigest == "" {
			return onboardQuery{}, &bailey.Error{Kind: bailey.Unavailable, Message: "there is no cage here to ask " + o.tool + " in", Hint: "onboard it on Linux; nothing of it was run"}
		}
		libraries := libraries(cage)
		if len(libraries) == 0 || len(o.ro) > 0 || len(p.read) > 0 {
			break
		}
		p.read = libraries
	}
	return onboardQuery{onboardEvent: onboardEvent{Tool: o.tool, Probes: maxProbes, Depth: o.depth, ReadOnly: p.read, Cage: cage}, Plan: cage.Plan}, nil
}

// libraries are where Debian has the modules of an interpreter; a person names others with --ro.
func libraries(cage bailey.Cage) (dirs []string) {
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

// errFull ends a probe that said enough.
var errFull = errors.New("the tool wrote more than a help")

// probe runs the tool once. That it fails, hangs or floods is the tool's affair; that no cage can be made is ours.
func (p *prober) probe(ctx context.Context, args []string) (stdout, stderr string, err error) {
	p.asked++
	line := strings.Join(append([]string{filepath.Base(p.tool)}, args...), " ")
	fmt.Fprintf(p.app.stderr, "bailey: probe %d of at most %d: %s\n", p.asked, maxProbes, shown(line))
	run, err := p.cages.Plan(ctx, p.job(args))
	if err != nil {
		return "", "", err
	}
	defer run.Close()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, complaint := &heard{full: cancel}, &heard{full: cancel}
	if _, err = run.Start(inner, bailey.Lent{}, bailey.Streams{Stdout: out, Stderr: complaint}); ctx.Err() == nil && errors.Is(context.Cause(inner), errFull) {
		err = nil
	}
	return out.text.String(), complaint.text.String(), err
}

// heard keeps the beginning of what a tool writes.
type heard struct {
	text strings.Builder
	full context.CancelCauseFunc
}

func (h *heard) Write(b []byte) (int, error) {
	room := onboard.MaxText - h.text.Len()
	if h.text.Write(b[:min(room, len(b))]); len(b) > room {
		h.full(errFull)
	}
	return len(b), nil
}
