// Package workspace opens the files and directories that calls name. It opens each path once, below the workspaces that
// an operator has allowed and outside of what is masked, so that the file that was checked is the one that is used.
package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"bailey"
	"bailey/pack"
)

// Workspaces checks every path input. If the home names no workspace, the client's directory is the workspace of its
// session: read-only, and fixed at the session's first call that needs one. If the home names workspaces (see
// [Settings]), a path must be inside one of them. A person's own call from another directory (bailey run) may also read
// below that directory.
type Workspaces struct {
	masks []string // canonical paths that no workspace may contain
	home  []string // home directories; not allowed as workspaces themselves

	// Elsewhere, if set, permits paths outside of the workspaces for calls that an agent executes itself. dir is the
	// directory of the call, root the workspace that contains it, or "". It must be set before the first call.
	Elsewhere func(dir, root, real string, write bool) (bool, error)

	frozen snapshotQuota

	mu    sync.Mutex // guards the fields below
	roots map[bailey.SessionID]string
	walls map[bailey.SessionID]string // agent jails: the project, their only workspace
	named []string                    // workspaces of the home, canonical
	more  []string                    // workspaces of the profiles in use
	shut  error                       // why no call gets a workspace
}

// NewWorkspaces returns a Workspaces. masks are the paths that must stay hidden: see [Masks].
func NewWorkspaces(masks, homes []string) *Workspaces {
	return &Workspaces{masks: masks, home: homes, roots: map[bailey.SessionID]string{},
		walls: map[bailey.SessionID]string{}}
}

// End removes the workspace of a session.
func (w *Workspaces) End(id bailey.SessionID) {
	w.mu.Lock()
	delete(w.roots, id)
	delete(w.walls, id)
	w.mu.Unlock()
}

// Fit returns an error if dir cannot be the workspace of a session.
func (w *Workspaces) Fit(dir string) error {
	call := bailey.Call{Session: bailey.Session{ID: bailey.NewSessionID()}, Dir: dir}
	defer w.End(call.Session.ID)
	b, err := w.boundsFor(call)
	if err != nil {
		return err
	}
	if real := Canonical(dir); !b.Hold(real) {
		return bailey.Denied.Errorf(b.hint, "%s is outside the workspace %s", real, strings.Join(b.Dirs, ", "))
	}
	return nil
}

// Open opens a path input once. The path of the descriptor, not the given path, must be inside the workspace. A path
// that leaves the workspace, for example through a symlink, is refused. Symlinks within the workspace are allowed.
func (w *Workspaces) Open(call bailey.Call, in pack.PathInput, path string) (bailey.Place, error) {
	none := bailey.Place{}
	roots, err := w.boundsFor(call)
	switch {
	case err != nil:
		return none, err
	case in.Write && !roots.named:
		what := "input /" + in.Name
		if in.Name == "" {
			what = "the working directory"
		}
		return none, bailey.Denied.New(what+": this home names no workspace, so your directory is read-only",
			"ask a person to make the directory a workspace: bailey init DIR")
	}
	if in.Name == "" {
		if path, err = roots.workspaceFor(Canonical(call.Dir)); err != nil {
			return none, err
		}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(Canonical(call.Dir), path)
	}
	f, err := openPath(path)
	below := ""
	if in.New && errors.Is(err, fs.ErrNotExist) {
		f, below, err = openAbove(path)
	}
	switch {
	case err != nil && !roots.Hold(filepath.Clean(path)):
		return none, roots.outsideError(in, path) // must not reveal whether the path exists
	case err != nil:
		return none, bailey.Invalid.Errorf("name a path that exists and that you can read",
			"input /%s: %q cannot be opened: %v", in.Name, path, pathErrorCause(err))
	}
	real, err := pathOf(f)
	if err == nil {
		real = filepath.Join(real, below)
		if roots, err = w.withElsewhere(roots, call, in, path, real); err == nil {
			err = roots.checkInput(path, real, in, f)
		}
	}
	if err == nil && in.File {
		err = w.checkUnmasked(in, real)
	}
	if err != nil {
		f.Close()
		return none, err
	}
	return bailey.Place{Input: in.Name, Path: real, File: f, Write: in.Write}, nil
}

