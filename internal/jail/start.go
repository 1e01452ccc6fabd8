//go:build linux

package jail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

const (
	probeTime = 10 * time.Second // an empty cage takes milliseconds
)

// run is a planned job. It holds the descriptors of everything that was checked, so that the kernel cannot reuse their
// inodes for other files before Close.
type run struct {
	jail    *Jail
	plan    *plan
	cage    bailey.Cage
	env     []string
	argc    int
	tty     bool // planned with a terminal
	timeout time.Duration
	pinned  []pinned            // files executed in place
	copied  map[string]*copied  // files executed as a copy, by path
	places  map[string]*os.File // by path; nil once closed
	frozen  map[string]*os.File // contents of files at the time of the approval, by path
	absent  []unhidden          // masked paths that did not exist
	files   []string            // variables of the files that will be lent
	loan    lentFiles           // those files, while it runs
	way     bailey.Way          // the other side of its network, while it runs
	broke   error               // the error with which that ended too early
	large   bool                // arguments and environment exceed the limit of helpers
	started atomic.Bool
	cpu     time.Duration   // used by its processes
	net     *bailey.Network // nil: none
	lesser  string          // why it is the lesser cage; "" for the full one
	nest    *scratchDir     // of the lesser cage, while it runs
}

func (r *run) Cage() bailey.Cage { return r.cage }

func (r *run) Close() error {
	var errs []error
	for _, f := range r.places {
		errs = append(errs, f.Close())
	}
	for _, f := range r.frozen {
		errs = append(errs, f.Close())
	}
	for _, p := range r.pinned {
		errs = append(errs, p.file.Close())
	}
	for _, c := range r.copied {
		r.jail.tools.copies.releaseCopy(c)
	}
	r.places, r.frozen, r.pinned, r.copied = nil, nil, nil, nil
	return errors.Join(errs...)
}

// Start runs the tool and returns when PID 1 of its cage, and so every process in it, is gone.
//
// If ctx ends a running tool, the error is the cause of ctx and the code is 137; if the cause is [bailey.Gentle], the
// tool may end by itself. A reader in s.Stdin may be read once more after Start returns.
func (r *run) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	if r.started.Swap(true) || r.places == nil {
		return never, bailey.Conflict.New("this run was already started or closed", "")
	}
	if r.tty != (s.TTY != nil) {
		return never, bailey.Internal.New("the run was planned without this terminal", "")
	}
	env, err := cageRules.addLent(r.env, r.plan.lent, lent.Env)
	if err != nil {
		return never, err
	}
	if r.loan, err = sealLentFiles(r.files, lent.Files); err != nil {
		return never, err
	}
	defer func() { r.loan.giveBack() }()
	if err := r.attachNetwork(lent.Way); err != nil {
		return never, err
	}
	for _, p := range r.pinned {
		if now, err := fileIdent(p.file); err != nil || now != p.id {
			return never, changedError(p.file.Name(), err)
		}
	}
	if err := r.checkStillAbsent(); err != nil {
		return never, err
	}
	last := r.plan.steps[len(r.plan.steps)-1]
	return r.runInCage(ctx, append(last.S[:1+r.argc:1+r.argc], env...), s)
}

// runInCage builds the cage, passes input and output, and waits for the end. words are the strings of the last step, if it
// has any: the program, its arguments, its environment.
func (r *run) runInCage(ctx context.Context, words []string, s bailey.Streams) (exit bailey.Exit, err error) {
	if err := ctx.Err(); err != nil {
		return never, err
	}
	p, err := openStreams(s)
	if err != nil {
		return never, bailey.Unavailable.Wrap(err, "cannot create pipes for the tool's streams", "")
	}
	p.feedStdin(s)
	e, begun := r.jail.warm.serve(ctx, r, words, s, p)
	if !begun && !e.timedOut && !e.cancelled {
		p.startReading(s)
		e, err = r.runInNewCage(ctx, words, p)
	}
	closeAll(p.inner[:])
	p.waitAndClose()
	if err != nil {
		return never, err
	}
	r.cpu = e.cpu
	if exit, err = r.deriveExit(ctx, e); err == nil {
		err = r.broke
	}
	return exit, err
}

func (r *run) CPU() time.Duration { return r.cpu }

