package hooks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"bailey"
	"bailey/hook"
)

// execTrees lists the parts of the host that hooks may execute and load. On some hosts, programs there are links into
// /etc/alternatives.
var (
	execTrees = [...]string{"/usr/lib", "/lib", "/lib64", "/bin", "/usr/bin", "/sbin", "/usr/sbin"}
	readPaths = [...]string{"/etc/ssl/certs", "/etc/resolv.conf", "/etc/alternatives"}
)

// searchPath is the search path for a program that runs without a cage. A cage has its own.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// planHook plans the run of a hook and returns it with the lent values. It records in a how the hook will be isolated.
func (d *Dispatcher) planHook(ctx context.Context, e hook.Event, h hook.Hook,
	a *Asked) (bailey.Run, bailey.Lent, error) {
	job := bailey.Job{Capability: bailey.CapabilityID("hook." + string(e.Name())), Session: e.In().ID,
		Command: h.Argv[0], Args: h.Argv[1:], EnvNames: slices.Compact(slices.Sorted(slices.Values(h.Env))), Timeout: h.Timeout}
	lent := bailey.Lent{Env: d.selectEnviron(h.Env)}
	if err := d.refuseWorkspaceFile(h.Argv); err != nil {
		return nil, lent, err
	}
	if h.Unsandboxed {
		r, err := d.planUncaged(ctx, job, a)
		return r, lent, err
	}
	if d.Cages == nil {
		a.Status = PlatformUnsupported
		return nil, lent, errPlatform
	}
	close, err := d.addPaths(&job, h)
	defer close()
	if err == nil && len(h.Network) > 0 {
		job.Network, lent.Way, err = d.openNetwork(h.Network)
	}
	if err != nil {
		return nil, lent, err
	}
	r, err := d.Cages.Plan(ctx, job)
	if err != nil {
		r, err = d.planLandlockOnly(ctx, job, err)
	}
	if err != nil {
		return nil, lent, err
	}
	c := r.Cage()
	a.Cage, a.Status = &c, cageStatus(c)
	if a.Status == PlatformUnsupported {
		r.Close()
		return nil, lent, errPlatform
	}
	if a.Status != FullyEnforced {
		a.Warning = append(a.Warning, weakCageWarning(c))
	}
	a.Warning = append(a.Warning, hiddenFileWarnings(h)...)
	return r, lent, nil
}

// planLandlockOnly plans a hook on a host without namespaces, where a cage cannot have trees: the hook may read them, and its own
// program may run. On any other host lesser fails, for whatever reason the hook got no cage.
func (d *Dispatcher) planLandlockOnly(ctx context.Context, job bailey.Job, why error) (bailey.Run, error) {
	for _, t := range job.Wall.Trees {
		job.Read = append(job.Read, t.Path)
	}
	job.Wall = nil
	r, err := d.Cages.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	if r.Cage().Kind != "landlock" {
		r.Close()
		return nil, why
	}
	return r, nil
}

var errPlatform = &bailey.Error{Kind: bailey.Unavailable,
	Message: "no jail: this platform has none, and the hook requires one",
	Hint:    `use Linux, or write "sandbox": false into hooks.json if the hook may have all your rights`}

// cageStatus returns the status of a cage.
func cageStatus(c bailey.Cage) Status {
	switch {
	case !c.Enforced:
		return PlatformUnsupported
	case c.Kind != "full" || len(c.Absent)+len(c.Lacks) > 0:
		return PartiallyEnforced
	}
	return FullyEnforced
}

// weakCageWarning returns the warning for a cage that lacks something.
func weakCageWarning(c bailey.Cage) Warning {
	missing := slices.Concat(c.Absent, c.Lacks)
	if c.Kind != "full" {
		missing = append(missing, "namespaces")
	}
	return Warning{"hook.sandbox", "its jail lacks " + strings.Join(missing, ", "), c.Lesser}
}

// planUncaged plans a hook that hooks.json exempts from the cage. It starts in the user's home, like a shell.
func (d *Dispatcher) planUncaged(ctx context.Context, job bailey.Job, a *Asked) (bailey.Run, error) {
	a.Status = Disabled
	a.Warning = append(a.Warning,
		Warning{"hook.sandbox", "it runs without a jail, with all your rights: hooks.json says sandbox: false",
			"remove sandbox from hooks.json"})
	if d.Bare == nil {
		return nil, bailey.Denied.New("hooks without a jail are not started here", "remove sandbox from hooks.json")
	}
	job.Env = append([]string{"PATH=" + searchPath, "LANG=C.UTF-8"}, d.selectEnviron([]string{"HOME", "USER"})...)
	for _, v := range job.Env {
		if home, ok := strings.CutPrefix(v, "HOME="); ok && filepath.IsAbs(home) {
			job.Dir = home
		}
	}
	return d.Bare.Plan(ctx, job)
}

