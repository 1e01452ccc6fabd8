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

// trees are what hooks may execute of the host, and load. Programs there are links into /etc/alternatives on some hosts.
var (
	trees = [...]string{"/usr/lib", "/lib", "/lib64", "/bin", "/usr/bin", "/sbin", "/usr/sbin"}
	reads = [...]string{"/etc/ssl/certs", "/etc/resolv.conf", "/etc/alternatives"}
)

// searchPath is where a program without a path is found that has no cage. A cage has its own.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// plan lays out what a hook needs, and what it is lent. It says in a what will hold it.
func (d *Dispatcher) plan(ctx context.Context, e hook.Event, h hook.Hook, a *Asked) (bailey.Run, bailey.Lent, error) {
	job := bailey.Job{Capability: bailey.CapabilityID("hook." + string(e.Name())), Session: e.In().ID,
		Command: h.Argv[0], Args: h.Argv[1:], EnvNames: slices.Compact(slices.Sorted(slices.Values(h.Env))), Timeout: h.Timeout}
	lent := bailey.Lent{Env: d.environ(h.Env)}
	if err := d.apart(h.Argv); err != nil {
		return nil, lent, err
	}
	if h.Unsandboxed {
		r, err := d.bare(ctx, job, a)
		return r, lent, err
	}
	if d.Cages == nil {
		a.Status = PlatformUnsupported
		return nil, lent, errPlatform
	}
	close, err := d.furnish(&job, h)
	defer close()
	if err == nil && len(h.Network) > 0 {
		job.Network, lent.Way, err = d.network(h.Network)
	}
	if err != nil {
		return nil, lent, err
	}
	r, err := d.Cages.Plan(ctx, job)
	if err != nil {
		r, err = d.lesser(ctx, job, err)
	}
	if err != nil {
		return nil, lent, err
	}
	c := r.Cage()
	a.Cage, a.Status = &c, held(c)
	if a.Status == PlatformUnsupported {
		r.Close()
		return nil, lent, errPlatform
	}
	if a.Status != FullyEnforced {
		a.Warning = append(a.Warning, weak(c))
	}
	return r, lent, nil
}

