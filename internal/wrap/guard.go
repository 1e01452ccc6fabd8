//go:build linux

package wrap

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"bailey"
	"bailey/internal/guard"
)

// Guarded are the names in package guard, at any depth, and the files that git acts on in its own directories. Names
// are compared folded: on a case-insensitive file system, .GIT/CONFIG is .git/config.

// dotGit is the name of a repository's own directory, or of the file that says where it is.
const dotGit = ".git"

// maxEntries limits the walk before a run: a project with more files is refused. The walk at the end has no limit: the
// agent may have made files so that it would end early.
var maxEntries = 4 << 20

// maxDepth limits the depth of the walk, which needs a file descriptor for each level.
const maxDepth = 512

// Found is the result of walking a project.
type Found struct {
	Paths  []string          // relative, slash-separated, sorted
	Unseen []string          // directories that could not be read
	Links  map[string]string // symbolic links that lead out of the project, with their targets: see [walk.out]
	Git    []string          // git's own directories
}

// Guarded finds the paths below a project that an agent must not change. It follows no symbolic link. A link with a
// guarded name is found like any other file of that name. A link that leads into a directory in avoid is found too.
func Guarded(project string, avoid ...string) (f Found, err error) {
	return searchProject(project, maxEntries, avoid)
}

func searchProject(project string, most int, avoid []string) (f Found, err error) {
	root, err := os.OpenRoot(project)
	if err != nil {
		return f, err
	}
	defer root.Close()
	w := newWalk(project, most)
	for _, dir := range avoid {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			w.avoid = append(w.avoid, real)
		}
	}
	if err := w.walkDir(root, ".", 0, dirContext{}); err != nil {
		return f, err
	}
	slices.Sort(w.found.Git)
	slices.Sort(w.found.Paths)
	slices.Sort(w.found.Unseen)
	return w.found, nil
}

// enclosingGuarded returns the guarded directory that the project is or lies in, or "". Below it no name is guarded. A checkout
// in such a directory is accepted, because some agents keep theirs in .claude. A checkout in .git is not.
func enclosingGuarded(project string) string {
	has := func(dir, name string) bool { _, err := os.Lstat(filepath.Join(dir, name)); return err == nil }
	checkout := false
	for dir := project; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		name, above := guard.Fold(filepath.Base(dir)), filepath.Dir(dir)
		_, guarded := guard.Name(filepath.Base(above), name)
		checkout = checkout || has(dir, dotGit)
		repository := has(above, "HEAD") && (has(above, "objects") && has(above, "refs") || has(above, "commondir"))
		if name == dotGit || !checkout && (guarded || repository && slices.Contains(guard.OfGit, name)) {
			return dir
		}
	}
	return ""
}

type walk struct {
	project string
	real    string   // canonical
	avoid   []string // canonical
	found   Found
	left    int // remaining entries; negative: no limit
}

func newWalk(project string, most int) *walk {
	w := &walk{project: project, real: project, left: most, found: Found{Links: map[string]string{}}}
	if real, err := filepath.EvalSymlinks(project); err == nil {
		w.real = real
	}
	return w
}

// dirEntries are the relevant entries of a directory.
type dirEntries struct {
	names []string // guarded anywhere, or guarded if the directory is a repository
	dirs  []string
	has   map[string]bool // parts of a repository
}

// dirContext describes the directories above a directory.
type dirContext struct {
	git   bool // one of git's, in which a repository can lie
	links bool // one of git's, in which git follows links, including objects, refs and logs
	deps  bool // third-party packages, for example node_modules: only files that git acts on are guarded there
}

// dependencyDirs lists names of directories with third-party packages. Many of these contain files for editors and
// agents, but are not opened there.
var dependencyDirs = []string{"node_modules", "site-packages", "dist-packages"}

