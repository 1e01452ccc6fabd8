package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"bailey"
	"bailey/pack"
)

// Workspaces bound every path input. While a home names none, the client's directory is the workspace
// of its session: read-only, and fixed at the session's first call that needs one. Once it names some
// (see [Settings]), a path must lie inside one of those.
type Workspaces struct {
	masks []string // canonical: what no workspace may hold
	home  []string // the user's home directories: never a workspace themselves

	frozen freezer

	mu    sync.Mutex // guards what follows
	roots map[bailey.SessionID]string
	walls map[bailey.SessionID]string // of agents inside the wall: the project, which is all that they have
	named []string                    // the home's own, canonical
	more  []string                    // those of the profiles in use
	shut  error                       // why no call gets a workspace, nil when nothing is wrong
}

// NewWorkspaces knows what must stay hidden: see [Masks].
func NewWorkspaces(masks, homes []string) *Workspaces {
	return &Workspaces{masks: masks, home: homes, roots: map[bailey.SessionID]string{}, walls: map[bailey.SessionID]string{}}
}

// End forgets a session's workspace.
func (w *Workspaces) End(id bailey.SessionID) {
	w.mu.Lock()
	delete(w.roots, id)
	delete(w.walls, id)
	w.mu.Unlock()
}

// Fit says why dir could not be the workspace of a session, nil when it could.
func (w *Workspaces) Fit(dir string) error {
	call := bailey.Call{Session: bailey.Session{ID: bailey.NewSessionID()}, Dir: dir}
	defer w.End(call.Session.ID)
	b, err := w.bounds(call)
	if err != nil {
		return err
	}
	if real := canonical(dir); !b.hold(real) {
		return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s is outside the workspace %s", real, strings.Join(b.dirs, ", ")), Hint: b.hint}
	}
	return nil
}

// Open opens a path input once. The descriptor's own path, not the words that led to it, must lie
// inside the workspace: a symbolic link may lead about inside, and nowhere else.
func (w *Workspaces) Open(call bailey.Call, in pack.PathInput, path string) (bailey.Place, error) {
	none := bailey.Place{}
	roots, err := w.bounds(call)
	switch {
	case err != nil:
		return none, err
	case in.Write && !roots.named:
		what := "input /" + in.Name
		if in.Name == "" {
			what = "the working directory"
		}
		return none, &bailey.Error{Kind: bailey.Denied, Message: what + ": this home names no workspace, so your directory is only read",
			Hint: "a person can name the directory as a workspace: bailey init DIR"}
	}
	if in.Name == "" {
		if path, err = roots.own(canonical(call.Dir)); err != nil {
			return none, err
		}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(canonical(call.Dir), path)
	}
	f, err := openPath(path)
	below := ""
	if in.New && errors.Is(err, fs.ErrNotExist) {
		f, below, err = openAbove(path)
	}
	switch {
	case err != nil && !roots.hold(filepath.Clean(path)):
		return none, roots.outside(in, path) // whether it exists is not the caller's business
	case err != nil:
		return none, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s: %q cannot be opened: %v", in.Name, path, cause(err)),
			Hint: "name a path that exists and that you may read"}
	}
	real, err := pathOf(f)
	if err == nil {
		real = filepath.Join(real, below)
		err = roots.admit(path, real, in, f)
	}
	if err == nil && in.File {
		err = w.unmasked(in, real)
	}
	if err != nil {
		f.Close()
		return none, err
	}
	return bailey.Place{Input: in.Name, Path: real, File: f, Write: in.Write}, nil
}

// unmasked refuses a file that the gate itself would read for a tool, where no cage could be shown it.
func (w *Workspaces) unmasked(in pack.PathInput, real string) error {
	for _, m := range w.masks {
		if within(fold(m), fold(real)) || within(fold(canonical(m)), fold(real)) { // a link may have come to stand there
			return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("input /%s: %q is masked: no tool may read it", in.Name, real), Hint: "keep what the call needs outside " + m}
		}
	}
	return nil
}

// openAbove opens the directory that a file to be made will lie in, as far as there is one, and says what comes below it. A
// link that leads nowhere is refused: what is made through it would lie elsewhere.
func openAbove(path string) (f *os.File, below string, err error) {
	for path = filepath.Clean(path); ; {
		if _, err := os.Lstat(path); err == nil {
			return nil, "", &os.PathError{Op: "open", Path: path, Err: errors.New("it is a link that leads nowhere")}
		}
		dir, name := filepath.Split(path)
		path, below = filepath.Clean(dir), filepath.Join(name, below)
		if f, err = openPath(path); !errors.Is(err, fs.ErrNotExist) || path == dir {
			return f, below, err
		}
	}
}

// bounds are the directories that one call's paths may lie in, and what to do about one that does not.
type bounds struct {
	dirs  []string
	name  string // how they are spoken of to an agent
	hint  string
	named bool // a person named them: what a rule lets write may write there
}

func (b bounds) admit(path, real string, in pack.PathInput, f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !b.hold(real):
		return b.outside(in, path)
	case in.Dir && !info.IsDir():
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s: %q is not a directory", in.Name, real)}
	case in.File && info.IsDir():
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s: %q is a directory", in.Name, real), Hint: "name a file"}
	case in.File && info.Mode().IsRegular():
		return fits(bailey.Place{Input: in.Name, Path: real}, info)
	case !info.IsDir() && !info.Mode().IsRegular():
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s: %q is neither file nor directory", in.Name, real)}
	}
	return nil
}

