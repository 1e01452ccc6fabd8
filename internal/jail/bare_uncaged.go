package jail

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"bailey"
)

// Uncaged runs a program that a person exempted from the cage by name. The program has the listed variables, pipes as
// streams, a session of its own that ends with it, and all rights of the gateway's user. No call of an agent may reach
// it.
type Uncaged struct {
	Grace time.Duration // between SIGTERM and SIGKILL; zero is [DefaultGrace]
}

// uncaged is a planned run of Uncaged.
type uncaged struct {
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
		return nil, bailey.Internal.New("a program without a cage was given what only a cage can hold", "")
	}
	program, err := findUncaged(job.Command)
	if err != nil {
		return nil, err
	}
	return &uncaged{job: job, program: program, grace: cmp.Or(u.Grace, DefaultGrace)}, nil
}

// findUncaged looks up a bare name where a cage would, and takes an absolute path as it is.
func findUncaged(command string) (string, error) {
	if filepath.IsAbs(command) {
		if info, err := os.Stat(command); err != nil || !bareRunnable(info) {
			return "", bailey.Unavailable.Wrap(err, command+" is no program",
				"give it a first line and mode 755, or name another")
		}
		return command, nil
	}
	for _, dir := range filepath.SplitList(searchPath) {
		path := filepath.Join(dir, command)
		if info, err := os.Stat(path); err == nil && command == filepath.Base(command) && bareRunnable(info) {
			return path, nil
		}
	}
	return "", bailey.Unavailable.Errorf("install it into one of "+searchPath+", or name its path",
		"%s is not installed", command)
}

// Cage says that the run has no cage.
func (*uncaged) Cage() bailey.Cage { return bailey.Cage{Kind: bailey.Uncaged} }

func (*uncaged) Close() error { return nil }

// Start runs the program and returns when its session has been ended. A process that began another session is not
// found.
func (r *uncaged) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	if r.started.Swap(true) {
		return bareNever, bailey.Conflict.New("this run was started already", "")
	}
	if err := ctx.Err(); err != nil {
		return bareNever, err
	}
	timeout := r.job.Timeout
	if timeout <= 0 {
		timeout = bailey.DefaultTimeout
	}
	cmd := &exec.Cmd{Path: r.program, Args: append([]string{r.job.Command}, r.job.Args...), Dir: r.job.Dir,
		Env: append(r.job.Env[:len(r.job.Env):len(r.job.Env)], lent.Env...)}
	return bareLive(ctx, cmd, r.program, bareTimes{timeout, r.grace}, s)
}
