package jail

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"bailey"
)

// bare runs a call's program directly, on a platform that has no cage. The program gets arguments that were rendered
// once, without a shell, a fixed list of variables, pipes as streams, an empty HOME, and a process group that ends with
// the call. Nothing else restricts it: it can access every file and every host that its user can. If Seatbelt exists, a
// call that writes nothing runs under a profile; see seatbeltProfile for its limits. Policy must name these kinds,
// "none" and "seatbelt", before a call may run this way.
//
// Linux builds it too, for [None] and for its tests. No other code there may use it (TestLinuxNeverRunsBare): a missing
// layer must be a refusal, and an attacker would aim for a runner without a cage that a call of another isolation could
// reach.
//
// No receipt says enforced: true for it. With "none" nothing is enforced. The profiles of "seatbelt" follow the
// available knowledge of Apple's profiles and are tested as text only. No escape from one has been attempted yet, and
// an untested property must not be claimed.
type bare struct {
	bailey.PlainRunner
	path     string        // PATH for finding commands, and of the tool
	mask     []string      // canonical paths that no call gets
	seatbelt string        // sandbox-exec(1); "" if there is no Seatbelt
	grace    time.Duration // between SIGTERM and SIGKILL; zero is [DefaultGrace]
}

// bareRun is a planned job.
type bareRun struct {
	bailey.PlainRun
	program *bareProgram
	cage    bailey.Cage
	argv    []string // argv[0] first
	sandbox string   // sandbox-exec(1), if profile is set
	profile string
	env     []string // without HOME
	lent    []string // names of variables that are added at the start
	dir     string   // "" means HOME
	timeout time.Duration
	grace   time.Duration // between SIGTERM and SIGKILL
	places  []bailey.Place
	cpu     time.Duration // set when the run has ended
	started atomic.Bool
	closed  atomic.Bool
}

// bareFromConfig checks cfg and returns the runner for it.
func bareFromConfig(cfg Config) (b *bare, err error) {
	if cfg.Mask, err = cfg.cleanMasks(); err != nil {
		return nil, err
	}
	if b, err = newBare(cfg); err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot find the system's programs", "")
	}
	b.grace = cfg.Grace
	return b, nil
}