// own is the workspace that a tool runs in for a client in dir: the one there is, or the narrowest that dir is in.
func (b bounds) own(dir string) (string, error) {
	root, all := "", slices.Compact(slices.Sorted(slices.Values(b.dirs)))
	for _, r := range all {
		if (within(r, dir) || len(all) == 1) && len(r) > len(root) {
			root = r
		}
	}
	if root != "" {
		return root, nil
	}
	return "", &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s is in none of the %s, so there is no telling which one the tool is to run in", dir, b.name), Hint: b.hint}
}

// fits wants a file to be no longer than a tool is given to read.
func fits(p bailey.Place, info fs.FileInfo) error {
	if info.Size() <= pack.MaxStdin {
		return nil
	}
	return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s: %q has %d bytes, more than %d", p.Input, p.Path, info.Size(), pack.MaxStdin), Hint: "name a smaller file"}
}

// outside says the same of what exists and what does not, and names what the caller named, not where it leads.
func (b bounds) outside(in pack.PathInput, path string) error {
	return &bailey.Error{Kind: bailey.Denied, Hint: b.hint,
		Message: fmt.Sprintf("input /%s: %q is outside the %s", in.Name, filepath.Clean(path), b.name)}
}

func (b bounds) hold(real string) bool {
	return slices.ContainsFunc(b.dirs, func(dir string) bool { return within(dir, real) })
}

// use makes dirs the home's workspaces from the next call on; with none the client's directory is the
// workspace. While shut is not nil no call gets any.
func (w *Workspaces) use(dirs []string, shut error) {
	w.mu.Lock()
	w.named, w.shut = slices.Clone(dirs), shut
	w.mu.Unlock()
}

// useProfiles adds the workspaces of the profiles in use, from the next call on.
func (w *Workspaces) useProfiles(dirs []string) {
	w.mu.Lock()
	w.more = dirs
	w.mu.Unlock()
}

func (w *Workspaces) bounds(call bailey.Call) (bounds, error) {
	w.mu.Lock()
	named, shut := slices.Concat(w.named, w.more), w.shut
	project, wall := w.walls[call.Session.ID]
	w.mu.Unlock()
	switch {
	case shut != nil:
		return bounds{}, shut
	case wall && len(named) > 0:
		one := bounds{name: "workspace " + project, hint: "work in the project that this agent was started in; a person can wrap it in another", named: true}
		if project != "" && slices.ContainsFunc(named, func(dir string) bool { return within(dir, project) }) {
			one.dirs = []string{project}
		}
		return one, nil
	case len(named) > 0:
		return bounds{named, "workspaces of this home", "work in a workspace of this home; a person can add one: bailey init DIR", true}, nil
	}
	root, err := w.root(call)
	return bounds{[]string{root}, "workspace " + root, "start from the project's own directory: that directory is the workspace", false}, err
}

// fix makes a directory a session's workspace, wherever its calls say that they come from: an agent that may write could have
// a link lead elsewhere. Of the workspaces that a home names it has this one and no other. One that does not fit leaves the session
// to its first call, which is refused for the same reason.
func (w *Workspaces) fix(id bailey.SessionID, dir string) {
	root, _ := w.root(bailey.Call{Session: bailey.Session{ID: id}, Dir: dir})
	w.mu.Lock()
	w.walls[id] = root
	w.mu.Unlock()
}

// root returns the session's workspace and fixes it at the first use.
func (w *Workspaces) root(call bailey.Call) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if root, ok := w.roots[call.Session.ID]; ok {
		return root, nil
	}
	root, err := w.fit(call.Dir)
	if err != nil {
		return "", err
	}
	w.roots[call.Session.ID] = root
	return root, nil
}

// fit returns the canonical path of a directory that may be a workspace, or why it may not.
func (w *Workspaces) fit(dir string) (string, error) {
	f, err := openPath(dir)
	if err != nil {
		return "", &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("your directory %s cannot be opened", dir), Err: cause(err),
			Hint: "name a directory that exists and that you may enter"}
	}
	defer f.Close()
	root, err := pathOf(f)
	if err != nil {
		return "", err
	}
	why := w.unfit(root)
	if info, err := f.Stat(); why == "" && (err != nil || !info.IsDir()) {
		why = "no directory"
	}
	if why == "" && mountRoot(f) {
		why = "the root of a mount"
	}
	if why != "" {
		return "", &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s cannot be the workspace: it is %s", root, why),
			Hint: "start from the project's own directory"}
	}
	return root, nil
}

// unfit says why a directory cannot be a workspace, or "".
func (w *Workspaces) unfit(root string) string {
	root = fold(root)
	is := func(path string) bool { return fold(path) == root }
	dirs, trees := systemDirs()
	switch {
	case filepath.Dir(root) == root:
		return "the root of the file system"
	case slices.ContainsFunc(w.home, is):
		return "a home directory"
	case slices.ContainsFunc(dirs, is), slices.ContainsFunc(trees, func(s string) bool { return within(fold(s), root) }):
		return "a system directory"
	case holdsSecrets(root):
		return "a place of secrets"
	}
	for _, m := range w.masks {
		if within(fold(m), root) {
			return "masked: it holds secrets"
		}
		if within(root, fold(m)) {
			return "a parent of " + m + ", which must stay hidden"
		}
	}
	return ""
}

// within reports whether path is dir or lies below it; both are canonical.
func within(dir, path string) bool {
	const sep = string(filepath.Separator)
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, sep)+sep)
}

func cause(err error) error {
	if e, ok := err.(*os.PathError); ok {
		return e.Err
	}
	return err
}
