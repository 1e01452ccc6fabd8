package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"bailey"
	"bailey/pack"
)

// Workspaces bound every path input. While a home names none, the client's directory is the workspace
// of its session: read-only, and fixed at the session's first call that needs one.
type Workspaces struct {
	masks []string // canonical: what no workspace may hold
	home  []string // the user's home directories: never a workspace themselves
	mu    sync.Mutex
	roots map[bailey.SessionID]string
}

// NewWorkspaces knows what must stay hidden: see [Masks].
func NewWorkspaces(masks, homes []string) *Workspaces {
	return &Workspaces{masks: masks, home: homes, roots: map[bailey.SessionID]string{}}
}

// End forgets a session's workspace.
func (w *Workspaces) End(id bailey.SessionID) {
	w.mu.Lock()
	delete(w.roots, id)
	w.mu.Unlock()
}

// Open opens a path input once. The descriptor's own path, not the words that led to it, must lie
// inside the workspace: a symbolic link may lead about inside, and nowhere else.
func (w *Workspaces) Open(call bailey.Call, in pack.PathInput, path string) (bailey.Place, error) {
	none := bailey.Place{}
	root, err := w.root(call)
	if err != nil {
		return none, err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(call.Dir, path)
	}
	f, err := openPath(path)
	if err != nil {
		return none, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s: %q cannot be opened: %v", in.Name, path, cause(err)),
			Hint: "name a path that exists and that you may read"}
	}
	real, err := pathOf(f)
	if err == nil {
		err = admit(root, real, in, f)
	}
	if err != nil {
		f.Close()
		return none, err
	}
	return bailey.Place{Input: in.Name, Path: real, File: f, Write: in.Write}, nil
}

func admit(root, real string, in pack.PathInput, f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !within(root, real):
		return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("input /%s: %s is outside the workspace %s", in.Name, real, root),
			Hint: "start from the project's own directory: that directory is the workspace"}
	case in.Dir && !info.IsDir():
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s: %s is not a directory", in.Name, real)}
	case !info.IsDir() && !info.Mode().IsRegular():
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s: %s is neither file nor directory", in.Name, real)}
	}
	return nil
}

// root returns the session's workspace and fixes it at the first use.
func (w *Workspaces) root(call bailey.Call) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if root, ok := w.roots[call.Session.ID]; ok {
		return root, nil
	}
	f, err := openPath(call.Dir)
	if err != nil {
		return "", &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("your directory %s cannot be opened", call.Dir), Err: err}
	}
	defer f.Close()
	root, err := pathOf(f)
	if err != nil {
		return "", err
	}
	why := w.unfit(root)
	if why == "" && mountRoot(f) {
		why = "the root of a mount"
	}
	if why != "" {
		return "", &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s cannot be the workspace: it is %s", root, why),
			Hint: "start from the project's own directory"}
	}
	w.roots[call.Session.ID] = root
	return root, nil
}

// system are directories that are nobody's project, and those below which everything is the system's.
var (
	system      = []string{"/", "/home", "/opt", "/srv", "/var", "/var/lib", "/usr", "/usr/local", "/mnt", "/media", "/run"}
	systemTrees = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys",
		"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/include", "/usr/share"}
)

// unfit says why a directory cannot be a workspace, or "".
func (w *Workspaces) unfit(root string) string {
	switch {
	case root == "/":
		return "the root of the file system"
	case slices.Contains(w.home, root):
		return "a home directory"
	case slices.Contains(system, root), slices.ContainsFunc(systemTrees, func(s string) bool { return within(s, root) }):
		return "a system directory"
	}
	for _, m := range w.masks {
		if within(m, root) {
			return "masked: it holds secrets"
		}
		if within(root, m) {
			return "a parent of " + m + ", which must stay hidden"
		}
	}
	return ""
}

// within reports whether path is dir or lies below it; both are canonical.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func cause(err error) error {
	if e, ok := err.(*os.PathError); ok {
		return e.Err
	}
	return err
}
