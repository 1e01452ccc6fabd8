//go:build linux

package wrap

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"bailey"
)

// Works is a runner for tools that write to a project. No tool may write to a directory that programs outside the cage
// act on. A tool that builds cannot change the guarded files of a project, new ones are put in quarantine, and if the
// tool keeps its HOME, it has one for each project that is in no other cage. A tool that an agent in the agent jail
// calls cannot change guarded files either, just as the agent cannot. Kept homes are in a [State] for each cache, below
// Dir.
type Works struct {
	bailey.Runner
	Dir    string
	Jailed func(bailey.SessionID) bool // reports whether an agent in the agent jail has this session
}

// NewWorks returns a Works in front of r.
func NewWorks(r bailey.Runner, dir string, jailed func(bailey.SessionID) bool) bailey.Runner {
	return &Works{r, dir, jailed}
}

// plannedRun is a planned job.
type plannedRun struct {
	bailey.Run
	state  State
	name   string
	before map[string]Found // by project
	places []bailey.Place   // the writable ones, one for each project

	missing []string // modules of Go that are not downloaded
}

// Plan adds the kept paths and the home to a job. It changes nothing in the project.
func (w *Works) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	if job.Wall == nil && w.Jailed(job.Session) {
		before, keep, err := guardedPlaces(job.Places)
		if err != nil {
			return nil, err
		}
		if len(before) > 0 {
			job.Wall = &bailey.Wall{Keep: keep}
		}
		return w.Runner.Plan(ctx, job)
	}
	if job.Wall == nil {
		for _, p := range job.Places {
			if err := notInside(p); err != nil {
				return nil, err
			}
		}
		return w.Runner.Plan(ctx, job)
	}
	wall := *job.Wall
	for _, path := range wall.Keep { // from the manifest
		if _, err := os.Lstat(path); err != nil {
			return nil, bailey.Denied.Wrap(err, path+" does not exist, and the call may not create it",
				"name the top of a separate repository, not a worktree of another")
		}
	}
	before, keep, err := guardedPlaces(job.Places)
	if err != nil {
		return nil, err
	}
	wall.Keep = slices.Concat(wall.Keep, keep)
	r := &plannedRun{name: string(job.Capability), state: w.cacheState(wall.Cache), before: before,
		places: writablePlaces(job.Places)}
	wall.Trees = slices.DeleteFunc(slices.Clone(wall.Trees),
		func(t bailey.Tree) bool { _, err := os.Stat(t.Path); return err != nil })
	if wall.Cache != "" {
		fetched, err := r.state.openHome(r.state.Fetched(job.Dir), wall.Fetches)
		if err != nil {
			return nil, err
		}
		defer fetched.File.Close()
		if wall.Fetches {
			if err := r.state.removeToolConfig(job.Dir); err != nil {
				return nil, err
			}
			wall.Home = &fetched
		} else {
			home, err := r.state.openHome(r.state.Home(job.Dir), true)
			if err != nil {
				return nil, err
			}
			defer home.File.Close()
			wall.Home, wall.Fetched = &home, &fetched
			user, _ := os.UserHomeDir()
			r.missing = chooseModules(&job, &wall, r.state.Fetched(job.Dir), user)
		}
	}
	job.Wall = &wall
	run, err := w.Runner.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	r.Run = run
	return r, nil
}

func (w *Works) cacheState(cache string) State {
	if cache == "" {
		cache = "none"
	}
	return State(filepath.Join(w.Dir, cache))
}

// writablePlaces returns one writable place for each path.
func writablePlaces(places []bailey.Place) (list []bailey.Place) {
	for _, p := range places {
		if p.Write && !slices.ContainsFunc(list, func(o bailey.Place) bool { return o.Path == p.Path }) {
			list = append(list, p)
		}
	}
	return list
}

// guardedPlaces finds what is guarded in each writable place, and which paths must stay unchanged there.
func guardedPlaces(places []bailey.Place) (found map[string]Found, keep []string, err error) {
	found = map[string]Found{}
	for _, p := range places {
		if !p.Write {
			continue
		}
		if found[p.Path], err = guardedIn(p); err != nil {
			return nil, nil, err
		}
		keep = append(keep, found[p.Path].Keep(p.Path)...)
	}
	return found, keep, nil
}

