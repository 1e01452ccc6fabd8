// Package bench measures the gate on this machine: each step beside the physical limit, or the best other program, in the
// same run. It measures the program bailey that lies beside it or, if none does, the one in PATH.
package bench

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/gate"
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/server"
)

// Main runs the program bailey-bench, and exits.
func Main() { cli.MainOf(Root) }

// commands has the state that all commands share, and the benchmarks as methods.
type commands struct{ *cli.App }

// measuredProgram returns the path of the program that is measured.
func measuredProgram() (string, error) {
	path, err := cli.ProgramBeside("bailey")
	if err != nil {
		return "", bailey.NotFound.Wrap(err, "cannot find bailey, which is measured",
			"Install it beside bailey-bench, or in PATH.")
	}
	return path, nil
}

// Root returns the table of commands of bailey-bench.
func Root(app *cli.App) *cobra.Command {
	a := &commands{app}
	cmd := app.NewRoot("bailey-bench", "Measure the gate on this machine")
	var n int
	call := a.measureVerb(&cobra.Command{
		Use: "call", Short: "Compare a call, and each of its stages, with the program alone",
		Long: `Time system.echo through the gate, each of its stages, and the same program without the gate (row
bare: fork, exec, two captured pipes). The rows alternate in one run, with a pause between them. The calls go
to a separate ledger, in a temporary directory on the disk of TMPDIR.`,
	}, func(ctx context.Context, _ []string) ([]Row, error) { return benchCall(ctx, n) })
	call.Flags().IntVarP(&n, "n", "n", 300, "number of calls")
	cmd.AddCommand(call, a.benchLedgerVerb(), a.benchVerifyVerb(), a.benchRedactVerb(), a.benchJailVerb(),
		a.benchPolicyVerb(), a.benchBrokerVerb(),
		a.benchApprovalsVerb(), a.benchEgressVerb(), a.benchJudgeVerb(), a.benchShimVerb(), a.benchHookVerb(), a.benchMCPVerb(),
		a.benchSourceVerb(), a.benchSandboxVerb(), a.benchModelVerb(), a.benchServerVerb(), a.benchConsoleVerb())
	cli.Groups(cmd)
	return cmd
}

func benchCall(ctx context.Context, n int) ([]Row, error) {
	dir, err := os.MkdirTemp("", "bailey-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	times := map[string][]time.Duration{}
	s := &server.Server{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Bare: jail.Bare}
	defer s.Close()
	if _, err := s.NewGate(localapi.Home(dir),
		func(s gate.Step) { times[s.Stage] = append(times[s.Stage], s.Took) }); err != nil {
		return nil, err
	}
	program, err := exec.LookPath("echo")
	if err != nil {
		return nil, err
	}
	const warm = 5
	for i := range n + warm {
		if i == warm {
			clear(times)
		}
		time.Sleep(thinkTime)
		if err := timeBareRun(times, program); err != nil {
			return nil, err
		}
		time.Sleep(thinkTime)
		if err := timeEchoCall(ctx, s, times, dir); err != nil {
			return nil, err
		}
	}
	rows, _ := timeRows(times, "bare", stages...)
	return rows, nil
}

// thinkTime is the pause before each call and each bare start. The work that the gate does ahead for the next call must not
// compete with the code that is timed.
const thinkTime = 8 * time.Millisecond

func timeBareRun(times map[string][]time.Duration, program string) error {
	start := time.Now()
	cmd := exec.Command(program, "hi")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	times["bare"] = append(times["bare"], time.Since(start))
	return err
}

func timeEchoCall(ctx context.Context, s *server.Server, times map[string][]time.Duration, dir string) error {
	start := time.Now()
	res := s.Gate.Do(ctx, bailey.Call{
		Capability: "system.echo", Input: map[string]any{"message": "hi"}, Door: "bench", Dir: dir,
		Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: "s-bench"},
	})
	times["call"] = append(times["call"], time.Since(start))
	return res.Err
}

// stages lists the rows in the order of a call, with the gate's names.
var stages = []string{"bare", "call", "intent", "lookup", "restore", "check", "decide", "pre hooks", "again", "approve",
	"confirm", "budget", "lend", "run", "post hooks", "outcome"}
