package direct

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/workspace"
)

func (a *commands) jailVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "jail", Short: "The cage itself: run a program in one, read its plan"}
	cmd.AddCommand(a.jailRunVerb(), a.jailExplainVerb())
	return cmd
}

// caged holds the parsed flags of `jail run`.
type caged struct {
	ro, rw, exec, env []string
	mem               string
	tasks             int
	timeout           time.Duration
	proc, yes         bool
}

func (a *commands) jailRunVerb() *cobra.Command {
	var c caged
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG]...",
		Short: "Run a program in a cage of your own",
		Long: `Run a program in the cage that calls get, without a capability. It sees its own files and libraries,
what --ro and --rw name, and nothing else; not the current directory either, unless that is named: then it
starts there. It may execute itself and what --exec names. The interpreter of a script finds its own library only where
--ro shows it (--ro /usr/lib/python3.11, say). Its environment is the cage's own and what --env names.

Its streams are yours, without a bound. On a terminal it gets one of its own, so that

  bailey jail run --exec ls --exec id --ro . -- bash

is a shell that shows what an agent's tool sees (--proc adds a /proc, which ps and mount want); there its time is not bounded either. Ctrl-C elsewhere ends it with
SIGTERM, and with SIGKILL after a second. The exit code is the program's own, 128+n after signal n. With
--json a line about the cage and the end follows on stderr.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes. The ledger's event jail.run comes first.`,
		Example: "  bailey jail run --ro . -- git status\n  bailey jail run --rw out --mem 1G --timeout 5m -- git -C $PWD/out gc",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 || len(args) == 0 {
				return &bailey.Error{Kind: bailey.Invalid, Message: "jail run wants -- and then a command", Hint: "write: bailey jail run --ro . -- git status"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.jailRun(cmd.Context(), c, args) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.ro, "ro", nil, "show `path`, read-only; may be repeated")
	f.StringArrayVar(&c.rw, "rw", nil, "show `path`, writable; may be repeated")
	f.StringArrayVar(&c.exec, "exec", nil, "a further `program` that it may execute; may be repeated")
	f.StringArrayVar(&c.env, "env", nil, "pass a variable on, `NAME` or NAME=value; may be repeated")
	f.StringVar(&c.mem, "mem", "", "bound its memory, as in 512M or 2G")
	f.IntVar(&c.tasks, "tasks", 0, "bound its processes and threads; the cage's own 16 come on top")
	f.DurationVar(&c.timeout, "timeout", 0, "end it after this time, as in 90s; 10m when it is not on a terminal")
	f.BoolVar(&c.proc, "proc", false, "give it a /proc of its own")
	f.BoolVar(&c.yes, "yes", false, "do not want a terminal (with BAILEY_OPERATOR=1)")
	return cmd
}

// job builds the job for the cage planner from the flags. The files of job.Places are open; the caller must close them.
func (c caged) job(argv []string, tty bool) (job bailey.Job, err error) {
	defer func() {
		if err != nil {
			closePlaces(job.Places)
		}
	}()
	job = bailey.Job{Args: argv[1:], NeedsProc: c.proc, TTY: tty, Timeout: c.timeout, Limits: bailey.Limits{Tasks: c.tasks}}
	if c.tasks < 0 || c.timeout < 0 {
		return job, &bailey.Error{Kind: bailey.Invalid, Message: "--tasks and --timeout are above zero", Hint: "leave them out for the built-in bounds"}
	}
	if c.mem != "" {
		if job.Limits.MemoryBytes, err = ParseSize(c.mem); err != nil {
			return job, err
		}
	}
	if job.Env, err = passed(c.env, os.LookupEnv); err != nil {
		return job, err
	}
	if job.Command, err = program(argv[0]); err != nil {
		return job, err
	}
	for _, name := range c.exec {
		if name, err = program(name); err != nil {
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
		return bailey.Place{}, &bailey.Error{Kind: bailey.Invalid, Message: "an empty path was given to --ro or --rw", Hint: "name a file or a directory; . is the current one"}
	}
	place, err := workspace.OpenPlace(path, write)
	if err != nil || !write {
		return place, err
	}
	for _, home := range workspace.Homes() {
		if home == place.Path || strings.HasPrefix(home, strings.TrimSuffix(place.Path, "/")+"/") {
			place.File.Close()
			return bailey.Place{}, &bailey.Error{Kind: bailey.Denied, Message: "--rw " + place.Path + " would let the program leave start-up files that run outside its cage",
				Hint: "name a directory below " + home}
		}
	}
	return place, nil
}

func closePlaces(places []bailey.Place) {
	for _, p := range places {
		p.File.Close()
	}
}

// program returns a name without a slash, for the cage's PATH, unchanged. It makes a path absolute.
func program(name string) (string, error) {
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
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._+-", c))
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
		return 0, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%q is no size of memory", s), Hint: "write a whole number with K, M or G, as in 512M or 2G; the least is 1M"}
	}
	return int64(n << shift), nil
}

// passed resolves --env arguments. NAME without a value gets the value of the current environment, where it must be
// set.
func passed(words []string, here func(string) (string, bool)) ([]string, error) {
	var env []string
	for _, w := range words {
		name, _, given := strings.Cut(w, "=")
		if !given {
			value, ok := here(name)
			if !ok {
				return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("--env %s: there is no such variable here", name),
					Hint: "set it, or write --env NAME=value"}
			}
			w = name + "=" + value
		}
		env = append(env, w)
	}
	return env, nil
}