// Plan finds, opens and checks everything that job needs. It starts nothing.
func (b *bare) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := b.checkJob(job); err != nil {
		return nil, err
	}
	env, err := bareRules.addDeclared(
		[]string{"PATH=" + b.path, "USER=bailey", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TZ=UTC"}, job.Env)
	if err != nil {
		return nil, err
	}
	r := &bareRun{env: env, lent: job.EnvNames, dir: job.Dir, timeout: job.Timeout,
		grace: cmp.Or(b.grace, DefaultGrace), places: slices.Clone(job.Places),
		argv: append([]string{job.Command}, job.Args...)}
	if r.timeout <= 0 {
		r.timeout = bailey.DefaultTimeout
	}
	if r.program, err = b.openCommand(job.Command); err != nil {
		return nil, err
	}
	r.cage = bailey.Cage{Kind: bailey.Uncaged, Binary: r.program.path, BinaryDigest: r.program.digest}
	writes := slices.ContainsFunc(job.Places, func(p bailey.Place) bool { return p.Write })
	if b.seatbelt != "" && !writes {
		if err := b.applySeatbelt(r, job); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// applySeatbelt gives the run a Seatbelt profile.
func (b *bare) applySeatbelt(r *bareRun, job bailey.Job) error {
	if _, err := os.Stat(b.seatbelt); err != nil {
		return bailey.Unavailable.Wrap(err, "no sandbox: "+b.seatbelt+" is missing",
			"repair the system: it is part of macOS")
	}
	var helpers, read []string
	programs := []bailey.Program{{Path: r.program.path, SHA256: r.program.digest}}
	for _, command := range job.Exec {
		h, err := b.openCommand(command)
		if err != nil {
			return err
		}
		helpers, programs = append(helpers, h.path), append(programs, bailey.Program{Path: h.path, SHA256: h.digest})
		h.file.Close()
	}
	for _, p := range job.Places {
		read = append(read, p.Path)
	}
	for _, p := range slices.Concat(job.Read, job.Libs) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			read = append(read, real)
		} else if !errors.Is(err, os.ErrNotExist) { // missing paths are left out, as in a cage
			return bailey.Unavailable.Wrap(err, p+" cannot be shown to the tool", "")
		}
	}
	hidden := slices.DeleteFunc(slices.Clone(b.mask), func(m string) bool {
		return !slices.ContainsFunc(read, func(p string) bool { return bareBeneath(p, m) })
	})
	text, err := callProfile(r.program.path, helpers, read, hidden).renderProfile()
	if err != nil {
		return err
	}
	r.sandbox, r.profile = b.seatbelt, text
	r.cage.Kind, r.cage.Plan, r.cage.PlanDigest, r.cage.Programs = "seatbelt", text, textDigest(text), programs
	return nil
}

// checkJob refuses masked places and requests that this runner cannot fulfil.
func (b *bare) checkJob(job bailey.Job) error {
	if job.NeedsProc {
		return bailey.Unavailable.New(string(job.Capability)+" needs its own /proc, which this platform does not have",
			"make the call on Linux")
	}
	if job.Network != nil || job.Wall != nil {
		return bailey.Unavailable.New(string(job.Capability)+
			" may reach only certain hosts, which this platform cannot enforce",
			"make the call on Linux")
	}
	if len(job.Hide) > 0 {
		return bailey.Unavailable.New(string(job.Capability)+" hides a file from its tool, which is impossible here",
			"make the call on Linux")
	}
	if len(job.FileNames) > 0 {
		return bailey.Unavailable.New(string(job.Capability)+
			" is lent a file in memory, which this platform cannot keep for one call",
			"make the call on Linux")
	}
	if slices.ContainsFunc(job.Places, func(p bailey.Place) bool { return p.Frozen != nil }) {
		return bailey.Unavailable.New(string(job.Capability)+
			" needs a file exactly as a person was shown it, which this platform cannot provide",
			"make the call on Linux")
	}
	if slices.ContainsFunc(slices.Concat([]string{job.Command}, job.Args),
		func(a string) bool { return strings.Contains(a, "\x00") }) {
		return bailey.Invalid.New("an argument contains a NUL byte", "")
	}
	at := job.Dir == ""
	for _, p := range job.Places {
		if p.File == nil {
			return bailey.Internal.New(p.Path+" has no open descriptor", "")
		}
		at = at || bareBeneath(p.Path, job.Dir)
		for _, m := range b.mask {
			_, err := os.Lstat(m)
			there := !errors.Is(err, os.ErrNotExist)
			if bareBeneath(m, p.Path) || there && bareBeneath(p.Path, m) && (b.seatbelt == "" || p.Write) {
				return bailey.Denied.New(p.Path+" is masked, or contains "+m+", which cannot be hidden here",
					"keep the files of the call apart from "+m)
			}
		}
	}
	if !at {
		return bailey.Invalid.Errorf("it must be one of the call's path inputs, or lie below one",
			"working directory %q is not in any path input", job.Dir)
	}
	return nil
}

// bareBeneath reports whether path is dir or lies in it. Case does not count: if the result leads to a refusal, a false
// match costs nothing, and a working directory comes from the same source as the place it is compared with.
func bareBeneath(dir, path string) bool {
	const sep = string(filepath.Separator)
	dir, path = strings.ToLower(dir), strings.ToLower(path)
	return dir == path || strings.HasPrefix(path, strings.TrimSuffix(dir, sep)+sep)
}

func (r *bareRun) Cage() bailey.Cage { return r.cage }

func (r *bareRun) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	return r.program.file.Close()
}

// None runs the calls of capabilities whose manifest says isolation: none, which policy permits only through that
// waiver. On a platform with cages it is the only runner without one, and only under its own isolation does a call
// reach it, so that no other call falls back to it. Protections that need no cage are as in one: the program is found
// on a constant PATH, must be writable by root alone, and is compared with its digest before it starts; it has the
// declared and lent variables, pipes as streams, an empty HOME, a session that ends with the call, and no other
// descriptor. Apart from that it may do all that the gateway's user may do.
type None struct{ *bare }

