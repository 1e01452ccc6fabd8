package wrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"bailey"
)

// guarded are the names that have programs outside of the wall do something: editors, shells and agents read them when the
// project is opened. They are guarded at whatever depth.
var guarded = []string{".bailey", ".mcp.json", ".claude", ".envrc", ".vscode", ".idea"}

// ofGit are those in a directory that git takes for a repository's own (gitrepository-layout(5)).
var ofGit = []string{"config", "config.worktree", "hooks", "commondir"}

// maxEntries bounds a walk: a project with more files than that is refused.
const maxEntries = 4 << 20

// Found is what a walk found of a project.
type Found struct {
	Paths  []string // relative, slash-separated, sorted
	Unseen []string // directories that could not be looked into
}

// Guarded finds what an agent may not change below a project. It follows no symbolic link; a link that has such a name is
// found as any other thing of that name is.
func Guarded(project string) (f Found, err error) {
	root, err := os.OpenRoot(project)
	if err != nil {
		return f, err
	}
	defer root.Close()
	w := &walk{root: root}
	if err := w.dir(".", false); err != nil {
		return f, err
	}
	slices.Sort(w.found.Paths)
	return w.found, nil
}

type walk struct {
	root    *os.Root
	found   Found
	entries int
}

// dir looks through a directory; inGit says that it lies in one of git's.
func (w *walk) dir(name string, inGit bool) error {
	list, err := w.list(name)
	if err != nil {
		w.found.Unseen = append(w.found.Unseen, name)
		return nil
	}
	if w.entries += len(list); w.entries > maxEntries {
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the project holds more than %d files", maxEntries), Hint: "wrap the agent in a smaller directory"}
	}
	// Of a submodule or worktree too: .git/modules/NAME, .git/worktrees/NAME. And one that is bare, which git takes wherever it lies.
	repository := holds(list, "HEAD") && (inGit || holds(list, "objects") && holds(list, "refs"))
	for _, e := range list {
		path := filepath.ToSlash(filepath.Join(name, e.Name()))
		git := e.Name() == ".git"
		switch {
		case repository && slices.Contains(ofGit, e.Name()), !inGit && slices.Contains(guarded, e.Name()), git && !e.IsDir():
			w.found.Paths = append(w.found.Paths, path)
		case git && e.IsDir():
			if err := w.gitDir(path); err != nil {
				return err
			}
		case repository && (e.Name() == "objects" || e.Name() == "refs" || e.Name() == "logs"):
		case e.IsDir():
			if err := w.dir(path, inGit); err != nil {
				return err
			}
		}
	}
	return nil
}

// gitDir looks through .git: whatever is in it, git may take it for a repository when a HEAD is put there.
func (w *walk) gitDir(name string) error {
	list, _ := w.list(name)
	if !holds(list, "HEAD") {
		for _, e := range list {
			if slices.Contains(ofGit, e.Name()) {
				w.found.Paths = append(w.found.Paths, name+"/"+e.Name())
			}
		}
	}
	return w.dir(name, true)
}

func holds(list []fs.DirEntry, name string) bool {
	return slices.ContainsFunc(list, func(e fs.DirEntry) bool { return e.Name() == name })
}

// list reads a directory, one too that somebody who has the user's rights took the rights from.
func (w *walk) list(name string) ([]fs.DirEntry, error) {
	d, err := w.root.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		if info, lerr := w.root.Lstat(name); lerr == nil && info.IsDir() && w.root.Chmod(name, info.Mode().Perm()|0o700) == nil {
			defer w.root.Chmod(name, info.Mode().Perm())
			d, err = w.root.Open(name)
		}
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}

// New is what is there now and was not before. What lies in something new goes with it.
func New(before, now []string) (list []string) {
	for _, path := range now {
		if !slices.Contains(before, path) && !slices.ContainsFunc(list, func(dir string) bool { return within(dir, path) }) {
			list = append(list, path)
		}
	}
	return list
}

// Keep are the paths for [bailey.Wall].
func (f Found) Keep(project string) (list []string) {
	for _, path := range f.Paths {
		list = append(list, filepath.Join(project, filepath.FromSlash(path)))
	}
	return list
}

// Refused says that a project has something which no mount keeps as it is.
func (f Found) Refused(project string) error {
	for _, path := range f.Keep(project) {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return &bailey.Error{Kind: bailey.Denied, Message: path + " is a symbolic link, and an agent could put something else in its place",
				Hint: "put what it leads to in its place, or move it out of the project"}
		}
	}
	return nil
}