// notInside refuses a writable place that programs outside the cage act on. The common directory of the repository that
// a call is about is one that the call may change, as it changes the .git of any other repository.
func notInside(p bailey.Place) error {
	if in := enclosingGuarded(p.Path); p.Write && !p.IsCommon() && in != "" {
		return bailey.Denied.Errorf("name a directory of sources",
			"%s is in %s, which programs outside of the jail use", p.Path, in)
	}
	return nil
}

func guardedIn(p bailey.Place) (Found, error) {
	project := p.Path
	if err := notInside(p); err != nil {
		return Found{}, err
	}
	found, err := Guarded(project)
	if err != nil {
		return found, bailey.Invalid.Wrap(err, project+" cannot be searched for files that a tool may not change",
			"name a directory that you own")
	}
	return found, found.Refused(project)
}

// Home is the HOME of tools that build a project, and Fetched that of tools that download for it. They must be
// separate: in a shared HOME, the project's code could leave a file that a tool with a network would read as its own
// configuration.
func (s State) Home(project string) string    { return s.joinPath(projectDirName(project), "home") }
func (s State) Fetched(project string) string { return s.joinPath(projectDirName(project), "fetched") }

// toolConfigFiles lists the files in a HOME that downloading tools would obey: settings, and the places where Node looks
// for modules. No such tool writes them, but an npm package can make npm create a link there.
var toolConfigFiles = []string{".node_modules", ".node_libraries", ".npmrc", ".netrc", ".config", ".cargo/config",
	".cargo/config.toml", ".cargo/credentials", ".cargo/credentials.toml",
	".pip", ".pydistutils.cfg", ".gitconfig", "go/env"}

// removeToolConfig removes these files from the home of the downloading tools.
func (s State) removeToolConfig(project string) error {
	root, err := os.OpenRoot(s.Fetched(project))
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range toolConfigFiles {
		if err := root.RemoveAll(name); err != nil {
			return bailey.Unavailable.Wrap(err,
				filepath.Join(s.Fetched(project), name)+" cannot be removed, and a tool with a network would read it",
				"remove it")
		}
	}
	return nil
}

// openHome opens one of these homes. The directory above must be private to this user, so that no process of a cage can put
// a link in its place.
func (s State) openHome(home string, write bool) (p bailey.Place, err error) {
	if err := makeHome(home, filepath.Dir(s.joinPath()), s.joinPath()); err != nil {
		return p, err
	}
	if err := Furnish(home, nil); err != nil {
		return p, err
	}
	now := time.Now()
	os.Chtimes(filepath.Dir(home), now, now)                                                            // the most recently used home is swept last
	fd, err := syscall.Open(home, 0x200000|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0) // O_PATH
	if err != nil {
		return p, bailey.Unavailable.Wrap(err, home+" cannot be opened", "")
	}
	real, err := filepath.EvalSymlinks(home)
	return bailey.Place{Path: real, File: os.NewFile(uintptr(fd), home), Write: write}, err
}

// Start records the guarded files, and settles when all processes of the cage have ended. If other files are guarded
// than at the plan, for example because the project changed while the call waited for an answer, Start refuses: the
// cage would not keep the right files.
func (r *plannedRun) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (exit bailey.Exit, err error) {
	never := bailey.Exit{Code: bailey.NeverRan}
	var runs []*Run
	defer func() {
		for _, run := range runs {
			settled, serr := run.Settle()
			if s.Stderr != nil {
				for _, line := range settled.Words(run.Project) {
					io.WriteString(s.Stderr, "bailey: "+line+"\n")
				}
			}
			err = errors.Join(err, serr)
		}
	}()
	for _, p := range r.places {
		project := p.Path
		now, err := guardedIn(p)
		if err != nil {
			return never, err
		}
		if !slices.Equal(now.Paths, r.before[project].Paths) {
			return never, bailey.Conflict.Errorf("call again",
				"the protected files in %s have changed since the call was planned", project)
		}
		run, _, err := r.state.Begin(r.name, project, now, true)
		if err != nil {
			return never, err
		}
		runs = append(runs, run)
	}
	exit, err = r.Run.Start(ctx, lent, s)
	if err == nil && exit.Code != 0 {
		explainModules(s.Stderr, r.missing)
	}
	return exit, err
}