// NewNone returns a None. It starts no process and changes no file.
func NewNone(cfg Config) (*None, error) {
	b, err := bareFromConfig(cfg)
	if err != nil {
		return nil, err
	}
	b.seatbelt = "" // isolation none means no profile on any platform
	return &None{b}, nil
}

// Plan finds, opens and checks everything that job needs. It starts nothing. The receipt says that no layer holds.
func (n *None) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	frozen := slices.ContainsFunc(job.Places, func(p bailey.Place) bool { return p.Frozen != nil })
	if onlyCaged(job) || frozen {
		return nil, bailey.Internal.New(string(job.Capability)+" runs without a jail, but has settings that need one",
			"report it: its manifest should not have loaded")
	}
	run, err := n.bare.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	r := run.(*bareRun)
	// The programs are compared with those of earlier calls.
	r.cage.Programs = []bailey.Program{{Path: r.cage.Binary, SHA256: r.cage.BinaryDigest}}
	return r, nil
}

// onlyCaged reports whether job needs a feature that only a cage has.
func onlyCaged(job bailey.Job) bool {
	return job.Wall != nil || job.Network != nil || job.TTY || job.NeedsProc || job.Limits != (bailey.Limits{}) ||
		len(job.Read)+len(job.Libs)+len(job.Exec)+len(job.Hide)+len(job.FileNames) > 0
}

// CPU returns the processor time of the program and of those children for which it waited.
func (r *bareRun) CPU() time.Duration { return r.cpu }

// Uncaged runs a program that a person exempted from the cage by name. The program has the listed variables, pipes as
// streams, a session of its own that ends with it, and all rights of the gateway's user. No call of an agent may reach
// it.
type Uncaged struct {
	bailey.PlainRunner
	Grace time.Duration // between SIGTERM and SIGKILL; zero is [DefaultGrace]
}

// uncaged is a planned run of Uncaged.
type uncaged struct {
	bailey.PlainRun
	job     bailey.Job
	program string
	grace   time.Duration
	started atomic.Bool
}

// Plan finds the program. It refuses a job that needs a cage.
func (u Uncaged) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if onlyCaged(job) || len(job.Places) > 0 {
		return nil, bailey.Internal.New("a program without a jail has settings that need one", "")
	}
	program, err := findUncaged(job.Command)
	if err != nil {
		return nil, err
	}
	return &uncaged{job: job, program: program, grace: cmp.Or(u.Grace, DefaultGrace)}, nil
}

// findUncaged looks up a bare name where a cage would, and takes an absolute path as it is.
func findUncaged(command string) (string, error) {
	path, err := lookUpCommand(command, searchPath)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(path); err != nil || !bareRunnable(info) {
		return "", bailey.Unavailable.Wrap(err, command+" is not a program",
			"give it a #! line and mode 755, or name another")
	}
	return path, nil
}

// Cage says that the run has no cage.
func (*uncaged) Cage() bailey.Cage { return bailey.Cage{Kind: bailey.Uncaged} }

func (*uncaged) Close() error { return nil }

// Start runs the program and returns when its session has been ended. A process that began another session is not
// found.
func (r *uncaged) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	if r.started.Swap(true) {
		return never, bailey.Conflict.New("this run was already started", "")
	}
	if err := ctx.Err(); err != nil {
		return never, err
	}
	timeout := r.job.Timeout
	if timeout <= 0 {
		timeout = bailey.DefaultTimeout
	}
	cmd := &exec.Cmd{Path: r.program, Args: append([]string{r.job.Command}, r.job.Args...), Dir: r.job.Dir,
		Env: append(r.job.Env[:len(r.job.Env):len(r.job.Env)], lent.Env...)}
	return bareLive(ctx, cmd, r.program, runTimes{timeout, r.grace}, s)
}