// Warm returns the parts of the plan that a warm helper carries out, in order: first the steps before the first call,
// then for each call the helper's own steps and every system call of the two processes that it starts. If no helper can
// serve the plan, Warm returns nil.
func (r *run) Warm() []bailey.WarmStep {
	if !r.plan.warm {
		return nil
	}
	return warmSteps(r.plan)
}

// runInNewCage runs the call in a cage of which nothing was built before.
func (r *run) runInNewCage(ctx context.Context, words []string, p *pipes) (e cageResult, err error) {
	defer r.jail.warm.prepareNext(r)
	out := r.newNetworkPeer(ctx)
	defer func() { r.broke = out.stopServing() }()
	return r.sendRequest(words, p, func(message []byte, files filesFor) (cageResult, error) {
		return r.jail.executeRequest(ctx, r.plan, message, files, out, r.timeout)
	})
}

// filesFor opens the descriptors that go with a start request, for a cage whose user has uid outside.
type filesFor func(uid int) ([]*os.File, error)

// sendRequest prepares the start request of a new cage and executes it.
func (r *run) sendRequest(words []string, p *pipes,
	execute func(message []byte, files filesFor) (cageResult, error)) (e cageResult, err error) {
	steps := r.plan.wireSteps()
	if last := &steps[len(steps)-1]; len(last.S) > 0 {
		last.S = words
	}
	leave, err := r.prepareScratchDir(steps)
	if err != nil {
		return cageResult{}, err
	}
	defer func() {
		if lerr := leave(); lerr != nil && err == nil {
			err = bailey.Internal.Wrap(lerr, "cannot remove the call's private directory",
				"check what uses "+r.nest.path+"; the next gateway removes it")
		}
	}()
	if err := r.numberDescriptors(steps); err != nil {
		return cageResult{}, err
	}
	message, err := encodeStartRequest(steps)
	if err != nil {
		return cageResult{}, err
	}
	var opened []*os.File
	// opened again for each attempt: a mount can be attached only once
	e, err = execute(message, func(uid int) ([]*os.File, error) {
		donated, err := r.openDescriptors(steps, uid)
		opened = append(opened, donated...)
		return append(p.inner[:3:3], donated...), err
	})
	closeAll(opened)
	return e, err
}

// executeRequest makes one PID 1 execute a start request. files opens the descriptors that go with it, again for each
// attempt. If a PID 1 that was started in advance could not build its cage, nothing has run, so executeRequest tries
// once more with a new one. out is nil if the cage has no network; sockets of a failed attempt are not reused.
func (j *Jail) executeRequest(ctx context.Context, p *plan, message []byte, files filesFor, out *networkPeer,
	timeout time.Duration) (cageResult, error) {
	if p.lesser {
		if err := j.enterSubreaper(); err != nil {
			return cageResult{}, err
		}
		defer j.leaveSubreaper()
	}
	built := j.waitForBuildSlot(ctx)
	defer built()
	deadline := time.Now().Add(timeout)
	if c := j.warm.takeFirstProcess(p.lesser); c != nil {
		c.out, c.built = out, built
		e, err := j.runChild(ctx, c, p.bounds, message, files, timeout)
		if err != nil || e.started || e.cancelled || e.timedOut {
			return e, err
		}
		out.dropListeners()
	}
	c, err := j.spawnChild(initName(p.lesser))
	if err != nil {
		return cageResult{}, err
	}
	c.out, c.built = out, built
	return j.runChild(ctx, c, p.bounds, message, files, time.Until(deadline))
}

// waitForBuildSlot waits until the call's cage may be built: if two hundred are built at once, each takes as long as all of them,
// and the time of its tool is up before the tool begins. The caller must call built when the cage is built. A cage that
// takes longer than buildTime, for example because a file system hangs, does not hold up other calls any more.
func (j *Jail) waitForBuildSlot(ctx context.Context) (built func()) {
	select {
	case j.building <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	}
	leave := sync.OnceFunc(func() { <-j.building })
	late := time.AfterFunc(buildTime, leave)
	return func() { late.Stop(); leave() }
}

const (
	maxBuilding = 8 // concurrent builds per processor
	buildTime   = 5 * time.Second
)

// runChild bounds the child, opens the descriptors, follows the child to its end, and ends the processes that a keeper
// could not end.
func (j *Jail) runChild(ctx context.Context, c *child, b bounds, message []byte, files filesFor,
	timeout time.Duration) (cageResult, error) {
	if err := c.applyBounds(b); err != nil {
		c.closeAndWait()
		return cageResult{}, err
	}
	with, err := files(c.user.uid)
	if err != nil {
		c.closeAndWait()
		return cageResult{}, err
	}
	e := c.runToEnd(ctx, message, with, timeout)
	if c.keeper && !e.orderly {
		j.gathering.Lock()
		endOrphans()
		j.gathering.Unlock()
	}
	return e, nil
}