// walkDir walks a directory through its descriptor, so that no other process can redirect the walk.
func (w *walk) walkDir(at *os.Root, name string, depth int, in dirContext) error {
	list, err := w.readDir(at, name, in)
	inGit := in.git
	if err != nil {
		return err
	}
	// This includes the repositories of submodules and worktrees (.git/modules/NAME, .git/worktrees/NAME), bare ones,
	// and those with their objects elsewhere, which git accepts in any place. Git may take .git itself for a repository
	// if a HEAD is put there, whatever else it contains.
	repository := list.has["HEAD"] && (inGit || list.has["objects"] && list.has["refs"] || list.has["commondir"]) ||
		inGit && guard.Fold(filepath.Base(name)) == dotGit
	if repository {
		w.found.Git = append(w.found.Git, filepath.ToSlash(name))
	}
	for _, n := range list.names {
		if repository || !slices.Contains(guard.OfGit, guard.Fold(n)) {
			w.found.Paths = append(w.found.Paths, filepath.ToSlash(filepath.Join(name, n)))
		}
	}
	for _, n := range list.dirs {
		path := filepath.ToSlash(filepath.Join(name, n))
		folded := guard.Fold(n)
		if repository && slices.Contains(guard.OfGit, folded) {
			continue // already found, with its contents
		}
		if depth == maxDepth {
			w.found.Unseen = append(w.found.Unseen, path)
			continue
		}
		sub, closed, err := enterDir(at, n)
		if err != nil {
			w.found.Unseen = append(w.found.Unseen, path)
			continue
		}
		// In refs and logs the names are those of branches and have no other meaning. A directory of a project may have
		// such a name too.
		own := repository && (folded == "objects" || folded == "refs" || folded == "logs")
		err = w.walkDir(sub, path, depth+1,
			dirContext{git: (inGit || folded == dotGit) && !own, links: in.links || repository || folded == dotGit,
				deps: in.deps || slices.Contains(dependencyDirs, folded)})
		closed()
		if err != nil {
			return err
		}
	}
	return nil
}

// enterDir opens a directory. If a process of this user has removed the user's permissions, enter restores them until the
// directory is closed.
func enterDir(at *os.Root, name string) (sub *os.Root, closed func(), err error) {
	info, err := at.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	mode := info.Mode().Perm()
	shut := mode&0o700 != 0o700 && info.IsDir() && at.Chmod(name, mode|0o700) == nil
	// Only a directory matches this name. If it is a pipe by now, opening it must not block.
	if sub, err = at.OpenRoot(name + "/."); err != nil {
		return nil, nil, err
	}
	return sub, func() {
		if shut {
			sub.Chmod(".", mode)
		}
		sub.Close()
	}, nil
}

// readDir reads a directory in pieces, and records one that cannot be read.
func (w *walk) readDir(at *os.Root, name string, where dirContext) (list dirEntries, err error) {
	list.has = map[string]bool{}
	d, err := at.Open(".")
	if err != nil {
		w.found.Unseen = append(w.found.Unseen, name)
		return list, nil
	}
	defer d.Close()
	in := filepath.Base(name)
	if name == "." {
		in = filepath.Base(w.project)
	}
	for {
		some, err := d.ReadDir(1024)
		for _, e := range some {
			n, link := e.Name(), e.Type()&fs.ModeSymlink != 0
			folded := guard.Fold(n)
			switch folded {
			case "head":
				list.has["HEAD"] = true
			case "objects", "refs", "commondir":
				list.has[folded] = true
			}
			_, guarded := guard.Name(in, folded)
			guarded = guarded && !where.deps
			if guarded || slices.Contains(guard.OfGit, folded) || folded == dotGit && !e.IsDir() || link &&
				w.leadsToAvoided(at, name, n) {
				list.names = append(list.names, n)
			} else if link {
				w.recordLinkOut(at, name, n, where.links)
			}
			if e.IsDir() && !guarded {
				list.dirs = append(list.dirs, n)
			}
		}
		if w.left > 0 {
			if w.left -= len(some); w.left <= 0 {
				return list, bailey.Invalid.Errorf("wrap the agent in a smaller directory",
					"the project has more than %d files", maxEntries)
			}
		}
		switch {
		case err == io.EOF:
			return list, nil
		case err != nil:
			w.found.Unseen = append(w.found.Unseen, name)
			return list, nil
		}
	}
}

// leadsToAvoided reports whether a link leads into an avoided directory, by its text or by its current target.
func (w *walk) leadsToAvoided(at *os.Root, dir, name string) bool {
	if len(w.avoid) == 0 {
		return false
	}
	to, err := at.Readlink(name)
	if err != nil {
		return false
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(w.project, dir, to)
	}
	real, _ := filepath.EvalSymlinks(filepath.Join(w.project, dir, name)) // a dangling link counts by its text
	return isWithinAny(w.avoid, filepath.Clean(to)) || isWithinAny(w.avoid, real)
}

// New returns the paths in now that are not in before, without those below another new path.
func New(before, now []string) (list []string) {
	was, fresh := map[string]bool{}, map[string]bool{}
	for _, path := range before {
		was[path] = true
	}
	for _, path := range now {
		inside := false
		for i := range path {
			inside = inside || path[i] == '/' && fresh[path[:i]]
		}
		if !was[path] && !inside {
			fresh[path] = true
			list = append(list, path)
		}
	}
	return list
}

// Keep returns the paths for [bailey.Wall], without links, because nothing can be mounted on a link: see
// [Found.Refused].
func (f Found) Keep(project string) (list []string) {
	for _, path := range f.Paths {
		path = filepath.Join(project, filepath.FromSlash(path))
		if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			list = append(list, path)
		}
	}
	return list
}