// withElsewhere returns the bounds for one path. If an agent that executes its call itself may use the path although it is
// outside of the workspaces, it is one of the bounds.
func (w *Workspaces) withElsewhere(b Bounds, call bailey.Call, in pack.PathInput, path, real string) (Bounds, error) {
	if !call.Own || w.Elsewhere == nil || b.Hold(real) || in.Name == "" {
		return b, nil
	}
	for _, m := range w.masks {
		if Within(foldCase(m), foldCase(real)) || Within(foldCase(real), foldCase(m)) {
			return b, nil
		}
	}
	dir := Canonical(call.Dir)
	root, err := b.workspaceFor(dir)
	if err != nil || !Within(root, dir) {
		root = ""
	}
	permitted, err := w.Elsewhere(dir, root, real, in.Write)
	switch {
	case err != nil:
		return b, err
	case permitted:
		b.Dirs = append(slices.Clone(b.Dirs), real)
	case !in.Write:
		b.hint += fmt.Sprintf("; or lets agents read another: the line \"readable: [%s]\" in settings.yaml, then bailey init --apply",
			filepath.Dir(filepath.Clean(path)))
	}
	return b, nil
}

// checkUnmasked refuses a masked file that the gate would read for a tool, because no cage could mask it there.
func (w *Workspaces) checkUnmasked(in pack.PathInput, real string) error {
	for _, m := range w.masks {
		// a symlink may have been created since
		if Within(foldCase(m), foldCase(real)) || Within(foldCase(Canonical(m)), foldCase(real)) {
			return bailey.Denied.Errorf("keep the files of the call outside "+m,
				"input /%s: %q is masked: tools cannot read it", in.Name, real)
		}
	}
	return nil
}

// openAbove opens the nearest existing directory above a file that will be created, and returns the rest of the path.
// It refuses a dangling symlink, because a file created through it would be elsewhere.
func openAbove(path string) (f *os.File, below string, err error) {
	for path = filepath.Clean(path); ; {
		if _, err := os.Lstat(path); err == nil {
			return nil, "", &os.PathError{Op: "open", Path: path, Err: errors.New("it is a dangling symbolic link")}
		}
		dir, name := filepath.Split(path)
		path, below = filepath.Clean(dir), filepath.Join(name, below)
		if f, err = openPath(path); !errors.Is(err, fs.ErrNotExist) || path == dir {
			return f, below, err
		}
	}
}

// Bounds are the directories that may contain a call's paths, and the hint for a path outside them.
type Bounds struct {
	Dirs  []string
	own   string // the directory of a person's call outside of Dirs, which it may only read; "" if there is none
	name  string // description of the directories for an agent
	hint  string
	named bool // named by a user, so calls may write there if a rule permits it
}

func (b Bounds) checkInput(path, real string, in pack.PathInput, f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !b.Hold(real):
		return b.outsideError(in, path)
	case in.Write && !(Bounds{Dirs: b.Dirs}).Hold(real):
		return bailey.Denied.Errorf(b.hint, "input /%s: %q is in none of the %s, so it is read-only", in.Name, real, b.name)
	case in.Dir && !info.IsDir():
		return bailey.Invalid.Errorf("", "input /%s: %q is not a directory", in.Name, real)
	case in.File && info.IsDir():
		return bailey.Invalid.Errorf("name a file", "input /%s: %q is a directory", in.Name, real)
	case in.File && info.Mode().IsRegular():
		return checkSize(bailey.Place{Input: in.Name, Path: real}, info)
	case !info.IsDir() && !info.Mode().IsRegular():
		return bailey.Invalid.Errorf("", "input /%s: %q is neither a file nor a directory", in.Name, real)
	}
	return nil
}

// workspaceFor returns the workspace in which a tool runs for a client in dir: the only one, or the innermost that contains dir.
func (b Bounds) workspaceFor(dir string) (string, error) {
	dirs := slices.Clone(b.Dirs)
	if b.own != "" {
		dirs = append(dirs, b.own)
	}
	root, all := "", slices.Compact(slices.Sorted(slices.Values(dirs)))
	for _, r := range all {
		if (Within(r, dir) || len(all) == 1) && len(r) > len(root) {
			root = r
		}
	}
	if root != "" {
		return root, nil
	}
	return "", bailey.Denied.Errorf(b.hint,
		"%s is in none of the %s, so the working directory of the tool is ambiguous", dir, b.name)
}

// checkSize returns an error if a file is longer than the maximum input of a tool.
func checkSize(p bailey.Place, info fs.FileInfo) error {
	if info.Size() <= pack.MaxStdin {
		return nil
	}
	return bailey.Invalid.Errorf("name a smaller file",
		"input /%s: %q has %d bytes, more than %d", p.Input, p.Path, info.Size(), pack.MaxStdin)
}

