package cli

import (
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"bailey"
)

// benchProgram is the name of the program with the benchmarks.
const benchProgram = "bailey-bench"

// benchVerb starts bailey-bench, which is a program of its own so that the benchmarks are no part of the product.
func (a *App) benchVerb() *cobra.Command {
	return &cobra.Command{
		Use: "bench", Short: "Measure the gate on this machine", DisableFlagParsing: true,
		Long: `Measure the gate on this machine. The benchmarks are a program of their own, bailey-bench, which this
command starts with all its arguments: bailey bench --help lists them.`,
		RunE: func(_ *cobra.Command, args []string) error { return a.execBench(args) },
	}
}

func (a *App) execBench(args []string) error {
	program, err := ProgramBeside(benchProgram)
	if err != nil {
		return bailey.NotFound.Wrap(err, "cannot start "+benchProgram,
			"Install it beside bailey: go install bailey/cmd/bailey-bench")
	}
	return execProgram(program, append([]string{benchProgram}, args...))
}

// ProgramBeside returns the absolute path of another program of Bailey: the one beside this program, whose version is the
// same, or else the one in PATH.
func ProgramBeside(name string) (string, error) {
	name += programSuffix
	self, _ := os.Executable() // "" if unknown
	for _, path := range []string{self, os.Args[0]} {
		beside := filepath.Join(filepath.Dir(path), name)
		if _, err := os.Stat(beside); err == nil && filepath.Base(path) != path {
			return filepath.Abs(beside)
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
