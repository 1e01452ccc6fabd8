package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/terminal"
)

// boxChange is a change as sandbox.diff answers.
type boxChange struct{ Kind, Action, Name, Summary, Diff string }

// boxDiff is the answer of sandbox.diff.
type boxDiff struct {
	Changes []boxChange
	Notes   []string
	Omitted []struct{ Path, Reason string }
}

const imageBoots = "the first comparison with an image lists the image in a machine of its own"

func printDiff(w io.Writer, d boxDiff) {
	if len(d.Changes) == 0 {
		fmt.Fprintln(w, "nothing has changed since the image")
	}
	for _, c := range d.Changes {
		fmt.Fprintf(w, "%-10s %-8s %s\n", c.Kind, c.Action, terminal.Shown(c.Summary))
		for line := range strings.Lines(c.Diff) {
			fmt.Fprintln(w, "    "+terminal.Shown(strings.TrimSuffix(line, "\n")))
		}
	}
	for _, n := range d.Notes {
		fmt.Fprintf(w, "note: %s\n", terminal.Shown(n))
	}
	for _, o := range d.Omitted {
		fmt.Fprintf(w, "not compared: %s: %s\n", terminal.Shown(o.Path), terminal.Shown(o.Reason))
	}
}

func (a *App) sandboxDiffVerb() *cobra.Command {
	return &cobra.Command{Use: "diff SANDBOX", Short: "Show what changed in a sandbox since its image", Args: OneArg(exampleBox), PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			call, err := a.boxCall(cmd.Context(), "diff", args[0], nil)
			if err != nil {
				return err
			}
			return a.withNotice(imageBoots, func() error { return answerCall(cmd.Context(), a, call, printDiff) })
		}}
}

// formatFlags adds the flags that select the format of an export.
func formatFlags(cmd *cobra.Command) (format func() string) {
	var shell, ansible bool
	cmd.Flags().BoolVar(&ansible, "ansible", false, "a playbook of Ansible (the default)")
	cmd.Flags().BoolVar(&shell, "shell", false, "a shell script")
	cmd.MarkFlagsMutuallyExclusive("ansible", "shell")
	return func() string {
		if shell {
			return "shell"
		}
		return "ansible"
	}
}

func (a *App) sandboxExportVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "export SANDBOX", Short: "Write what changed in a sandbox as a playbook or script",
		Long: `Print a playbook of Ansible, or with --shell a script, that makes the changes of a sandbox on a fresh machine of its
image. In what is printed, secrets and addresses are tokens, as in the output of every call. The file in the sandbox that
the last line names has no tokens: bailey sandbox cp copies it.`,
		Example: "  bailey sandbox export web --shell > fix.sh", Args: OneArg(exampleBox), PreRun: a.Warn,
	}
	format := formatFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		call, err := a.boxCall(cmd.Context(), "export", args[0], map[string]any{"format": format()})
		if err != nil {
			return err
		}
		return a.withNotice(imageBoots, func() error { return a.MakeCall(cmd.Context(), call, false) })
	}
	return cmd
}

func (a *App) sandboxVerifyVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify SANDBOX [PLAYBOOK]", Short: "Apply an export to a fresh machine, and compare it with the sandbox",
		Long: `Apply PLAYBOOK, or else what export prints, to a fresh machine of the same image, and compare that with the sandbox. The
fresh machine is destroyed. The exit code is 3 if something differs. A playbook of Ansible needs an image that has
ansible-playbook.`,
		Example: "  bailey sandbox verify web --shell", Args: cobra.RangeArgs(1, 2), PreRun: a.Warn,
	}
	format := formatFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		input := map[string]any{"format": format()}
		if len(args) == 2 {
			text, err := os.ReadFile(args[1])
			if err != nil {
				return bailey.NotFound.Wrap(err, "cannot read the playbook", "name a file that exists")
			}
			input["stdin"] = string(text)
		}
		call, err := a.boxCall(cmd.Context(), "verify", args[0], input)
		if err != nil {
			return err
		}
		return a.withNotice("a fresh machine gets the changes and is compared", func() error {
			return answerCall(cmd.Context(), a, call, func(w io.Writer, v struct{ AppliedBytes int }) {
				fmt.Fprintf(w, "verified: %d bytes make a fresh machine equal to the sandbox\n", v.AppliedBytes)
			})
		})
	}
	return cmd
}