// outsideError returns the same error for existing and missing paths. It quotes the caller's path, not the resolved one.
func (b Bounds) outsideError(in pack.PathInput, path string) error {
	return bailey.Denied.Errorf(b.hint, "input /%s: %q is outside the %s", in.Name, filepath.Clean(path), b.name)
}

// Hold reports whether real, which must be a canonical path, is one of the directories or below it.
func (b Bounds) Hold(real string) bool {
	return b.own != "" && Within(b.own, real) || slices.ContainsFunc(b.Dirs, func(dir string) bool { return Within(dir, real) })
}

// Use makes dirs the workspaces of the home from the next call on. If dirs is empty, the client's directory is the
// workspace. If shut is not nil, no call gets a workspace.
func (w *Workspaces) Use(dirs []string, shut error) {
	w.mu.Lock()
	w.named, w.shut = slices.Clone(dirs), shut
	w.mu.Unlock()
}

// UseProfiles sets the additional workspaces of the profiles in use, from the next call on.
func (w *Workspaces) UseProfiles(dirs []string) {
	w.mu.Lock()
	w.more = dirs
	w.mu.Unlock()
}

// Written returns the directories that calls can write: the workspaces of the home and of the profiles in use, and the
// projects of agent jails.
func (w *Workspaces) Written() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Concat(w.named, w.more, slices.Collect(maps.Values(w.walls)))
}

func (w *Workspaces) boundsFor(call bailey.Call) (Bounds, error) {
	w.mu.Lock()
	named, shut := slices.Concat(w.named, w.more), w.shut
	project, wall := w.walls[call.Session.ID]
	w.mu.Unlock()
	switch {
	case shut != nil:
		return Bounds{}, shut
	case wall && len(named) > 0:
		one := Bounds{name: "workspace " + project,
			hint: "work in the project that this agent was started in; a person can wrap it in another", named: true}
		if project != "" && slices.ContainsFunc(named, func(dir string) bool { return Within(dir, project) }) {
			one.Dirs = []string{project}
		}
		return one, nil
	case len(named) > 0:
		return Bounds{Dirs: named, own: w.ownDir(call, named), name: "workspaces of this home",
			hint: "work in a workspace of this home; a person can add one: bailey init DIR", named: true}, nil
	}
	root, err := w.sessionRoot(call)
	return Bounds{Dirs: []string{root}, name: "workspace " + root,
		hint: "start from the project's own directory: that directory is the workspace"}, err
}

// ownDir returns the directory of a call of the command line by no named agent, if it is outside of the named workspaces and
// could be one. A process with such a connection can read the directory without the gate; an agent jail cannot have it.
func (w *Workspaces) ownDir(call bailey.Call, named []string) string {
	if call.Door != personsDoor || call.Principal.Token != "" || call.Within != nil {
		return ""
	}
	root, err := w.Resolve(call.Dir)
	if err != nil || (Bounds{Dirs: named}).Hold(root) {
		return ""
	}
	return root
}

// personsDoor is the front end of bailey run.
const personsDoor = "cli"

// Fix makes dir the workspace of a session, whatever directory its calls give. Otherwise an agent with write access
// could redirect it, for example with a symlink. If the home names workspaces, the session may use only this one. If
// dir is not allowed, the session's first call is refused for the same reason.
func (w *Workspaces) Fix(id bailey.SessionID, dir string) {
	root, _ := w.sessionRoot(bailey.Call{Session: bailey.Session{ID: id}, Dir: dir})
	w.mu.Lock()
	w.walls[id] = root
	w.mu.Unlock()
}

// sessionRoot returns the session's workspace and fixes it at the first use.
func (w *Workspaces) sessionRoot(call bailey.Call) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if root, ok := w.roots[call.Session.ID]; ok {
		return root, nil
	}
	root, err := w.Resolve(call.Dir)
	if err != nil {
		return "", err
	}
	w.roots[call.Session.ID] = root
	return root, nil
}

