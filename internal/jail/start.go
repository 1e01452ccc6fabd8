//go:build linux

package jail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

const (
	probeTime = 10 * time.Second // an empty cage takes milliseconds
	drainTime = time.Second      // for output still in the pipes when nothing of the run lives
)

// run is a planned job. It holds the descriptors of what was checked, so that no inode of theirs is
// given to another file before Close.
type run struct {
	jail    *Jail
	plan    *plan
	cage    bailey.Cage
	env     []string
	argc    int
	tty     bool // planned with a terminal
	timeout time.Duration
	pinned  []pinned            // what is executed as it lies there
	copied  map[string]*copied  // what is executed as a copy, by path
	places  map[string]*os.File // by path; nil once closed
	frozen  map[string]*os.File // what files held when they were asked about, by path
	absent  []unhidden          // what would be hidden if it were there
	files   []string            // variables of the files that will be lent
	loan    loan                // those files, while it runs
	way     bailey.Way          // the other side of its network, while it runs
	broke   error               // how that ended before its time
	large   bool                // its words are more than any helper takes
	started atomic.Bool
	cpu     time.Duration   // that its processes took
	net     *bailey.Network // nil: none
	lesser  string          // why it is the lesser cage, "" for the full one
	nest    *nest           // of the lesser cage, while it runs
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
		r.jail.tools.copies.release(c)
	}
	r.places, r.frozen, r.pinned, r.copied = nil, nil, nil, nil
	return errors.Join(errs...)
}

// Start runs the tool and returns when PID 1 of its cage is gone, and so everything that was in it.
//
// When ctx ends a running tool, the
// error is ctx's cause and the code 137; with [bailey.Gentle] for a cause the tool may end by itself. A reader in s.Stdin may be read once more after Start returns.
func (r *run) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	if r.started.Swap(true) || r.places == nil {
		return never, &bailey.Error{Kind: bailey.Conflict, Message: "this run was started already, or closed"}
	}
	if r.tty != (s.TTY != nil) {
		return never, &bailey.Error{Kind: bailey.Internal, Message: "a terminal is not what this run was planned with"}
	}
	env, err := lend(r.env, r.plan.lent, lent.Env)
	if err != nil {
		return never, err
	}
	if r.loan, err = borrow(r.files, lent.Files); err != nil {
		return never, err
	}
	defer func() { r.loan.giveBack() }()
	if err := r.join(lent.Way); err != nil {
		return never, err
	}
	for _, p := range r.pinned {
		if now, err := fileIdent(p.file); err != nil || now != p.id {
			return never, changed(p.file.Name(), err)
		}
	}
	if err := r.hidden(); err != nil {
		return never, err
	}
	last := r.plan.steps[len(r.plan.steps)-1]
	return r.live(ctx, append(last.S[:1+r.argc:1+r.argc], env...), s)
}

// never is the exit of a tool that did not run.
var never = bailey.Exit{Code: bailey.NeverRan}

// live builds the cage, feeds and drains it, and waits for its end. The words are the last step's, where it has
// any: the program, its arguments, its environment.
func (r *run) live(ctx context.Context, words []string, s bailey.Streams) (exit bailey.Exit, err error) {
	if err := ctx.Err(); err != nil {
		return never, err
	}
	h := r.helper(ctx) // which may be at work while the pipes are made
	p, err := openPipes(s)
	if err != nil {
		r.giveBack(h)
		return never, &bailey.Error{Kind: bailey.Unavailable, Message: "no pipes for the tool's streams", Err: err}
	}
	p.feed(s)
	e, begun := r.serve(ctx, h, words, s, p)
	if !begun && !e.timedOut && !e.cancelled {
		p.pump(s)
		e, err = r.cold(ctx, words, p)
	}
	closeAll(p.inner[:])
	p.finish()
	if err != nil {
		return never, err
	}
	r.cpu = e.cpu
	if exit, err = r.judge(ctx, e); err == nil {
		err = r.broke
	}
	return exit, err
}

