package direct

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/image"
	"bailey/internal/localapi"
	"bailey/internal/terminal"
)

// A sourceImage is the answer of image from-source.
type sourceImage struct {
	image.Image
	Left []image.Left `json:"left"` // of the host, or changed
}

func (a *commands) imageSourceVerb(dir *string) *cobra.Command {
	var name, disk string
	var exact, fresh bool
	var without []string
	cmd := &cobra.Command{
		Use: "from-source HOST", Short: "Build an image like a prepared host, by what agents may read of it",
		Long: `Build an image with the release, the packages and the configuration of a prepared host. Everything is read by the calls
source.run and source.read_file: decided by policy, recorded in receipts, and with secrets removed.

The image has the newest versions of the packages, or with --exact the same ones. From /etc it has the files that differ from
those of the packages. Accounts, keys, networks, mounts and boot loaders are left out; what is left out is listed.`,
		Example: "  bailey image from-source web1 --without vendor-agent",
		Args:    cli.OneArg("a prepared host, for example: bailey image from-source web1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			maker, err := a.openMaker(cmd.Context(), "image from-source", *dir)
			if err != nil {
				return err
			}
			name = cmp.Or(name, strings.ToLower(args[0]))
			if err := image.CheckName(name); err != nil {
				return err
			}
			size, err := parseSize(disk)
			if err != nil {
				return err
			}
			plan, err := a.readHost(cmd.Context(), maker, args[0], exact, without)
			if err != nil {
				return err
			}
			plan.Build.Name, plan.Build.DiskBytes, plan.Build.Fresh = name, size, fresh
			i, err := maker.Build(cmd.Context(), plan.Build)
			if err != nil {
				return err
			}
			return a.printSourceImage(sourceImage{i, append([]image.Left{}, plan.Left...)})
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "the `name` of the image, that of the host by default")
	f.StringVar(&disk, "disk", "", "the `size` of the disk, 8G by default")
	f.BoolVar(&exact, "exact", false, "the same versions of the packages, which fails if one is no longer offered")
	f.BoolVar(&fresh, "fresh", false, "fetch the packages again")
	f.StringArrayVar(&without, "without", nil,
		"leave out a `package`, for example one that the distribution does not have; may be repeated")
	return a.OperatorVerb(cmd)
}

func (a *commands) printSourceImage(s sourceImage) error {
	return cli.PrintAnswer(a.App, s, func(w io.Writer, s sourceImage) {
		for _, l := range s.Left {
			fmt.Fprintf(w, "%s: %s\n", terminal.Shown(l.Name), l.Why)
		}
		fmt.Fprintf(w, "%s is ready: %s %s for %s, digest %.12s. Try: bailey sandbox create --image %[1]s\n", s.Name,
			terminal.Shown(s.OS), terminal.Shown(s.Release), s.Arch, s.Digest)
	})
}

// readHost reads the facts of a host, and then its files, each by one call.
func (a *commands) readHost(ctx context.Context, maker *image.Maker, host string, exact bool,
	without []string) (*image.SourcePlan, error) {
	client, err := a.Client()
	if err != nil {
		return nil, err
	}
	client.Waits = func(n localapi.Notice) { n.Tell(a.Stderr) }
	call := func(id bailey.CapabilityID, input, value string) (localapi.Output, error) {
		reply, err := client.Call(ctx, localapi.CallQuery{Capability: id, Text: true,
			Input: map[string]any{"host": host, input: value}}, nil, nil)
		return outputOf(reply, err)
	}
	var facts image.Facts
	for _, q := range []struct {
		into               *string
		id                 bailey.CapabilityID
		input, value, name string
	}{
		{&facts.Release, "source.read_file", "path", image.ReleaseFile, "the release"},
		{&facts.Packages, "source.run", "command", image.PackagesCommand, "the packages"},
		{&facts.Conffiles, "source.run", "command", image.ConffilesCommand, "the configuration of packages"},
		{&facts.Files, "source.run", "command", image.FilesCommand, "the files below /etc"},
		{&facts.Sums, "source.run", "command", image.SumsCommand, "the content below /etc"},
		{&facts.Links, "source.run", "command", image.LinksCommand, "the links below /etc"},
	} {
		maker.Progress(host + ": reading " + q.name)
		out, err := call(q.id, q.input, q.value)
		if err != nil {
			return nil, err
		}
		if out.Truncated {
			return nil, bailey.Invalid.Errorf("build an image, and copy what you need with bailey sandbox cp",
				"the answer of %.80q about %s is too long", host, q.name)
		}
		*q.into = out.Stdout
	}
	plan, err := image.PlanSource(host, facts, exact, without)
	if err != nil {
		return nil, err
	}
	for n, f := range plan.Read {
		if n%20 == 0 {
			maker.Progress(fmt.Sprintf("%s: reading file %d of %d", host, n+1, len(plan.Read)))
		}
		out, err := call("source.read_file", "path", f.Path)
		if err != nil {
			return nil, err
		}
		plan.AddFile(f, out.Stdout, out.Truncated)
	}
	return plan, nil
}

// outputOf returns the output of a call that ran. An exit code beside output is no error: find fails if one directory
// is closed
// to the login that only reads.
func outputOf(r localapi.Reply, err error) (localapi.Output, error) {
	switch {
	case err != nil:
		return localapi.Output{}, err
	case r.ApprovalRequired:
		return localapi.Output{}, bailey.Denied.Errorf("approve it: bailey approve "+string(r.ApprovalID)+", and run this command again",
			"the call waits for an answer to %s", r.ApprovalID)
	case r.Result == nil:
		kind := r.Error
		if kind == "" {
			kind = bailey.Denied
		}
		return localapi.Output{}, kind.New(r.Reason, r.Hint)
	}
	if r.Result.ExitCode != 0 && r.Result.Stdout == "" {
		return localapi.Output{}, bailey.ToolFailed.Errorf("see whether the host has Debian's programs, and the login may run them",
			"the command on the host failed with the exit code %d: %.300s", r.Result.ExitCode, r.Result.Stderr)
	}
	return *r.Result, nil
}