// Resolve returns the canonical path of a directory if it may be a workspace, and an error otherwise.
func (w *Workspaces) Resolve(dir string) (string, error) {
	f, err := openPath(dir)
	if err != nil {
		return "", bailey.Invalid.Wrapf(pathErrorCause(err), "name a directory that exists and that you can enter",
			"your directory %s cannot be opened", dir)
	}
	defer f.Close()
	root, err := pathOf(f)
	if err != nil {
		return "", err
	}
	why := w.Unfit(root)
	if info, err := f.Stat(); why == "" && (err != nil || !info.IsDir()) {
		why = "no directory"
	}
	if why == "" && mountRoot(f) {
		why = "the root of a mount"
	}
	if why != "" {
		return "", bailey.Denied.Errorf("start from the project's own directory",
			"%s cannot be the workspace: it is %s", root, why)
	}
	return root, nil
}

// CheckCanonical returns an error unless each directory may be a workspace and is given by its canonical path.
func (w *Workspaces) CheckCanonical(dirs []string) error {
	for _, dir := range dirs {
		real, err := w.Resolve(dir)
		if err == nil && real != dir {
			err = bailey.Invalid.Errorf("write "+real, "the workspace %s is not canonical", dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Unfit returns why a directory cannot be a workspace, or "".
func (w *Workspaces) Unfit(root string) string {
	root = foldCase(root)
	is := func(path string) bool { return foldCase(path) == root }
	dirs, trees := systemDirs()
	switch {
	case filepath.Dir(root) == root:
		return "the root of the file system"
	case slices.ContainsFunc(w.home, is):
		return "a home directory"
	case slices.ContainsFunc(dirs, is),
		slices.ContainsFunc(trees, func(s string) bool { return Within(foldCase(s), root) }):
		return "a system directory"
	case holdsSecrets(root):
		return "a directory of secrets"
	}
	for _, m := range w.masks {
		if Within(foldCase(m), root) {
			return "masked: it contains secrets"
		}
		if Within(root, foldCase(m)) {
			return "a parent of " + m + ", which must stay hidden"
		}
	}
	return ""
}

// Within reports whether path is dir or is below it. Both must be canonical.
func Within(dir, path string) bool {
	const sep = string(filepath.Separator)
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, sep)+sep)
}

func pathErrorCause(err error) error {
	if e, ok := err.(*os.PathError); ok {
		return e.Err
	}
	return err
}

// An approval can cover at most maxFrozen bytes of one file. The snapshots of all pending calls have at most
// maxFrozenAll bytes, because they are in memory.
const (
	maxFrozen    = 10 << 20
	maxFrozenAll = 256 << 20
	minFrozen    = 4 << 10 // minimum per file, even an empty one, for its descriptor and page
)

// snapshotQuota counts the bytes of file snapshots for pending calls. Its zero value is ready.
type snapshotQuota struct {
	mu   sync.Mutex
	held int64 // guarded by mu
}

func (z *snapshotQuota) reserveBytes(n int64) (release func(), err error) {
	n = max(n, minFrozen)
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.held+n > maxFrozenAll {
		return nil, bailey.Unavailable.Errorf("call again after some of them are answered",
			"calls that wait for a person use %d bytes for files, and there is no space for %d more", z.held, n)
	}
	z.held += n
	return sync.OnceFunc(func() {
		z.mu.Lock()
		z.held -= n
		z.mu.Unlock()
	}), nil
}

// OpenPlace opens a path that an operator names for a cage, once; the cage shows that descriptor. An operator is not
// restricted to workspaces. If the path is masked or no cage may show it, the jail refuses it.
func OpenPlace(path string, write bool) (bailey.Place, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return bailey.Place{}, err
	}
	f, err := openPath(path)
	if err != nil {
		return bailey.Place{},
			bailey.Invalid.Wrapf(pathErrorCause(err), "name a path that exists and that you can access",
				"%q cannot be opened", path)
	}
	real, err := pathOf(f)
	if err != nil {
		f.Close()
		return bailey.Place{}, err
	}
	return bailey.Place{Path: real, File: f, Write: write}, nil
}

// loadFile reads an opened regular file of at most max bytes. A directory does not count as a file.
func loadFile(p bailey.Place, f *os.File, below string, max int64) (data []byte, there bool, err error) {
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		return nil, false, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(f, max+1))
	}
	if err == nil && int64(len(data)) > max {
		err = fmt.Errorf("it has more than %d bytes", max)
	}
	if err != nil {
		return nil, false, bailey.Invalid.Wrapf(pathErrorCause(err), "it must be a file that you may read",
			"%s in %s cannot be read", below, p.Path)
	}
	return data, true, nil
}