// Refused returns an error if a guarded path is a link, which no mount can protect. A link between two instructions for
// agents, such as CLAUDE.md to AGENTS.md, is accepted: its target is kept, and a changed link is reported at the end.
func (f Found) Refused(project string) error {
	for _, path := range f.Paths {
		path := filepath.Join(project, filepath.FromSlash(path))
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 &&
			!f.linksInstructions(project, path) {
			return bailey.Denied.New(path+" is a symbolic link, which an agent could replace",
				"replace it by its target, or move it out of the project")
		}
	}
	return nil
}

// linksInstructions reports whether a link connects two guarded texts for agents.
func (f Found) linksInstructions(project, link string) bool {
	to := resolvePath(link)
	rel, err := filepath.Rel(project, to)
	return err == nil && filepath.Ext(link) == ".md" && filepath.Ext(to) == ".md" &&
		slices.Contains(f.Paths, filepath.ToSlash(rel))
}

// AnyCase refuses a project in which a name also finds its file if it is written in the other case, for example .GIT
// for .git. On Linux such a file system mostly belongs to another system and is reached over a network or from a
// virtual machine. The kernel treats the two spellings as two files, so a mount over one does not protect the other.
func (f Found) AnyCase(project string) error {
	for _, path := range append([]string{"."}, f.Paths...) {
		path := filepath.Join(project, filepath.FromSlash(path))
		if anyCase(path) {
			return bailey.Denied.New(path+
				" is also found by its name in another case, so an agent could bypass its protection",
				"move the project to a case-sensitive file system, or start with --any-case if the agent may change its git configuration and hooks")
		}
	}
	return nil
}

// anyCase reports whether the last name of a path finds the same file in the other case, without a second directory
// entry.
func anyCase(path string) bool {
	dir, name := filepath.Split(path)
	other := strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, name)
	own, err := os.Lstat(path)
	if err != nil || other == name {
		return false
	}
	found, err := os.Lstat(filepath.Join(dir, other))
	if err != nil || !os.SameFile(own, found) {
		return false
	}
	at, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer at.Close()
	names, err := at.Readdirnames(-1)
	return err != nil || !slices.Contains(names, other) // otherwise it is another link to the file
}

// A mount protects a guarded file until a process outside the agent jail replaces that file: rename(2) removes the
// mount in every namespace, and from then on the agent can write the new file. An editor cannot be prevented from doing
// this. So a run records the state of the guarded files and reports at its end which have changed.

// maxStamped limits the bytes of guarded files that are read each time. Beyond it a file counts by its size and time.
const maxStamped = 64 << 20

// stampPaths returns a digest for each path: file types, executable bits, contents.
func stampPaths(project string, paths []string) (map[string]string, error) {
	root, err := os.OpenRoot(project)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s := &stamper{root: root, left: maxStamped}
	all := map[string]string{}
	for _, path := range paths {
		sum := sha256.New()
		s.addPath(sum, path)
		all[path] = hex.EncodeToString(sum.Sum(nil))
	}
	return all, nil
}

type stamper struct {
	root *os.Root
	left int64
}

// addPath follows no link and opens only files and directories. If a file cannot be read, this fact is part of the stamp.
func (s *stamper) addPath(sum hash.Hash, path string) {
	info, err := s.root.Lstat(path)
	if err != nil {
		fmt.Fprintf(sum, "%q none\n", path)
		return
	}
	fmt.Fprintf(sum, "%q %v\n", path, info.Mode()&(fs.ModeType|0o111))
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		to, _ := s.root.Readlink(path)
		fmt.Fprintf(sum, "to %q\n", to)
	case info.Mode().IsRegular() && info.Size() > s.left:
		fmt.Fprintf(sum, "%d bytes at %d\n", info.Size(), info.ModTime().UnixNano())
	case info.Mode().IsRegular():
		f, err := s.root.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			fmt.Fprintf(sum, "unread\n")
			return
		}
		defer f.Close()
		n, err := io.Copy(sum, io.LimitReader(f, info.Size()))
		s.left -= n
		fmt.Fprintf(sum, "\n%d bytes %v\n", info.Size(), err == nil)
	case info.IsDir():
		// by now it may be a pipe
		d, err := s.root.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			fmt.Fprintf(sum, "unread\n")
			return
		}
		names, err := d.Readdirnames(-1)
		d.Close()
		slices.Sort(names)
		fmt.Fprintf(sum, "%d names %v\n", len(names), err == nil)
		for _, name := range names {
			s.addPath(sum, path+"/"+name)
		}
	}
}

// changedPaths returns the paths of before that have another value now, or none.
func changedPaths(before, now map[string]string) (list []string) {
	for path, was := range before {
		if now[path] != was {
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return list
}
