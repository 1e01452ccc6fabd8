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

// If an agent leaves a link in .git, git writes to the link's target when a person works outside: git opens COMMIT_EDITMSG, logs/HEAD,
// FETCH_HEAD, packed-refs and index by name, and follows links. A link elsewhere in the project does the same to any program that
// writes the project's files. So links that lead out of the project are taken out of it: new ones are put in quarantine at the end of
// a run, and while an agent runs, those in git's directories are removed at once. The removed link itself is not kept: it has nothing
// to keep but its target, which is reported, and an agent could make one again and again.

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

// out notes a link that leads out of the project, by its text or by where it leads now: a program outside that writes to it, or below
// it, would write there. In git's own directories any such link counts, since git opens its files by name. Elsewhere a link to the
// system's programs and libraries does not count: many projects have one, for example from a virtual environment to its Python.
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
