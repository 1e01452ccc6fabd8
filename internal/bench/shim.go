package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/localapi"
)

// shimOverTool is the time in microseconds that a shim may take beyond its tool.
const shimOverTool = 10_000.0

func (a *commands) benchShimVerb() *cobra.Command {
	var b jailBench
	cmd := a.measureVerb(&cobra.Command{
		Use: "shim", Short: "Compare a shim with its tool",
		Long: `Time git status as a shell starts it, from the start of the process to its end, in random order
with a pause before each:

  tool     the tool itself
  version  this program's start alone
  shim     the same line through a shim, with a running gateway: decided, in a new jail, with its receipt

A shim may take ten milliseconds longer than its tool. The benchmark uses a separate home in the user's cache
directory.`,
	}, func(ctx context.Context, _ []string) ([]Row, error) {
		times, err := b.measureShim(ctx, a.Progress("measuring"))
		if err != nil {
			return nil, err
		}
		return shimRows(times), nil
	})
	cmd.Flags().IntVarP(&b.turns, "n", "n", 200, "number of runs of each row")
	return cmd
}

func (b *jailBench) measureShim(ctx context.Context,
	tell func(done, all int64)) (times map[string][]time.Duration, err error) {
	if err := b.checkTurns(); err != nil {
		return nil, err
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "git is not installed", "install git, which this benchmark times")
	}
	self, err := measuredProgram()
	if err != nil {
		return nil, err
	}
	// Not below /tmp: each cage has a private /tmp, so no helper serves files there.
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(cache, "bailey-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	home, project := filepath.Join(dir, "home"), filepath.Join(dir, "project")
	shim := filepath.Join(home, "shims", "git")
	env := append(os.Environ(), "BAILEY_HOME="+home, "GIT_CONFIG_GLOBAL="+os.DevNull, "BAILEY_SESSION=",
		"BAILEY_TOKEN=")
	start := func(name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = project, env
		if out, err := cmd.CombinedOutput(); err != nil {
			return orSignal(ctx, fmt.Errorf("%s: %w: %s", name, err, out))
		}
		return nil
	}
	if err := os.Mkdir(project, 0o700); err != nil {
		return nil, err
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	if err := cli.InstallShim(localapi.Home(home), "git"); err != nil {
		return nil, err
	}
	if err := start(git, "init", "-q"); err != nil {
		return nil, err
	}
	defer start(self, "gateway", "stop")
	row := func(name string, argv ...string) way {
		return way{name: name, do: func(context.Context) ([]time.Duration, error) {
			begun := time.Now()
			err := start(argv[0], argv[1:]...)
			return []time.Duration{time.Since(begun)}, err
		}}
	}
	return b.measureWays(ctx, []way{row("tool", git, "status"), row("version", self, "--version"), row("shim", shim, "status")}, tell)
}

func shimRows(times map[string][]time.Duration) []Row {
	rows, p50 := timeRows(times, "tool", "tool", "version", "shim")
	shim := rows[2].comparedTo("tool + 10 ms", p50["shim"], p50["tool"]+shimOverTool, 1)
	return append(rows, shim)
}
