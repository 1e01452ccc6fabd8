package toolchain

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
)

// Runner runs jobs with the toolchains that their projects select. A job that may execute programs of the host finds
// those of the toolchains first; a job that reaches a network only its own.
type Runner struct {
	bailey.Runner
	find *Finder
}

// NewRunner returns a Runner in front of r.
func NewRunner(r bailey.Runner, f *Finder) *Runner { return &Runner{r, f} }

// Plan adds the toolchains to a job.
func (r *Runner) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	job, unused, err := r.find.Equip(job)
	if err != nil {
		return nil, err
	}
	run, err := r.Runner.Plan(ctx, job)
	if err == nil && len(unused) > 0 {
		run = warnedRun{run, unused}
	}
	return run, err
}

// warnedRun says at its start which toolchains are not used.
type warnedRun struct {
	bailey.Run
	unused []error
}

func (r warnedRun) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	for _, err := range r.unused {
		if s.Stderr != nil {
			io.WriteString(s.Stderr, "bailey: "+err.Error()+"; "+bailey.HintOf(err)+"\n")
		}
	}
	return r.Run.Start(ctx, lent, s)
}

// Equip returns the job with the program, the directories and the search path of its toolchains. unused has the reason for
// each toolchain that another program of the job could have used. If the job's own program is in such a toolchain, that
// is an error.
func (f *Finder) Equip(job bailey.Job) (out bailey.Job, unused []error, err error) {
	name := systemName(job.Command)
	if job.Wall == nil && (name != job.Command || systemHas(name)) {
		return job, nil, nil
	}
	t, err := f.ForCommand(name, job.Dir)
	if err != nil {
		return job, nil, err
	}
	if t != nil && t.Program(name) == "" {
		t = nil
	}
	if t != nil {
		if err := f.Check(*t, writtenPaths(job)); err != nil {
			return job, nil, err
		}
		job.Command = t.Program(name)
	}
	if job.Wall == nil || len(job.Wall.Trees) == 0 {
		return f.equipAlone(job, t), nil, nil
	}
	return f.equipBuilding(job, t)
}

// equipBuilding adds the toolchains of all languages, because the programs of a build start others.
func (f *Finder) equipBuilding(job bailey.Job, own *Toolchain) (out bailey.Job, unused []error, err error) {
	list, unused := f.All(job.Dir)
	unused = slices.DeleteFunc(unused, func(err error) bool { return bailey.KindOf(err) == bailey.NotFound })
	if own != nil && !slices.ContainsFunc(list, func(t Toolchain) bool { return t.Dir == own.Dir }) {
		list = append(list, *own)
	}
	wall, dirs := *job.Wall, []string(nil)
	wall.Trees = slices.Clone(wall.Trees)
	for _, t := range list {
		if err := f.Check(t, writtenPaths(job)); err != nil {
			unused = append(unused, err)
			continue
		}
		dirs, wall.Trees = append(dirs, t.Bin), append(wall.Trees, bailey.Tree{Path: t.Dir})
	}
	if len(dirs) > 0 {
		wall.Path = joinPath(dirs, wall.Path)
		job.Wall = &wall
	}
	return job, unused, nil
}

// equipAlone lets a tool read its own toolchain. It can execute its own program and the helpers that the manifest names,
// now those of the toolchain, and nothing else in it: a tool that reaches a network must run nothing that it fetches.
func (f *Finder) equipAlone(job bailey.Job, t *Toolchain) bailey.Job {
	if t == nil || t.single != "" {
		return job
	}
	job.Read, job.Exec = append(slices.Clone(job.Read), t.Dir), slices.Clone(job.Exec)
	if job.Wall != nil {
		wall := *job.Wall
		wall.Path = joinPath([]string{t.Bin}, wall.Path)
		job.Wall = &wall
	}
	for i, helper := range job.Exec {
		if own := t.Program(systemName(helper)); own != "" && systemName(helper) != helper {
			job.Exec[i] = own
		}
	}
	// modules of Python that are shared objects: what is only readable cannot be loaded
	libs, _ := filepath.Glob(filepath.Join(t.Dir, "lib/python3*/lib-dynload"))
	job.Libs = append(slices.Clone(job.Libs), libs...)
	return job
}

// systemName returns the name of a program in /usr/bin, for example python3, or the command as it is.
func systemName(command string) string {
	if name, ok := strings.CutPrefix(command, "/usr/bin/"); ok && !strings.Contains(name, "/") {
		return name
	}
	return command
}

func writtenPaths(job bailey.Job) (list []string) {
	for _, p := range job.Places {
		if p.Write {
			list = append(list, p.Path)
		}
	}
	return list
}

// joinPath puts directories in front of a search path.
func joinPath(dirs []string, path string) string {
	if path == "" {
		path = strings.TrimSuffix(systemPath, ":/usr/local/go/bin")
	}
	return strings.Join(append(dirs, path), string(os.PathListSeparator))
}