// initName returns the name that starts a call's first process.
func initName(lesser bool) string {
	if lesser {
		return inside.Keeper
	}
	return inside.Name
}

// prepareScratchDir makes the private directory of a lesser cage, which exists until leave, and fills in the values that are known
// only now: the path of that directory, and the number of tasks that the user has.
func (r *run) prepareScratchDir(steps []inside.Step) (leave func() error, err error) {
	if !r.plan.lesser {
		return func() error { return nil }, nil
	}
	if r.nest, err = newNest(r.jail.nests, r.jail.hostUID, r.jail.hostGID); err != nil {
		return nil, err
	}
	for i := range steps {
		switch s := &steps[i]; s.Op {
		case inside.Tasks:
			room := uint64(tasksOf(r.jail.hostUID)) + s.N[1] + ownTasks*r.jail.callsNow()
			s.N[0] = min(room, r.plan.ceiling(unix.RLIMIT_NPROC))
		case inside.Become:
			from := 1 + s.N[0]
			s.S = append(s.S[:from:from], withHomeDir(s.S[from:], r.nest.path)...)
		}
	}
	return r.nest.removeDir, nil
}

// deriveExit derives the end of the tool from the end of PID 1.
func (r *run) deriveExit(ctx context.Context, e cageResult) (bailey.Exit, error) {
	switch {
	case e.failed:
		if e.step >= len(r.plan.steps) {
			return never, bailey.Internal.New("the jail reported a step that is not in its plan", "")
		}
		return never, stepError(r.plan.steps[e.step], e.errno)
	case e.started && e.exited:
		return bailey.Exit{Code: shellCode(e.status), TimedOut: e.timedOut, Over: e.over}, nil
	case e.started && e.cancelled:
		return bailey.Exit{Code: 128 + int(unix.SIGKILL)}, context.Cause(ctx)
	case e.started:
		return bailey.Exit{Code: 128 + int(unix.SIGKILL), TimedOut: e.timedOut, Over: e.over}, nil
	case e.over != "":
		return never, bailey.Unavailable.New(e.over+" before it started", "raise memoryMiB or tasks in the manifest")
	case e.cancelled:
		return never, context.Cause(ctx)
	case e.timedOut:
		return never, bailey.Unavailable.New("the time was up before the jail was built", "")
	}
	if r.plan.lesser {
		return never, layerUnavailable("init-guarded",
			fmt.Errorf("the supervisor ended without a reason: %s", e.last))
	}
	return never, layerUnavailable("pidns", fmt.Errorf("PID 1 ended without a reason: %s", e.last))
}

// wireSteps returns the plan for PID 1. The caller may change the steps.
func (p *plan) wireSteps() []inside.Step {
	steps := make([]inside.Step, len(p.steps))
	for i, s := range p.steps {
		steps[i] = inside.Step{Op: s.Op, N: append([]uint64(nil), s.N...), S: s.S}
	}
	return steps
}

// openStreams returns the streams of the tool: pipes, or the terminal that was made for the run.
func openStreams(s bailey.Streams) (*pipes, error) {
	if s.TTY == nil {
		return openPipes(s)
	}
	p := &pipes{}
	for i := range p.inner {
		var err error
		if p.inner[i], err = duplicateFile(s.TTY); err != nil {
			closeAll(p.inner[:])
			return nil, err
		}
	}
	return p, nil
}

// makePipe returns a read end and a write end. The end with index ours, 0 or 1, does not block, so that closing it
// interrupts a read; the end of the tool blocks, as a tool expects.
func makePipe(ours int) (r, w *os.File, err error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	unix.SetNonblock(fd[ours], true)
	return os.NewFile(uintptr(fd[0]), "pipe"), os.NewFile(uintptr(fd[1]), "pipe"), nil
}

// duplicateFile returns a new descriptor of an open file; the caller must close it.
func duplicateFile(f *os.File) (*os.File, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, dupErr := -1, error(nil)
	if err := raw.Control(func(old uintptr) {
		fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil || dupErr != nil {
		return nil, errors.Join(err, dupErr)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
