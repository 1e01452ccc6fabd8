package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"bailey"
	"bailey/internal/cli/direct"
	"bailey/internal/gateway"
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/server"
)

const (
	jailPause   = 5 * time.Millisecond // before each timed step: background work of the previous call must be done
	helperTime  = 2 * time.Second      // a helper starts within about 20 ms, or does not start
	benchPeriod = 200 * time.Microsecond
	maxTurns    = 1_000_000
)

// jailBench holds the state that the rows of bench jail share.
type jailBench struct {
	turns   int
	heap    string
	command []string // path and arguments of the program
	chosen  bool     // chosen by the user; if not, it is true(1)

	once    int    // counts the runs in cages without a helper
	dir     string // temporary directory of the benchmark
	self    string // path of this program
	warm    *jail.Jail
	closing []func()
}

// A way is a row: one way to run the program. Each run returns its time, or that of each of its lanes.
type way struct {
	name  string
	begin func(context.Context) error // runs once, not timed: prepares, or returns why the way is not possible
	do    func(context.Context) ([]time.Duration, error)
}

func (a *commands) benchJailVerb() *cobra.Command {
	var b jailBench
	cmd := a.measureVerb(&cobra.Command{
		Use: "jail [-- COMMAND [ARG]...]", Short: "Compare a jail with the program alone, and in bubblewrap",
		Long: `Run a program (default true) repeatedly in each of these ways, in random order with a pause before
each:

  bare           fork, exec, two captured pipes, as Go's os/exec does it
  ondemand       plan and run in a jail of a warm helper that prepared nothing for the call
  warm           the same as calls get it: the helper builds jails in advance while it waits
  parked         the same, and the plan was also made in advance
  warm-2workers  two at once on one jail, each with its own pause
  cold           the process bailey run system.echo (it runs printf), including the entries of the ledger
  cold-jail      the process bailey jail run -- COMMAND
  cold-cage      plan and run in a jail with nothing prepared in advance, in this process
  wall           the same in the jail of an agent, with the host's programs, a project and a home
  bwrap          bwrap --unshare-all --new-session --ro-bind / / -- COMMAND, if it is installed
  bwrap-dev      the same with --dev /dev, instead of bwrap if the program fails without devices

The gateway of the cold rows is in this process, with a separate home in TMPDIR. A row is compared with bare;
then the time that it adds to bare is compared with the time that bwrap adds; then the row is compared with
its limit. If a program cannot run in a way, or fails there, that row is missing and the reason is printed.
With --heap this process holds as much memory, full of pointers, as a gateway that has run for a long time.`,
		Example: "  bailey bench jail\n  bailey bench jail --json -n 500 --heap 1G -- git --version",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return bailey.Invalid.New("bench jail needs -- before a command",
					"use: bailey bench jail -- git --version")
			}
			return nil
		},
	}, func(ctx context.Context, args []string) ([]Row, error) {
		a.After = ""
		b.chosen, b.command = len(args) > 0, args
		return b.measureJail(ctx, a.Progress("measuring"))
	})
	cmd.Flags().IntVarP(&b.turns, "n", "n", 2000, "number of runs of each row")
	cmd.Flags().StringVar(&b.heap, "heap", "", "memory that this process holds during the runs, for example 1G")
	return cmd
}

// measureJail measures each way that works on this machine.
func (b *jailBench) measureJail(ctx context.Context, tell func(done, all int64)) (rows []Row, err error) {
	if err := b.checkTurns(); err != nil {
		return nil, err
	}
	if b.heap != "" {
		size, err := direct.ParseSize(b.heap)
		if err != nil {
			return nil, err
		}
		defer runtime.KeepAlive(allocateHeap(size))
	}
	defer b.tearDown()
	if err := b.setUp(); err != nil {
		return nil, err
	}
	var ways []way
	var absent []Row
	for _, w := range b.jailWays() {
		switch err := b.tryWay(ctx, w); {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil:
			ways = append(ways, w)
		case errors.Is(err, errNeedless):
		case len(ways) == 0:
			return nil, bailey.Invalid.Errorf("measure a program that succeeds, with its arguments",
				"%s: %v", b.command[0], err)
		default:
			absent = append(absent, Row{Name: w.name, Note: err.Error()})
		}
	}
	times, err := b.runTurns(ctx, ways, tell)
	if err != nil {
		return nil, err
	}
	rows = newJailRows(times)
	rows[0].Note = strings.Join(b.command, " ")
	return append(rows, absent...), nil
}