// CPU is what bailey.MeteredRun says.
func (r *run) CPU() time.Duration { return r.cpu }

// cold runs the call in a cage that nothing was built of before.
func (r *run) cold(ctx context.Context, words []string, p *pipes) (e ending, err error) {
	defer r.warmUp()
	steps := r.plan.wire()
	if last := &steps[len(steps)-1]; len(last.S) > 0 {
		last.S = words
	}
	leave, err := r.settle(steps)
	if err != nil {
		return ending{}, err
	}
	defer func() {
		if lerr := leave(); lerr != nil && err == nil {
			err = &bailey.Error{Kind: bailey.Internal, Message: "the call's private directory could not be removed", Err: lerr,
				Hint: "see what holds " + r.nest.path + "; the next gateway removes it"}
		}
	}()
	if err := r.number(steps); err != nil {
		return ending{}, err
	}
	message, err := letter(steps)
	if err != nil {
		return ending{}, err
	}
	out := r.outside(ctx)
	defer func() { r.broke = out.close() }()
	var opened []*os.File
	e, err = r.jail.carry(ctx, r.plan, message, func(uid int) ([]*os.File, error) { // anew each time: a mount is attached once
		donated, err := r.donate(steps, uid)
		opened = append(opened, donated...)
		return append(p.inner[:3:3], donated...), err
	}, out, r.timeout)
	closeAll(opened)
	return e, err
}

// settle makes a lesser cage's private directory, until leave, and fills in what is known only now: where that
// is, and how many tasks its user has.
func (r *run) settle(steps []inside.Step) (leave func() error, err error) {
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
			s.S = append(s.S[:from:from], nested(s.S[from:], r.nest.path)...)
		}
	}
	return r.nest.remove, nil
}

// judge turns how PID 1 ended into how the tool ended.
func (r *run) judge(ctx context.Context, e ending) (bailey.Exit, error) {
	switch {
	case e.failed:
		if e.step >= len(r.plan.steps) {
			return never, &bailey.Error{Kind: bailey.Internal, Message: "the cage reported a step that it was not given"}
		}
		return never, refused(r.plan.steps[e.step], e.errno)
	case e.started && e.exited:
		return bailey.Exit{Code: shellCode(e.status), TimedOut: e.timedOut, Over: e.over}, nil
	case e.started && e.cancelled:
		return bailey.Exit{Code: 128 + int(unix.SIGKILL)}, context.Cause(ctx)
	case e.started:
		return bailey.Exit{Code: 128 + int(unix.SIGKILL), TimedOut: e.timedOut, Over: e.over}, nil
	case e.over != "":
		return never, &bailey.Error{Kind: bailey.Unavailable, Message: e.over + " before it began", Hint: "raise memoryMiB or tasks in the manifest"}
	case e.cancelled:
		return never, context.Cause(ctx)
	case e.timedOut:
		return never, &bailey.Error{Kind: bailey.Unavailable, Message: "the time was up before the cage was built"}
	}
	if r.plan.lesser {
		return never, refuse("init-guarded", fmt.Errorf("the keeper ended before it could say why: %s", e.last))
	}
	return never, refuse("pidns", fmt.Errorf("PID 1 ended before it could say why: %s", e.last))
}

// shellCode is how a shell would say it: 128+n after signal n.
func shellCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// wire is the plan as PID 1 gets it. The steps may be changed by whoever asked for them.
func (p *plan) wire() []inside.Step {
	steps := make([]inside.Step, len(p.steps))
	for i, s := range p.steps {
		steps[i] = inside.Step{Op: s.Op, N: append([]uint64(nil), s.N...), S: s.S}
	}
	return steps
}

// duplicate returns a descriptor of its own for an open file.
func duplicate(f *os.File) (*os.File, error) {
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

func closeAll[C io.Closer](files []C) {
	for _, f := range files {
		f.Close()
	}
}
