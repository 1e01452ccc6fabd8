package direct

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/server"
	"bailey/internal/terminal"
	"bailey/internal/workspace"
)

func (a *commands) jailVerb() *cobra.Command {
	return cli.GroupVerb("jail", "Run a program in a jail, or show the plan of one", "",
		a.jailRunVerb(), a.jailExplainVerb())
}

// jailFlags holds the parsed flags of `jail run`.
type jailFlags struct {
	ro, rw, exec, env []string
	mem               string
	tasks             int
	timeout           time.Duration
	proc              bool
}

func (a *commands) jailRunVerb() *cobra.Command {
	var c jailFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG]...",
		Short: "Run a program in a jail",
		Long: `Run a program in the jail that calls get, without a capability. It sees its own files and
libraries, the paths of --ro and --rw, and nothing else; the current directory only if it is named: then it
starts there. It may execute itself and the programs of --exec. The interpreter of a script finds its own
library only if --ro shows it (for example --ro /usr/lib/python3.11). Its environment is the jail's own plus
--env.

It uses your stdin, stdout and stderr, without a limit. On a terminal it gets a terminal of its own, so that

  bailey jail run --exec ls --exec id --ro . -- bash

is a shell that shows what an agent's tool sees (--proc adds a /proc, which ps and mount need); there its time
is not limited either. Elsewhere Ctrl-C ends it with SIGTERM, and with SIGKILL after a second. The exit code
is the program's own, 128+n after signal n. With --json, a line about the jail and the result follows on
stderr.

This is an operator command: it needs a terminal, or BAILEY_OPERATOR=1 and --yes. The ledger
records jail.run first.`,
		Example: "  bailey jail run --ro . -- git status\n  bailey jail run --rw out --mem 1G --timeout 5m -- git -C $PWD/out gc",
		Args: cli.CheckArgs(startsWithDash, "jail run needs -- and then a command",
			"use: bailey jail run --ro . -- git status"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.jailRun(cmd.Context(), c, args) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.ro, "ro", nil, "show `path`, read-only; may be repeated")
	f.StringArrayVar(&c.rw, "rw", nil, "show `path`, writable; may be repeated")
	f.StringArrayVar(&c.exec, "exec", nil, "another `program` that it may execute; may be repeated")
	f.StringArrayVar(&c.env, "env", nil, "pass on a variable, `NAME` or NAME=value; may be repeated")
	f.StringVar(&c.mem, "mem", "", "limit its memory, for example 512M or 2G")
	f.IntVar(&c.tasks, "tasks", 0, "limit its processes and threads; the jail's own 16 are added")
	f.DurationVar(&c.timeout, "timeout", 0, "end it after this time, for example 90s (default 10m without a terminal)")
	f.BoolVar(&c.proc, "proc", false, "give it a /proc of its own")
	return a.YesFlag(cmd, noTerminalFlag)
}

// startsWithDash reports whether the arguments are -- and a command.
func startsWithDash(cmd *cobra.Command, args []string) bool {
	return cmd.ArgsLenAtDash() == 0 && len(args) > 0
}

// noTerminalFlag is the help for --yes of commands that ask no question, but want a terminal.
const noTerminalFlag = "run without a terminal (with BAILEY_OPERATOR=1)"