// jailLimits holds the limits of what a way may add to bare, of what bwrap adds, and then of the ratio to another row.
var (
	jailLimits = map[string]float64{"ondemand": 0.14, "warm": 0.10, "parked": 0.05}
	jailRatios = map[string]struct {
		of    string
		limit float64
	}{"warm-2workers": {"warm", 1.10}, "wall": {"cold-cage", 2.0}, "cold": {"bwrap", 1.0}, "cold-jail": {"bwrap", 1.0}}
)

// newJailRows compares each way with bare, with what bwrap adds to bare, and with the row that a limit names. If that row is
// missing, there is no ratio.
func newJailRows(times map[string][]time.Duration) (rows []Row) {
	base, p50 := timeRows(times, "bare", "bare", "ondemand", "warm", "parked", "warm-2workers", "cold", "cold-jail", "cold-cage",
		"wall", "bwrap", "bwrap-dev")
	bwrap := "bwrap"
	if p50[bwrap] == 0 {
		bwrap = "bwrap-dev"
	}
	for _, row := range base {
		rows = append(rows, row)
		if limit := jailLimits[row.Name]; limit > 0 || row.Name != "bare" && p50[bwrap] > 0 {
			rows = append(rows, row.comparedTo(bwrap+" - bare", row.P50-p50["bare"], p50[bwrap]-p50["bare"], limit))
		}
		if r, ok := jailRatios[row.Name]; ok {
			if r.of == "bwrap" {
				r.of = bwrap
			}
			rows = append(rows, row.comparedTo(r.of, row.P50, p50[r.of], r.limit))
		}
	}
	return rows
}

// checkTurns rejects a number of turns below one or above maxTurns.
func (b *jailBench) checkTurns() error {
	if b.turns < 1 || b.turns > maxTurns {
		return bailey.Invalid.Errorf(fmt.Sprintf("use a number from 1 to %d", maxTurns), "%d times", b.turns)
	}
	return nil
}

// measureWays tries all ways and then measures them. It fails if one way is not possible.
func (b *jailBench) measureWays(ctx context.Context, ways []way,
	tell func(done, all int64)) (map[string][]time.Duration, error) {
	for _, w := range ways {
		if err := b.tryWay(ctx, w); err != nil {
			return nil, orSignal(ctx, fmt.Errorf("row %s: %w", w.name, err))
		}
	}
	return b.runTurns(ctx, ways, tell)
}

// runTurns runs every way b.turns times, in random order within each turn.
func (b *jailBench) runTurns(ctx context.Context, ways []way,
	tell func(done, all int64)) (map[string][]time.Duration, error) {
	times, order := map[string][]time.Duration{}, slices.Clone(ways)
	for i := range b.turns {
		if tell != nil {
			tell(int64(i), int64(b.turns))
		}
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, w := range order {
			time.Sleep(jailPause)
			took, err := w.do(ctx)
			if err != nil {
				return nil, orSignal(ctx, fmt.Errorf("row %s: %w", w.name, err))
			}
			times[w.name] = append(times[w.name], took...)
		}
	}
	return times, nil
}

// orSignal returns the cause of ctx if ctx ends within 100 ms, otherwise err. A signal from the terminal ends the
// program at the same time, and must be reported instead.
func orSignal(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(100 * time.Millisecond):
		return err
	}
}

func (b *jailBench) setUp() (err error) {
	if !b.chosen {
		b.command = []string{"true"}
	}
	path, err := exec.LookPath(b.command[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return bailey.Invalid.Wrapf(err, "give the name of a program on PATH, or its path", "there is no program %s", b.command[0])
	}
	b.command = slices.Concat([]string{path}, b.command[1:])
	if b.self, err = measuredProgram(); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "bailey-bench"); err != nil {
		return err
	}
	b.closing = append(b.closing, func() { os.RemoveAll(b.dir) })
	return nil
}

func (b *jailBench) tearDown() {
	for _, f := range slices.Backward(b.closing) {
		f()
	}
}