// lesser plans a hook for a host without namespaces, where no cage has trees: its program may run, and read what lies in them.
// It is no way to less on any other host, for whatever reason a hook got no cage there.
func (d *Dispatcher) lesser(ctx context.Context, job bailey.Job, why error) (bailey.Run, error) {
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

var errPlatform = &bailey.Error{Kind: bailey.Unavailable, Message: "no cage: this platform has none, and the hook is to have one",
	Hint: `use Linux, or write "sandbox": false into hooks.json if the hook may do all that you may`}

// held says what a cage comes to.
func held(c bailey.Cage) Status {
	switch {
	case !c.Enforced:
		return PlatformUnsupported
	case c.Kind != "full" || len(c.Absent)+len(c.Lacks) > 0:
		return PartiallyEnforced
	}
	return FullyEnforced
}

// weak is the warning of a cage that lacks something.
func weak(c bailey.Cage) Warning {
	missing := slices.Concat(c.Absent, c.Lacks)
	if c.Kind != "full" {
		missing = append(missing, "namespaces")
	}
	return Warning{"hook.sandbox", "its cage lacks " + strings.Join(missing, ", "), c.Lesser}
}

// bare plans a hook that hooks.json takes out of the cage. It stands where a shell of the user's would: at home.
func (d *Dispatcher) bare(ctx context.Context, job bailey.Job, a *Asked) (bailey.Run, error) {
	a.Status = Disabled
	a.Warning = append(a.Warning, Warning{"hook.sandbox", "it runs without a cage, with all rights of yours: hooks.json says sandbox: false", "take sandbox out of hooks.json"})
	if d.Bare == nil {
		return nil, &bailey.Error{Kind: bailey.Denied, Message: "hooks without a cage are not started here", Hint: "take sandbox out of hooks.json"}
	}
	job.Env = append([]string{"PATH=" + searchPath, "LANG=C.UTF-8"}, d.environ([]string{"HOME", "USER"})...)
	for _, v := range job.Env {
		if home, ok := strings.CutPrefix(v, "HOME="); ok && filepath.IsAbs(home) {
			job.Dir = home
		}
	}
	return d.Bare.Plan(ctx, job)
}

// environ are those variables of the user's that have one of the names.
func (d *Dispatcher) environ(names []string) (env []string) {
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

// furnish has the cage show what hooks may see, and this one besides. What it opens is for the caller to close, when the cage
// is planned.
func (d *Dispatcher) furnish(job *bailey.Job, h hook.Hook) (close func(), err error) {
	close = func() {
		for _, p := range job.Places {
			p.File.Close()
		}
	}
	job.Wall = &bailey.Wall{}
	for _, path := range trees {
		if real, err := filepath.EvalSymlinks(path); err == nil && !slices.Contains(job.Wall.Trees, bailey.Tree{Path: real}) {
			job.Wall.Trees = append(job.Wall.Trees, bailey.Tree{Path: real})
		}
	}
	job.Read = append(reads[:len(reads):len(reads)], h.Read...)
	if dir := h.Folder(); dir != "" {
		if err := d.near(dir); err != nil {
			return close, err
		}
		job.Read = append(job.Read, dir)
	}
	for _, path := range h.Write {
		p, err := place(path)
		if err != nil {
			return close, err
		}
		job.Places = append(job.Places, p)
	}
	return close, nil
}

// apart refuses a file of a workspace, whether it is the program or what an interpreter is given. Without a cage an agent that
// wrote it would have all rights of the user.
func (d *Dispatcher) apart(argv []string) error {
	if d.Workspaces == nil {
		return nil
	}
	workspaces := d.Workspaces()
	for _, word := range argv {
		info, err := os.Stat(word)
		if !filepath.IsAbs(word) || err == nil && info.IsDir() {
			continue
		}
		for _, w := range workspaces {
			if within(real(w), real(word)) || within(filepath.Clean(w), filepath.Clean(word)) {
				return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s lies in the workspace %s, where agents write", word, w), Hint: "move it out of there"}
			}
		}
	}
	return nil
}

// near refuses a folder that would show a hook more than what belongs to it.
func (d *Dispatcher) near(dir string) error {
	if d.Private == nil {
		return nil
	}
	dir = real(dir)
	for _, p := range d.Private() {
		if p = real(p); within(dir, p) {
			return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("a hook reads the folder it is in, and in %s lies %s", dir, p),
				Hint: "move it into a folder of its own"}
		}
	}
	return nil
}

func real(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return filepath.Clean(path)
}

// within tells whether path is dir or lies in it.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// place opens what a hook may write. Opening a FIFO must not wait.
func place(path string) (bailey.Place, error) {
	canonical, err := filepath.EvalSymlinks(path)
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(canonical, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return bailey.Place{}, &bailey.Error{Kind: bailey.Unavailable, Message: path + ", which the hook may write, is not there", Hint: "make it, or take it out of filesystem.write", Err: err}
	case err != nil:
		return bailey.Place{}, &bailey.Error{Kind: bailey.Unavailable, Message: path + ", which the hook may write, cannot be opened", Hint: "take it out of filesystem.write", Err: err}
	}
	return bailey.Place{Input: "filesystem.write", Path: canonical, File: file, Write: true}, nil
}

// network makes both sides of a hook's network.
func (d *Dispatcher) network(endpoints []bailey.Endpoint) (*bailey.Network, bailey.Way, error) {
	if d.Plan == nil || d.Open == nil {
		return nil, nil, &bailey.Error{Kind: bailey.Denied, Message: "hooks reach no network here", Hint: "take network out of hooks.json"}
	}
	n, err := d.Plan(endpoints)
	if err != nil {
		return nil, nil, err
	}
	way, err := d.Open(n)
	return n, way, err
}