// buildJob builds the job for the cage planner from the flags. The files of job.Places are open; the caller must close them.
func (c jailFlags) buildJob(argv []string, tty bool) (job bailey.Job, err error) {
	defer func() {
		if err != nil {
			closePlaces(job.Places)
		}
	}()
	job = bailey.Job{Args: argv[1:], NeedsProc: c.proc, TTY: tty, Timeout: c.timeout,
		Limits: bailey.Limits{Tasks: c.tasks}}
	if c.tasks < 0 || c.timeout < 0 {
		return job, bailey.Invalid.New("--tasks and --timeout must be above zero",
			"leave them out for the built-in limits")
	}
	if c.mem != "" {
		if job.Limits.MemoryBytes, err = ParseSize(c.mem); err != nil {
			return job, err
		}
	}
	if job.Env, err = resolveEnv(c.env, os.LookupEnv); err != nil {
		return job, err
	}
	if job.Command, err = programPath(argv[0]); err != nil {
		return job, err
	}
	for _, name := range c.exec {
		if name, err = programPath(name); err != nil {
			return job, err
		}
		job.Exec = append(job.Exec, name)
	}
	for i, path := range slices.Concat(c.ro, c.rw) {
		place, err := openNamed(path, i >= len(c.ro))
		if err != nil {
			return job, err
		}
		job.Places = append(job.Places, place)
	}
	job.Dir = startDir(job.Places)
	// without it a shell prints a warning and treats bytes as characters
	job.Read = append(job.Read, "/usr/lib/locale/C.utf8")
	if tty {
		forTerminal(&job, os.Getenv("TERM"))
	}
	return job, nil
}

// openNamed opens the path of an --ro or --rw flag. It does not open a home directory, or a parent of one, for writing:
// a program could leave start-up files there, such as .bashrc, that run outside the cage later.
func openNamed(path string, write bool) (bailey.Place, error) {
	if path == "" {
		return bailey.Place{}, bailey.Invalid.New("an empty path was given to --ro or --rw",
			"name a file or a directory; . is the current one")
	}
	place, err := workspace.OpenPlace(path, write)
	if err != nil || !write {
		return place, err
	}
	for _, home := range workspace.Homes() {
		if home == place.Path || strings.HasPrefix(home, strings.TrimSuffix(place.Path, "/")+"/") {
			place.File.Close()
			return bailey.Place{},
				bailey.Denied.New("--rw "+place.Path+
					" would let the program leave start-up files that run outside its jail",
					"name a directory below "+home)
		}
	}
	return place, nil
}

func closePlaces(places []bailey.Place) {
	for _, p := range places {
		p.File.Close()
	}
}

// programPath returns a name without a slash, for the cage's PATH, unchanged. It makes a path absolute.
func programPath(name string) (string, error) {
	if !strings.Contains(name, "/") {
		return name, nil
	}
	return filepath.Abs(name)
}

// startDir returns the current directory if it lies in one of places, else "".
func startDir(places []bailey.Place) string {
	here, err := workspace.OpenPlace(".", false)
	if err != nil {
		return ""
	}
	defer here.File.Close()
	for _, p := range places {
		if here.Path == p.Path || strings.HasPrefix(here.Path, p.Path+"/") {
			return here.Path
		}
	}
	return ""
}

// forTerminal adds TERM, if term is a plain word, and the one terminfo file that describes it. The default timeout
// becomes 100 years: a person ends the program, not a timer.
func forTerminal(job *bailey.Job, term string) {
	const endless = 100 * 365 * 24 * time.Hour
	if job.Timeout == 0 {
		job.Timeout = endless
	}
	if !plainWord(term) || slices.ContainsFunc(job.Env, func(v string) bool { return strings.HasPrefix(v, "TERM=") }) {
		return
	}
	job.Env = append(job.Env, "TERM="+term)
	for _, dir := range []string{"/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo"} { // terminfo(5)
		job.Read = append(job.Read, filepath.Join(dir, term[:1], term))
	}
}

func plainWord(s string) bool {
	return len(s) > 0 && len(s) <= 64 && s[0] != '.' && strings.IndexFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.ContainsRune("._+-", c))
	}) < 0
}

