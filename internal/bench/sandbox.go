package bench

import (
	"context"

	"github.com/spf13/cobra"

	"bailey"
)

// sandboxBench is what bailey bench sandbox measures.
type sandboxBench struct {
	image          string
	n, idle, burst int
	memory         int
	emulated       bool
}

func (a *commands) benchSandboxVerb() *cobra.Command {
	var b sandboxBench
	cmd := a.measureVerb(&cobra.Command{
		Use: "sandbox", Short: "Compare sandboxes with the smallest script that resumes QEMU",
		Long: `Time sandboxes of an image: the first one, which boots (row cold), one from the warm template until its first
command has ended (clone) beside QEMU resumed by a script with the same arguments and no host, limits or new
identity (raw-resume), a command (exec), a file of 1 MB (write-1MB), and destroy. Row density is the memory that
each of --idle sandboxes has for itself, and burst the time of --burst sandboxes that are created at once. The
sandboxes belong to a separate host, in a temporary directory on the disk of TMPDIR. The image needs /bin/true.`,
		Example: "  bailey bench sandbox --image minimal",
	}, func(ctx context.Context, _ []string) ([]Row, error) {
		if b.n < 1 || b.idle < 1 || b.burst < 1 {
			return nil, bailey.Invalid.New("-n, --idle and --burst must be at least 1", "leave them out for the defaults")
		}
		return b.measureSandboxes(ctx)
	})
	cmd.Flags().StringVar(&b.image, "image", "", "an `image` of bailey image list")
	cmd.Flags().IntVarP(&b.n, "n", "n", 20, "number of operations of each row")
	cmd.Flags().IntVar(&b.idle, "idle", 10, "number of sandboxes for the row density")
	cmd.Flags().IntVar(&b.burst, "burst", 10, "number of sandboxes for the row burst")
	cmd.Flags().IntVar(&b.memory, "memory", 0, "memory of a sandbox in MB; 0 is the default of sandboxes")
	cmd.Flags().BoolVar(&b.emulated, "emulated", false, "do not use KVM")
	return cmd
}

// missingSandboxes are the rows if sandboxes cannot be measured.
func missingSandboxes(why string) (rows []Row) {
	for _, name := range []string{"cold", "raw-resume", "clone", "exec", "write-1MB", "destroy", "density", "burst"} {
		rows = append(rows, Row{Name: name, Note: why})
	}
	return rows
}
