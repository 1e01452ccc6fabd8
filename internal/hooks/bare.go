package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
)

// Bare runs hooks that hooks.json takes out of the cage: with the variables that are listed, pipes for streams, a session of
// their own that ends with them, and all rights of the gateway's user. No call of an agent may come to it.
type Bare struct{}

const (
	grace = time.Second // between SIGTERM and SIGKILL
	drain = time.Second // for output still in the pipes when the session was ended
)

// never is the exit of a program that did not run.
var never = bailey.Exit{Code: bailey.NeverRan}

// bareRun is a planned hook.
type bareRun struct {
	job     bailey.Job
	program string
	started atomic.Bool
}

// Plan finds the program. What it cannot do it refuses.
func (Bare) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if job.Wall != nil || job.Network != nil || job.TTY || job.NeedsProc || len(job.Places)+len(job.Read)+len(job.Exec)+len(job.Hide)+len(job.FileNames) > 0 || job.Limits != (bailey.Limits{}) {
		return nil, &bailey.Error{Kind: bailey.Internal, Message: "a program without a cage was given what only a cage can hold"}
	}
	program, err := find(job.Command)
	if err != nil {
		return nil, err
	}
	return &bareRun{job: job, program: program}, nil
}

// find looks a bare name up where a cage would, and takes a path as it is.
func find(command string) (string, error) {
	if filepath.IsAbs(command) {
		if info, err := os.Stat(command); err != nil || !runnable(info) {
			return "", &bailey.Error{Kind: bailey.Unavailable, Message: command + " is no program", Hint: "give it a first line and mode 755, or name another", Err: err}
		}
		return command, nil
	}
	for _, dir := range filepath.SplitList(searchPath) {
		path := filepath.Join(dir, command)
		if info, err := os.Stat(path); err == nil && command == filepath.Base(command) && runnable(info) {
			return path, nil
		}
	}
	return "", &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("%s is not installed", command), Hint: "install it into one of " + searchPath + ", or name its path"}
}

// Cage says that there is none.
func (*bareRun) Cage() bailey.Cage { return bailey.Cage{Kind: "none"} }

func (*bareRun) Close() error { return nil }

// Start runs the program and returns when its session was ended. What began another session is not found.
func (r *bareRun) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	if r.started.Swap(true) {
		return never, &bailey.Error{Kind: bailey.Conflict, Message: "this run was started already"}
	}
	cmd := &exec.Cmd{Path: r.program, Args: append([]string{r.job.Command}, r.job.Args...), Dir: r.job.Dir,
		Env: append(r.job.Env[:len(r.job.Env):len(r.job.Env)], lent.Env...)}
	stdin, err := cmd.StdinPipe()
	stdout, err1 := cmd.StdoutPipe()
	stderr, err2 := cmd.StderrPipe()
	if err := errors.Join(err, err1, err2, ctx.Err()); err != nil {
		return never, err
	}
	g, err := launch(cmd)
	if err != nil {
		return never, &bailey.Error{Kind: bailey.Unavailable, Message: r.program + " could not be started", Hint: "run it by hand", Err: err}
	}
	go func() {
		if s.Stdin != nil {
			io.Copy(stdin, s.Stdin)
		}
		stdin.Close()
	}()
	drained := pump(s, stdout, stderr)
	state, timedOut, gone := g.follow(ctx, cmd, r.job.Timeout)
	g.kill() // whatever it left behind
	late := time.AfterFunc(drain, func() { stdout.Close(); stderr.Close() })
	<-drained
	late.Stop()
	for _, c := range []io.Closer{stdin, stdout, stderr} {
		c.Close()
	}
	if gone {
		return bailey.Exit{Code: 128 + 9}, context.Cause(ctx)
	}
	return bailey.Exit{Code: code(state), TimedOut: timedOut}, nil
}

// pump takes what is written until nobody has the pipes, whatever becomes of the writers: no program waits for a reader.
func pump(s bailey.Streams, stdout, stderr io.Reader) (done <-chan struct{}) {
	all := make(chan struct{})
	var both sync.WaitGroup
	take := func(w io.Writer, r io.Reader) {
		if w != nil {
			io.Copy(w, r)
		}
		io.Copy(io.Discard, r)
	}
	both.Go(func() { take(s.Stdout, stdout) })
	both.Go(func() { take(s.Stderr, stderr) })
	go func() {
		both.Wait()
		close(all)
	}()
	return all
}

// follow waits for the program, and ends its session when time is up or ctx is done.
func (g group) follow(ctx context.Context, cmd *exec.Cmd, timeout time.Duration) (state *os.ProcessState, timedOut, gone bool) {
	ended := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := cmd.Process.Wait()
		ended <- state
	}()
	end := time.NewTimer(timeout)
	defer end.Stop()
	done, kill := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case state := <-ended:
			return state, timedOut, gone
		case <-end.C:
			timedOut = true
			g.term()
			kill = time.After(grace)
		case <-kill:
			g.kill()
		case <-done:
			gone, done = true, nil
			var gentle bailey.Gentle
			if !errors.As(context.Cause(ctx), &gentle) {
				g.kill()
				continue
			}
			g.term()
			kill = time.After(grace)
		}
	}
}