// ParseSize parses a size in bytes: a number, with K, M or G as powers of 1024, and at least 1 MiB.
func ParseSize(s string) (int64, error) {
	number, shift := s, 0
	for i, unit := range []string{"K", "M", "G"} {
		if n, ok := strings.CutSuffix(s, unit); ok {
			number, shift = n, 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	const least = 1 << 20
	if err != nil || n > 1<<62>>shift || n<<shift < least {
		return 0, bailey.Invalid.Errorf("write a whole number with K, M or G, as in 512M or 2G; the minimum is 1M",
			"%q is not a size of memory", s)
	}
	return int64(n << shift), nil
}

// resolveEnv resolves --env arguments. NAME without a value gets the value of the current environment, where it must be
// set.
func resolveEnv(words []string, here func(string) (string, bool)) ([]string, error) {
	var env []string
	for _, w := range words {
		name, _, given := strings.Cut(w, "=")
		if !given {
			value, ok := here(name)
			if !ok {
				return nil, bailey.Invalid.Errorf("set it, or write --env NAME=value",
					"--env %s: this variable is not set", name)
			}
			w = name + "=" + value
		}
		env = append(env, w)
	}
	return env, nil
}

// jailRun plans a cage, records it in the ledger, and runs the program from this process, on the user's own streams.
func (a *commands) jailRun(ctx context.Context, c jailFlags, argv []string) error {
	op, client, err := a.OperatorClient("jail run")
	if err != nil {
		return err
	}
	cages, err := server.OpenJail(workspace.Masks(string(client.Home), workspace.Homes()), nil)
	if err != nil {
		return err
	}
	defer cages.Close()
	job, err := c.buildJob(argv, terminal.Is(os.Stdin) && terminal.Is(os.Stdout))
	if err != nil {
		return err
	}
	defer closePlaces(job.Places)
	run, err := cages.Plan(ctx, job)
	if err != nil {
		return err
	}
	defer run.Close()
	cage := run.Cage()
	if _, err := apitype.RecordJailRun.Do(ctx, client, op, cli.NewJailQuery(argv, job, cage)); err != nil {
		return err
	}
	if !a.JSON {
		a.printCageLimits(job, cage)
	}
	exit, err := a.runInCage(ctx, run, job.TTY, bailey.Lent{})
	if err != nil {
		return err
	}
	return a.reportExit(cage, exit)
}

// runInCage runs the program on the streams of this process or, if tty is set, on a new terminal that is connected to
// them.
func (a *commands) runInCage(ctx context.Context, run bailey.Run, tty bool, lent bailey.Lent) (bailey.Exit, error) {
	ctx, stop := gracefulContext(ctx)
	defer stop()
	if !tty {
		return run.Start(ctx, lent, bailey.Streams{Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr})
	}
	con, err := openConsole(os.Stdin, os.Stdout)
	if err != nil {
		return bailey.Exit{Code: bailey.NeverRan},
			bailey.Unavailable.Wrap(err, "cannot create a terminal for the tool",
				"make sure that /dev/ptmx can be opened, or redirect the tool's input")
	}
	defer con.close()
	return run.Start(ctx, lent, bailey.Streams{TTY: con.slave})
}

// gracefulContext returns a context that ends with ctx or on SIGQUIT, and leaves the tool time to exit by itself
// ([bailey.Gentle]).
func gracefulContext(ctx context.Context) (context.Context, func()) {
	ctx, forget := terminal.UntilSignal(ctx, syscall.SIGQUIT)
	gentle, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unwatch := context.AfterFunc(ctx, func() { cancel(bailey.Gentle{Cause: context.Cause(ctx)}) })
	return gentle, func() { unwatch(); forget(); cancel(nil) }
}

// printCageLimits prints the limits of the cage before a terminal is handed over. Otherwise it only reports a cage that is not
// full.
func (a *commands) printCageLimits(job bailey.Job, cage bailey.Cage) {
	words := fmt.Sprintf("cage %s, %d layers", cage.Kind, len(cage.Layers))
	if job.TTY {
		words += "; bound: " + placesText(job.Places) + "; " + mayRun(job) + "; exit ends it"
	}
	if cage.Lesser != "" {
		words += "; not the full jail: " + cage.Lesser
	}
	if job.TTY || cage.Kind != "full" {
		fmt.Fprintln(a.Stderr, "bailey: "+terminal.Shown(words))
	}
}

func placesText(places []bailey.Place) string {
	var list []string
	for _, p := range places {
		list = append(list, p.Path+map[bool]string{false: " (read-only)", true: " (writable)"}[p.Write])
	}
	return cmp.Or(strings.Join(list, ", "), "none of your files")
}

func mayRun(job bailey.Job) string {
	if len(job.Exec) == 0 {
		return "only " + filepath.Base(job.Command) + " may run, --exec ls adds more"
	}
	list := []string{filepath.Base(job.Command)}
	for _, e := range job.Exec {
		list = append(list, filepath.Base(e))
	}
	return strings.Join(list, ", ") + " may run, --exec adds more"
}

// jailResult is the final JSON line of `jail run --json` on standard error.
type jailResult struct {
	OK bool `json:"ok"`
	bailey.Cage
	ExitCode int  `json:"exitCode"`
	TimedOut bool `json:"timedOut,omitempty"`
}

// reportExit reports how the program ended and returns its exit code.
func (a *commands) reportExit(cage bailey.Cage, e bailey.Exit) error {
	switch {
	case a.JSON:
		enc := json.NewEncoder(a.Stderr)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(jailResult{OK: e.Code == 0 && !e.TimedOut, Cage: cage, ExitCode: e.Code,
			TimedOut: e.TimedOut}); err != nil {
			return err
		}
	case e.TimedOut:
		a.Say(string(bailey.ToolFailed), "the tool timed out and was killed", "raise --timeout, or make it faster")
	}
	return cli.ExitUnless(e.Code == 0, cli.Exit(e.Code), nil)
}

// layerWords describes the purpose of each isolation layer. docs/jail.md has the details.
var layerWords = map[string]string{
	"userns":        "uid and gid 1000 inside, without rights outside",
	"mountns":       "mounts of its own",
	"pidns":         "only its own processes are visible; all end with the call",
	"netns":         "a network without an interface",
	"ipcns":         "shared memory and queues of its own",
	"utsns":         "a separate host name",
	"cgroupns":      "sees no control group but its own",
	"session":       "no controlling terminal",
	"init-guarded":  "the launcher is out of the tool's reach",
	"root-readonly": "a root with only the tool's own files",
	"tmp-private":   "an empty /tmp and HOME, removed after the call",
	"dev-private":   "only harmless devices",
	"proc-private":  "a /proc that shows only the jail",
	"binds-noexec":  "the paths of the call, without execution",
	"masks":         "secrets in visible directories, hidden",
	"kept":          "protected files in writable directories",
	"keyring":       "none of your keys",
	"rlimits":       "limits on tasks, memory and files",
	"cgroup":        "limits on memory, tasks and processor for all processes together",
	"watcher":       "memory and tasks monitored for all processes together",
	"fds-closed":    "only its three streams open",
	"caps-none":     "no capability",
	"no-new-privs":  "no new privileges from any program",
	"landlock":      "files, ports and signals restricted once more",
	"seccomp":       "no system call that a tool does not need",
	"ids":           "an id without rights or groups",
	"subreaper":     "its child processes end with it",
	"exec-once":     "it starts itself and nothing else",
	"env-listed":    "the program, with a listed environment",
}

func (a *commands) jailExplainVerb() *cobra.Command {
	var inputs []string
	var warm bool
	cmd := &cobra.Command{
		Use:   "explain CAPABILITY [-i key=value]... [--warm]",
		Short: "Print the plan of the jail of a call",
		Long: `Print the plan of the jail that a call would get: one step a line, numbered in the order of execution,
grouped by layer. The digest is the one in the receipt of the same call. It only reads:
nothing is decided or run, and there is no receipt.

If a plan is used again, it gets a warm helper. With --warm: the steps done once, the steps done for each
call, and every system call of the two processes that the helper starts, in order and with the line of the
plan that it belongs to.`,
		Example: "  bailey jail explain git.status -i repo=.\n  bailey jail explain git.status -i repo=. --warm",
		Args:    cli.OneArg("a capability, for example: bailey jail explain git.status -i repo=."),
	}
	cmd.Flags().StringArrayVarP(&inputs, "input", "i", nil, "an input, `key=value`; may be repeated")
	cmd.Flags().BoolVar(&warm, "warm", false, "show the steps of a warm helper")
	return cli.QueryVerb(a.App, cmd, apitype.PlanCage, func(args []string) (localapi.CallQuery, error) {
		input, err := apitype.ParseInputs(inputs)
		return localapi.CallQuery{Capability: bailey.CapabilityID(args[0]), Input: input, Text: true}, err
	}, func(w io.Writer, p apitype.CagePlan) {
		if warm {
			printWarmPlan(w, p)
		} else {
			printPlan(w, p)
		}
	})
}

func printPlan(w io.Writer, p apitype.CagePlan) {
	if p.Kind == bailey.Uncaged {
		fmt.Fprintf(w, "no jail: %s would run with all rights of its user\n", terminal.Shown(p.Binary))
		return
	}
	fmt.Fprintf(w, "cage %s, plan %s\n", p.Kind, p.PlanDigest)
	for _, word := range []struct {
		what string
		list []string
	}{{"absent here", p.Absent}, {"lacking", p.Lacks}} {
		if len(word.list) > 0 {
			fmt.Fprintf(w, "%s: %s\n", word.what, terminal.Shown(strings.Join(word.list, ", ")))
		}
	}
	if p.Lesser != "" {
		fmt.Fprintln(w, "not the full jail: "+terminal.Shown(p.Lesser))
	}
	if len(p.Plan) == 0 {
		fmt.Fprintln(w, "the plan names a secret, so its text is withheld")
	}
	for _, layer := range append(slices.Clone(p.Layers), "") {
		printLayer(w, layer, p.Plan)
	}
}

// warmWords describes when, and by which process, a step is done.
var warmWords = []struct{ when, words string }{
	{"once", "once, by the helper, which no tool can reach"},
	{"call", "for each call, by the helper, in new namespaces"},
	{"init", "for each call, by the first process in them: these system calls"},
	{"tool", "for each call, by the process that becomes the tool: these system calls"},
}

func printWarmPlan(out io.Writer, p apitype.CagePlan) {
	fmt.Fprintf(out, "cage %s, plan %s\n", p.Kind, p.PlanDigest)
	if len(p.Warm) == 0 {
		fmt.Fprintln(out, "no helper serves this plan: each call gets a new jail")
	}
	for _, w := range warmWords {
		for i, s := range slices.DeleteFunc(slices.Clone(p.Warm),
			func(s bailey.WarmStep) bool { return s.When != w.when }) {
			if i == 0 {
				fmt.Fprintln(out, w.words)
			}
			text, line := s.Text, ""
			if text == "" && s.Line <= len(p.Plan) {
				text = p.Plan[s.Line-1].Text
			}
			if s.Line > 0 {
				line = strconv.Itoa(s.Line)
			}
			fmt.Fprintf(out, "  %3s  %s\n", line, terminal.CutLine(text))
		}
	}
}

// printLayer prints one layer with its steps, which keep their numbers from the plan. Long lines, such as a seccomp filter,
// are cut; --json prints them in full.
func printLayer(w io.Writer, name string, steps []apitype.PlanStep) {
	title := fmt.Sprintf("%-13s  %s", name, layerWords[name])
	if name == "" {
		title = "scaffolding"
	}
	fmt.Fprintln(w, strings.TrimSpace(title))
	for i, s := range steps {
		if s.Layer == name {
			fmt.Fprintf(w, "  %3d  %s\n", i+1, terminal.CutLine(s.Text))
		}
	}
}
