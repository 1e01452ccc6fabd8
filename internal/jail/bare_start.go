package jail

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"bailey"
)

// bareDrain is how long output in the pipes is read after the run has ended.
const bareDrain = time.Second

// bareNever is the exit of a program that did not run.
var bareNever = bailey.Exit{Code: bailey.NeverRan}

// Start runs the program and returns when its group has been ended. A process that the system let leave the group is
// not found: without a pid namespace it cannot be traced to the run. A reader in s.Stdin may be read once more after
// Start returns.
func (r *bareRun) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (exit bailey.Exit, err error) {
	if r.started.Swap(true) || r.closed.Load() {
		return bareNever, bailey.Conflict.New("this run was started already, or closed", "")
	}
	env, err := bareLend(r.env, r.lent, lent.Env)
	if err != nil {
		return bareNever, err
	}
	if err := errors.Join(ctx.Err(), r.checkUnchanged()); err != nil {
		return bareNever, err
	}
	home, err := os.MkdirTemp("", "bailey-call-")
	if err != nil {
		return bareNever, bailey.Unavailable.Wrap(err, "the call's HOME cannot be made",
			"free some space in "+os.TempDir())
	}
	defer func() {
		if left := os.RemoveAll(home); left != nil && err == nil {
			err = bailey.Unavailable.Wrap(left, "the call's HOME cannot be removed", "remove "+home)
		}
	}()
	real, err := filepath.EvalSymlinks(home) // profiles apply to the canonical path
	if err != nil {
		return bareNever, err
	}
	cmd := r.buildCommand(real, env)
	defer func() {
		if cmd.ProcessState != nil {
			r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
	}()
	return bareLive(ctx, cmd, r.program.path, bareTimes{r.timeout, r.grace}, s)
}

// buildCommand returns the command to execute, sandbox-exec(1) first if there is a profile. The program is passed to it by
// its absolute path, which cannot look like an option.
func (r *bareRun) buildCommand(home string, env []string) *exec.Cmd {
	cmd := &exec.Cmd{Path: r.program.path, Args: r.argv, Env: append(env, "HOME="+home), Dir: r.dir}
	for _, p := range r.places {
		if p.Path == r.dir {
			cmd.Dir = bareDir(p)
		}
	}
	if cmd.Dir == "" {
		cmd.Dir = home
	}
	if r.profile != "" {
		cmd.Path = r.sandbox
		cmd.Args = append([]string{r.sandbox, "-D", "HOME=" + home, "-p", r.profile, r.program.path}, r.argv[1:]...)
	}
	return cmd
}

// checkUnchanged compares the program and the places with the files that were checked. Without bind mounts no more can be
// done: if a file is replaced after this comparison, the new one is used.
func (r *bareRun) checkUnchanged() error {
	if !r.program.isUnchanged() {
		return bailey.Conflict.New(r.program.path+" is no longer what was checked", "call again")
	}
	for _, p := range r.places {
		checked, err := p.File.Stat()
		now, err2 := os.Lstat(p.Path)
		if err != nil || err2 != nil || !os.SameFile(checked, now) {
			return bailey.Conflict.Wrap(errors.Join(err, err2), p.Path+" is no longer what was checked",
				"call again")
		}
	}
	return nil
}

// bareTimes holds how long a program may run, and how long it may then take to end.
type bareTimes struct{ timeout, grace time.Duration }

// bareLive starts a program, feeds and drains it, and waits for its end.
func bareLive(ctx context.Context, cmd *exec.Cmd, program string, times bareTimes,
	s bailey.Streams) (bailey.Exit, error) {
	p, err := openBarePipes(cmd, s)
	if err != nil {
		return bareNever, bailey.Unavailable.Wrap(err, "no pipes for the tool's streams", "")
	}
	g, err := bareLaunch(cmd)
	p.handOver()
	if err != nil {
		p.waitAndClose()
		return bareNever, bailey.Unavailable.Wrap(err, program+" could not be started",
			"check that it is a program for this machine")
	}
	p.startCopying(s)
	timedOut, cancelled := g.waitForExit(ctx, cmd, times)
	g.killAll() // all processes that it left behind
	cmd.Wait()  // sets cmd.ProcessState
	g.closeHandle()
	p.waitAndClose()
	if cancelled {
		return bailey.Exit{Code: 128 + 9}, context.Cause(ctx)
	}
	return bailey.Exit{Code: bareExit(cmd.ProcessState), TimedOut: timedOut}, nil
}

// waitForExit waits until the program has ended. It ends the group if the time is up or ctx is done.
func (g bareGroup) waitForExit(ctx context.Context, cmd *exec.Cmd, times bareTimes) (timedOut, cancelled bool) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		bareEnded(cmd)
	}()
	end := time.NewTimer(times.timeout)
	defer end.Stop()
	done, kill := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case <-gone:
			return timedOut, cancelled
		case <-end.C:
			timedOut = true
			g.terminateAll()
			kill = time.After(times.grace)
		case <-kill:
			g.killAll()
		case <-done:
			cancelled, done = true, nil
			if !errors.As(context.Cause(ctx), new(bailey.Gentle)) {
				g.killAll()
				continue
			}
			g.terminateAll()
			kill = time.After(times.grace)
		}
	}
}

// barePipes are the tool's streams: pipes or the null device, never a descriptor of the gateway.
type barePipes struct {
	inner  []*os.File  // the tool's ends
	outer  [3]*os.File // the gateway's ends; the first is nil without stdin
	drains int
	done   chan struct{}
}

func openBarePipes(cmd *exec.Cmd, s bailey.Streams) (*barePipes, error) {
	p := &barePipes{done: make(chan struct{}, 2)}
	for i := range 3 {
		if i == 0 && s.Stdin == nil {
			continue // os/exec gives it the null device
		}
		r, w, err := os.Pipe()
		if err != nil {
			p.handOver()
			p.waitAndClose()
			return nil, err
		}
		theirs := w
		p.outer[i] = r
		if i == 0 {
			theirs, p.outer[i] = r, w
		}
		p.inner = append(p.inner, theirs)
		switch i {
		case 0:
			cmd.Stdin = theirs
		case 1:
			cmd.Stdout = theirs
		case 2:
			cmd.Stderr = theirs
		}
	}
	return p, nil
}

// handOver closes the gateway's copies of the tool's ends.
func (p *barePipes) handOver() {
	for _, f := range p.inner {
		f.Close()
	}
}

// startCopying begins to copy the streams. If a writer fails, its stream is still read: a tool must not block for lack of a
// reader.
func (p *barePipes) startCopying(s bailey.Streams) {
	for i, w := range []io.Writer{1: s.Stdout, 2: s.Stderr} {
		if i == 0 {
			continue
		}
		p.drains++
		go func() {
			if w != nil {
				io.Copy(w, p.outer[i])
			}
			io.Copy(io.Discard, p.outer[i])
			p.done <- struct{}{}
		}()
	}
	if in := p.outer[0]; in != nil {
		go func() {
			io.Copy(in, s.Stdin)
			in.Close()
		}()
	}
}

// waitAndClose waits for the last bytes. If a process outside the group still holds a write end, the wait ends after
// bareDrain.
func (p *barePipes) waitAndClose() {
	late := time.After(bareDrain)
	closeOuter := func() {
		for _, f := range p.outer {
			if f != nil {
				f.Close()
			}
		}
	}
	for range p.drains {
		select {
		case <-p.done:
		case <-late:
			closeOuter()
			<-p.done
		}
	}
	closeOuter()
}