// selectEnviron returns the user's variables with one of these names.
func (d *Dispatcher) selectEnviron(names []string) (env []string) {
	if d.Environ == nil || len(names) == 0 {
		return nil
	}
	for _, v := range d.Environ() {
		if name, _, ok := strings.Cut(v, "="); ok && slices.Contains(names, name) {
			env = append(env, v)
		}
	}
	return env
}

// addPaths adds to the job the paths that all hooks may see and those of this hook. The caller must call close after the
// cage is planned.
func (d *Dispatcher) addPaths(job *bailey.Job, h hook.Hook) (close func(), err error) {
	close = func() {
		for _, p := range job.Places {
			p.File.Close()
		}
	}
	job.Wall = &bailey.Wall{}
	for _, path := range execTrees {
		if real, err := filepath.EvalSymlinks(path); err == nil &&
			!slices.Contains(job.Wall.Trees, bailey.Tree{Path: real}) {
			job.Wall.Trees = append(job.Wall.Trees, bailey.Tree{Path: real})
		}
	}
	job.Read = readPaths[:len(readPaths):len(readPaths)]
	if dir := h.Folder(); dir != "" {
		if err := d.checkFolder(dir); err != nil {
			return close, err
		}
		job.Read = append(job.Read, dir)
	}
	for _, path := range h.Read {
		if d.workspaceOf(path) == "" {
			job.Read = append(job.Read, path)
			continue
		}
		if err := d.addPlace(job, "read", path); err != nil {
			return close, err
		}
	}
	for _, path := range h.Write {
		if err := d.addPlace(job, "write", path); err != nil {
			return close, err
		}
	}
	return close, nil
}

// addPlace opens a path that a hook may write, or read in a workspace, and adds exactly that file to the cage. In a
// workspace an agent may replace it with a link, so it must lie in the workspace.
func (d *Dispatcher) addPlace(job *bailey.Job, key, path string) error {
	p, err := openPlace(key, path)
	if err != nil {
		return err
	}
	job.Places = append(job.Places, p)
	if w := d.workspaceOf(path); w != "" && !isWithin(resolveLinks(w), p.Path) {
		return bailey.Denied.Errorf("name the target in hooks.json",
			"%s leads out of the workspace %s, where agents write, to %s", path, w, p.Path)
	}
	return nil
}

// openPlace opens a path of a hook. Opening a FIFO must not block. The resulting path is that of the descriptor.
func openPlace(key, path string) (bailey.Place, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	canonical := ""
	if err == nil {
		canonical, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
		if err != nil {
			file.Close()
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return bailey.Place{}, bailey.Unavailable.Wrapf(err, "create it, or remove it from filesystem."+key,
			"%s, which the hook may %s, does not exist", path, key)
	case err != nil:
		return bailey.Place{}, bailey.Unavailable.Wrapf(err, "remove it from filesystem."+key,
			"%s, which the hook may %s, cannot be opened", path, key)
	}
	return bailey.Place{Input: "filesystem." + key, Path: canonical, File: file, Write: key == "write"}, nil
}

// openNetwork makes both sides of a hook's network.
func (d *Dispatcher) openNetwork(endpoints []bailey.Endpoint) (*bailey.Network, bailey.Way, error) {
	if d.Plan == nil || d.Open == nil {
		return nil, nil, bailey.Denied.New("hooks have no network access here", "remove network from hooks.json")
	}
	n, err := d.Plan(endpoints)
	if err != nil {
		return nil, nil, err
	}
	way, err := d.Open(n)
	return n, way, err
}

// Prepare plans a hook as for an event, for a caller that shows the plan or runs it with its own streams. It starts
// nothing. The returned Asked says how the hook will be isolated. The caller must close the run.
func (d *Dispatcher) Prepare(ctx context.Context, h hook.Hook) (bailey.Run, bailey.Lent, Asked, error) {
	e := emptyEvent(h.Event)
	a := Asked{Event: h.Event, Program: h.Argv[0]}
	r, lent, err := d.planHook(ctx, e, h, &a)
	if err != nil {
		a.Reason, a.Hint = err.Error(), bailey.HintOf(err)
	}
	return r, lent, a, err
}

// emptyEvent returns an empty event with this name.
func emptyEvent(n hook.Name) hook.Event {
	for _, e := range []hook.Event{hook.UserPromptSubmit{}, hook.AssistantMessageRender{}, hook.PreToolUse{},
		hook.PostToolUse{}, hook.SessionEnd{}} {
		if e.Name() == n {
			return e
		}
	}
	return hook.SessionStart{}
}
