package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"bailey"
	"bailey/internal/jail"
)

// timeColdCall plans the program and runs it in a cage for which nothing was prepared. Each plan is seen only once, so no
// helper serves it.
func (b *jailBench) timeColdCall(ctx context.Context, j *jail.Jail, job bailey.Job) ([]time.Duration, error) {
	b.once++
	job.Env = []string{fmt.Sprintf("TURN_%d=", b.once)}
	start := time.Now()
	run, err := j.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	err = runCaptured(ctx, run)
	run.Close()
	return []time.Duration{time.Since(start)}, err
}

// openCold returns a jail that builds full cages, or the reason if it cannot.
func (b *jailBench) openCold(ctx context.Context) (*jail.Jail, error) {
	j, err := jail.New(jail.Config{OnDemand: true})
	if err != nil {
		return nil, err
	}
	b.closing = append(b.closing, func() { j.Close() })
	run, err := j.Plan(ctx, b.commandJob())
	if err != nil {
		return nil, err
	}
	defer run.Close()
	if cage := run.Cage(); cage.Kind != "full" {
		return nil, errors.New("no full cage: " + cage.Lesser)
	}
	return j, nil
}

// agentJob returns the job of an agent: the host's programs, a project with two protected paths, and a separate home,
// sockets and terminals.
func (b *jailBench) agentJob() (bailey.Job, error) {
	job := b.commandJob()
	project, home := filepath.Join(b.dir, "project"), filepath.Join(b.dir, "agent")
	for _, dir := range []string{filepath.Join(project, ".git", "hooks"), home} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return job, err
		}
	}
	config := filepath.Join(project, ".git", "config")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return job, err
	}
	places := [2]bailey.Place{}
	for i, path := range []string{project, home} {
		path, err := filepath.EvalSymlinks(path)
		if err != nil {
			return job, err
		}
		file, err := os.Open(path)
		if err != nil {
			return job, err
		}
		b.closing = append(b.closing, func() { file.Close() })
		places[i] = bailey.Place{Path: path, File: file, Write: true}
	}
	w := &bailey.Wall{Home: &places[1], Run: true, Unix: true, Pty: true,
		Keep: []string{filepath.Join(places[0].Path, ".git", "hooks"), filepath.Join(places[0].Path, ".git", "config")}}
	for _, path := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ssl"} {
		if _, err := os.Stat(path); err == nil {
			w.Trees = append(w.Trees, bailey.Tree{Path: path})
		}
	}
	job.Wall, job.Places, job.Dir, job.NeedsProc = w, places[:1], places[0].Path, true
	job.Limits, job.Timeout = bailey.Limits{MemoryBytes: 4 << 30, Tasks: 1024}, bailey.Endless
	return job, nil
}

// agentJailWays returns the rows of an agent jail and of a tool's cage that is built in the same way.
func (b *jailBench) agentJailWays() []way {
	var cold *jail.Jail
	var yard bailey.Job
	return []way{
		{"cold-cage", func(ctx context.Context) (err error) { cold, err = b.openCold(ctx); return err },
			func(ctx context.Context) ([]time.Duration, error) { return b.timeColdCall(ctx, cold, b.commandJob()) }},
		{"wall", func(context.Context) (err error) {
			if cold == nil {
				return errors.New("there is no row cold-cage")
			}
			yard, err = b.agentJob()
			return err
		}, func(ctx context.Context) ([]time.Duration, error) { return b.timeColdCall(ctx, cold, yard) }},
	}
}
