package direct

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

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

// onboarding holds the parsed arguments of `pack onboard`.
type onboarding struct {
	tool, dir string
	depth     int
	ro        []string
	yes       bool
}

func (a *commands) packOnboardVerb() *cobra.Command {
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
		Args:    cli.OneArg("a program, as in: bailey pack onboard jq"),
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

// onboard records the run in the ledger, asks the tool for its help, and writes the draft.
func (a *commands) onboard(ctx context.Context, o onboarding) error {
	op, err := a.Operator("pack onboard", o.yes)
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
	cages, err := server.OpenJail(workspace.Masks(client.Home, workspace.Homes()), nil)
	if err != nil {
		return err
	}
	defer cages.Close()
	p := &prober{app: a.App, cages: cages, tool: o.tool}
	query, err := p.prepare(ctx, o)
	if err != nil {
		return err
	}
	if err := cli.Command(ctx, client, op, apitype.PackOnboardEvent, map[string]any{"onboard": query}, &struct{}{}); err != nil {
		return err
	}
	draft, err := p.draft(ctx, o)
	if err != nil {
		return err
	}
	if err := cli.Settle(o.dir, map[string][]byte{"pack.yaml": draft.YAML, "README.md": draft.Notes()}); err != nil {
		return err
	}
	return a.onboarded(onboarded{OK: true, Pack: draft.Pack, Dir: o.dir, Capabilities: draft.Capabilities, LeftOut: draft.LeftOut, Options: draft.Options, Probes: p.asked})
}

// settleOn checks the arguments and determines the directory of the pack.
func (o *onboarding) settleOn() (err error) {
	if o.depth < 0 || o.depth > 16 {
		return &bailey.Error{Kind: bailey.Invalid, Message: "--max-depth is from 0 to 16", Hint: "leave it out for 3"}
	}
	if o.dir, err = filepath.Abs(cmp.Or(o.dir, filepath.Base(o.tool))); err != nil {
		return err
	}
	return cli.Vacant(o.dir)
}

func (a *commands) onboarded(o onboarded) error {
	if a.JSON {
		return a.Print(o)
	}
	looks := 0
	for _, c := range o.Capabilities {
		if c.SideEffect == string(pack.ReadOnly) {
			looks++
		}
	}
	fmt.Fprintf(a.Stdout, "%s: pack %s, %d capabilities, of which %d look only by their names; left out: %d commands, %d options\n",
		terminal.CutLine(o.Dir), o.Pack, len(o.Capabilities), looks, len(o.LeftOut), o.Options)
	fmt.Fprintln(a.Stdout, "read README.md there before you install it")
	return nil
}
