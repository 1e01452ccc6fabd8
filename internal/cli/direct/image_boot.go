package direct

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/hostapi"
	"bailey/internal/image"
	"bailey/internal/localapi/apitype"
)

// bootedImage is the answer of image verify.
type bootedImage struct {
	Name    string  `json:"name"`
	Digest  string  `json:"digest"`
	Seconds float64 `json:"seconds"` // until the machine answered
}

func (a *commands) imageVerifyVerb(dir *string) *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "verify NAME", Short: "Check that an image boots",
		Long: `Compare the files of an image with their digests, start a machine from it, read the root directory there, and destroy the
machine. The first sandbox of the image is then as fast as each later one.`,
		Example: "  bailey image verify web", Args: cli.OneArg("an image, for example: bailey image verify debian"),
		ValidArgsFunction: completeImages(dir),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := openImages(*dir)
			if err != nil {
				return err
			}
			i, err := store.Get(args[0])
			if err != nil {
				return err
			}
			booted, err := a.bootImage(cmd.Context(), "image verify", i)
			if err != nil {
				return err
			}
			return a.PrintLine(booted, "%s boots: its machine answered after %.1f s\n", booted.Name, booted.Seconds)
		},
	})
}

// bootImage starts a machine from an image, reads its root directory, and destroys it. The machine also ends if this
// process does.
func (a *commands) bootImage(ctx context.Context, words string, i image.Image) (b bootedImage, err error) {
	op, gate, err := a.OperatorClient(words)
	if err != nil {
		return b, err
	}
	host, owner, err := cli.SandboxHost(gate.Home)
	if err != nil {
		return b, err
	}
	change := apitype.ImageChange{Action: "verify", Name: i.Name, Digest: i.Digest, OS: i.OS, Release: i.Release}
	if _, err := apitype.RecordImage.Do(ctx, gate, op, change); err != nil {
		return b, err
	}
	if !a.JSON {
		fmt.Fprintf(a.Stderr, "bailey: starting a machine from %s; this can take minutes\n", i.Name)
	}
	owner.Operator = false // the person owns the machine
	begin := time.Now()
	made, end, err := host.Attend(ctx, owner, hostapi.CreateRequest{Image: i.Name, Digest: i.Digest})
	if err != nil {
		return b, bailey.Unavailable.Wrapf(err, hintOf(err, i.Name), "the image %s does not boot", i.Name)
	}
	defer end(context.WithoutCancel(ctx))
	if _, err := hostapi.ListFiles.Ask(ctx, host, owner, hostapi.FileRequest{Sandbox: made.ID, Path: "/"}); err != nil {
		return b, bailey.Unavailable.Wrapf(err, hintOf(err, i.Name), "the machine of the image %s does not answer", i.Name)
	}
	return bootedImage{Name: i.Name, Digest: i.Digest, Seconds: time.Since(begin).Seconds()}, nil
}

// hintOf returns the cure of an error, or what can be done about an image that does not boot.
func hintOf(err error, name string) string {
	if hint := bailey.HintOf(err); hint != "" {
		return hint
	}
	return "remove it, and import it with another --kernel or --init: bailey image remove " + name
}
