package jail

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"bailey"
)

// Start runs the program and returns when its group has been ended. A process that the system let leave the group is
// not found: without a pid namespace it cannot be traced to the run. A reader in s.Stdin may be read once more after
// Start returns.
func (r *bareRun) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (exit bailey.Exit, err error) {
	if r.started.Swap(true) || r.closed.Load() {
		return never, bailey.Conflict.New("this run was already started or closed", "")
	}
	env, err := bareRules.addLent(r.env, r.lent, lent.Env)
	if err != nil {
		return never, err
	}
	if err := errors.Join(ctx.Err(), r.checkUnchanged()); err != nil {
		return never, err
	}
	home, err := os.MkdirTemp("", "bailey-call-")
	if err != nil {
		return never, bailey.Unavailable.Wrap(err, "cannot create the call's HOME",
			"free some space in "+os.TempDir())
	}
	defer func() {
		if left := os.RemoveAll(home); left != nil && err == nil {
			err = bailey.Unavailable.Wrap(left, "cannot remove the call's HOME", "remove "+home)
		}
	}()
	real, err := filepath.EvalSymlinks(home) // profiles apply to the canonical path
	if err != nil {
		return never, err
	}
	cmd := r.buildCommand(real, env)
	defer func() {
		if cmd.ProcessState != nil {
			r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
	}()
	return bareLive(ctx, cmd, r.program.path, runTimes{r.timeout, r.grace}, s)
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
		return bailey.Conflict.New(r.program.path+" has changed since it was checked", "call again")
	}
	for _, p := range r.places {
		checked, err := p.File.Stat()
		now, err2 := os.Lstat(p.Path)
		if err != nil || err2 != nil || !os.SameFile(checked, now) {
			return bailey.Conflict.Wrap(errors.Join(err, err2), p.Path+" has changed since it was checked",
				"call again")
		}
	}
	return nil
}

// bareLive starts a program, feeds and drains it, and waits for its end.
func bareLive(ctx context.Context, cmd *exec.Cmd, program string, times runTimes,
	s bailey.Streams) (bailey.Exit, error) {
	p, err := openPipes(s)
	if err != nil {
		return never, bailey.Unavailable.Wrap(err, "cannot create pipes for the tool's streams", "")
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.inner[0], p.inner[1], p.inner[2]
	g, err := bareLaunch(cmd)
	closeAll(p.inner[:])
	if err != nil {
		p.waitAndClose()
		return never, bailey.Unavailable.Wrap(err, program+" could not be started",
			"check that it is a program for this machine")
	}
	p.startReading(s)
	p.feedStdin(s)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		bareEnded(cmd)
	}()
	_, timedOut, cancelled := waitForEnd(ctx, gone, times, g.terminateAll, g.killAll)
	g.killAll() // all processes that it left behind
	cmd.Wait()  // sets cmd.ProcessState
	g.closeHandle()
	p.waitAndClose()
	if cancelled {
		return bailey.Exit{Code: 128 + 9}, context.Cause(ctx)
	}
	return bailey.Exit{Code: bareExit(cmd.ProcessState), TimedOut: timedOut}, nil
}
