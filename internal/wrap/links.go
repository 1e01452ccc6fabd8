//go:build linux

package wrap

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A link that an agent leaves in .git has git write where it leads when a person works outside: COMMIT_EDITMSG, logs/HEAD, FETCH_HEAD,
// packed-refs and index are opened by their names, and links followed. A link elsewhere in the project does the same for whatever
// writes the project's files. What leads out of the project is taken out of it: at the end of a run all that is new is put in
// quarantine, and while an agent runs what lies in a directory of git's is removed at once. A link has nothing but its words to
// keep, and an agent could make one again and again.

// watchEvery is how often git's directories are looked through while an agent runs, unless that takes too long.
const watchEvery = 200 * time.Millisecond

// maxAway bounds how many of those are told.
const maxAway = 1000

// Watch removes links that lead out of the project as they appear in git's directories, until ctx ends. Settle says which they were.
// One that cannot be removed is left to Settle, which finds it again.
func (r *Run) Watch(ctx context.Context) {
	for pause := watchEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		begin := time.Now()
		r.lookThrough()
		pause = max(watchEvery, 20*time.Since(begin)) // a twentieth of a processor at most
	}
}

// lookThrough removes what appeared.
func (r *Run) lookThrough() {
	root, err := os.OpenRoot(r.Project)
	if err != nil {
		return
	}
	defer root.Close()
	w := newWalk(r.Project, -1)
	for _, dir := range r.git {
		sub, err := root.OpenRoot(filepath.FromSlash(dir))
		if err != nil {
			continue
		}
		w.links(sub, dir, 0)
		sub.Close()
	}
	s := Settled{Moved: r.away, Links: r.awayTo}
	for _, path := range newLinks(r.Links, w.found.Links) {
		at, closed, err := descend(r.Project, filepath.Dir(path), enter)
		if err != nil {
			continue
		}
		info, err := at.Lstat(filepath.Base(path))
		if err == nil && info.Mode()&fs.ModeSymlink != 0 && at.Remove(filepath.Base(path)) == nil && (s.Links[path] != "" || len(s.Moved) < maxAway) {
			s.moved(path, w.found.Links)
		}
		closed()
	}
	r.away, r.awayTo = s.Moved, s.Links
}

// links looks for links in one of git's directories. Of objects only what git writes by its name is looked through.
func (w *walk) links(at *os.Root, name string, depth int) {
	d, err := at.Open(".")
	if err != nil || depth > maxDepth {
		return
	}
	list, _ := d.ReadDir(-1)
	d.Close()
	for _, e := range list {
		path := filepath.ToSlash(filepath.Join(name, e.Name()))
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			w.out(at, name, e.Name(), true)
		case e.IsDir() && !(filepath.Base(name) == "objects" && len(e.Name()) == 2):
			if sub, closed, err := enter(at, e.Name()); err == nil {
				w.links(sub, path, depth+1)
				closed()
			}
		}
	}
}

// newLinks are the links that lead out of the project now and did not before, or led elsewhere.
func newLinks(before, now map[string]string) (list []string) {
	for path, words := range now {
		if was, ok := before[path]; !ok || was != words {
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return list
}

// out notes a link that leads out of the project, by its words or by where it ends now: a program outside that writes it, or what is
// below it, would write there. In git's own directories it is any such link, since git writes its files by their names; elsewhere it
// is not one to the system's programs and libraries, which projects have many of, as a virtual environment's to its Python.
func (w *walk) out(at *os.Root, dir, name string, inGit bool) {
	words, err := at.Readlink(name)
	if err != nil {
		return
	}
	to := words
	if !filepath.IsAbs(to) {
		to = filepath.Join(w.project, dir, to)
	}
	real := resolved(filepath.Join(w.project, dir, name))
	stays := (within(w.project, filepath.Clean(to)) || within(w.real, filepath.Clean(to))) && within(w.real, real)
	if !stays && (inGit || !slices.ContainsFunc(systemTrees, func(tree string) bool { return within(tree, real) })) {
		w.found.Links[filepath.ToSlash(filepath.Join(dir, name))] = words
	}
}

// systemTrees hold what only the system's packages change.
var systemTrees = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store"}

// resolved is where a path ends; what is not there is where it would be made.
func resolved(path string) string {
	rest := ""
	for range 64 { // links that lead on
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Join(real, rest)
		}
		if to, err := os.Readlink(path); err == nil {
			if !filepath.IsAbs(to) {
				to = filepath.Dir(path) + "/" + to // not cleaned: what is before a .. may be a link
			}
			path = to
			continue
		}
		path = strings.TrimRight(path, "/")
		at := strings.LastIndexByte(path, '/')
		if at <= 0 {
			break
		}
		path, rest = path[:at], filepath.Join(path[at+1:], rest)
	}
	return "/"
}