// jailWays returns the ways in the order of the rows. The other rows are compared with the first.
func (b *jailBench) jailWays() []way {
	var ondemand, lanes *jail.Jail
	open := func(j **jail.Jail, cfg jail.Config) func(context.Context) error {
		return func(ctx context.Context) (err error) { *j, err = b.openJail(ctx, cfg); return err }
	}
	cold := b.timeProcess([]string{b.self, "run", "system.echo", "-i", "message=hi"})
	if b.chosen {
		cold = func(context.Context) ([]time.Duration, error) {
			return nil, errors.New("no capability runs " + filepath.Base(b.command[0]) + "; see row cold-jail")
		}
	}
	bwrap := way{name: "bwrap", do: b.timeBwrap()}
	return slices.Concat([]way{
		{name: "bare", do: b.timeProcess(b.command)},
		{"ondemand", open(&ondemand, jail.Config{OnDemand: true}), func(ctx context.Context) ([]time.Duration, error) { return b.timeCall(ctx, ondemand) }},
		{"warm", open(&b.warm, jail.Config{}), func(ctx context.Context) ([]time.Duration, error) { return b.timeCall(ctx, b.warm) }},
		{"parked", b.hasWarm, b.timeParkedCall},
		{"warm-2workers", open(&lanes, jail.Config{}), func(ctx context.Context) ([]time.Duration, error) { return b.timeTwoLanes(ctx, lanes) }},
		{"cold", b.openGateway, cold},
		{name: "cold-jail", do: b.timeProcess(slices.Concat([]string{b.self, "jail", "run", "--yes", "--"}, b.command))},
	}, b.agentJailWays(), []way{
		bwrap,
		{"bwrap-dev", func(ctx context.Context) error {
			if _, err := exec.LookPath("bwrap"); err != nil || b.tryWay(ctx, bwrap) == nil {
				return errNeedless
			}
			return nil
		}, b.timeBwrap("--dev", "/dev")},
	})
}

// errNeedless means that a way is skipped because another row represents it.
var errNeedless = errors.New("another row represents it")

func (b *jailBench) timeBwrap(more ...string) func(context.Context) ([]time.Duration, error) {
	words := strings.Fields("bwrap --unshare-all --new-session --ro-bind / /")
	return b.timeProcess(slices.Concat(words, more, []string{"--"}, b.command))
}

// tryWay prepares a way and runs it three times, so that later runs see a steady state.
func (b *jailBench) tryWay(ctx context.Context, w way) error {
	if w.begin != nil {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	for range 3 {
		if _, err := w.do(ctx); err != nil {
			return orSignal(ctx, err)
		}
	}
	return nil
}

// timeProcess runs the program as a separate process. If it is bailey, its environment selects the gateway of the
// benchmark.
func (b *jailBench) timeProcess(argv []string) func(context.Context) ([]time.Duration, error) {
	return func(ctx context.Context) ([]time.Duration, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		if argv[0] == b.self {
			cmd.Args[0] = "bailey"
			cmd.Env = append(os.Environ(), "BAILEY_OPERATOR=1", "BAILEY_HOME="+string(b.homeDir()))
		}
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		start := time.Now()
		err := cmd.Run()
		took := time.Since(start)
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			err = exitError(exit.ExitCode(), &stderr)
		}
		return []time.Duration{took}, cmp.Or(err, context.Cause(ctx))
	}
}

// exitError returns why the time of a program does not count.
func exitError(code int, stderr *bytes.Buffer) error {
	if code == 0 {
		return nil
	}
	line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
	return errors.New(strings.TrimSuffix(fmt.Sprintf("it ended with code %d: %s", code, line), ": "))
}

func (b *jailBench) homeDir() localapi.Home { return localapi.Home(filepath.Join(b.dir, "home")) }

// openGateway runs a gateway until the benchmark ends.
func (b *jailBench) openGateway(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // without a gateway, a cold process would start another, which would stay
	s, err := server.New(ctx, b.homeDir(), server.Commands{}, gateway.NewRedaction(),
		slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return s.Serve(ctx) })
	b.closing = append(b.closing, func() { end(); g.Wait() })
	return nil
}
