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

// Watch removes links as they appear in git's directories, until ctx ends. Settle says which they were. One that cannot be removed is
// left to Settle, which finds it again. stubborn is called when links have come again and again: there is a moment in which git outside
// would follow one, and such an agent waits for it.
func (r *Run) Watch(ctx context.Context, stubborn func(path string)) {
	removed := 0
	for pause := watchEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		begin := time.Now()
		for _, path := range r.lookThrough(ctx) {
			if removed++; removed == maxRemoved {
				stubborn(path)
			}
		}
		pause = max(watchEvery, 20*time.Since(begin)) // a twentieth of a processor at most
	}
}

// maxRemoved is how many links may come before that is no mistake any more, and maxSeen how many entries of git's directories are looked
// at each time.
const maxRemoved, maxSeen = 100, 1 << 20

// lookThrough removes what appeared, and says what.
func (r *Run) lookThrough(ctx context.Context) (removed []string) {
	w := newWalk(r.Project, maxSeen)
	dirs := r.git
	if !slices.Contains(dirs, dotGit) { // the repository may be younger than the run
		dirs = append(slices.Clone(dirs), dotGit)
	}
	for _, dir := range dirs {
		if at, closed, err := descend(r.Project, dir, enter); err == nil {
			w.links(ctx, r, at, dir, dir, 0)
			closed()
		}
	}
	s := Settled{Moved: r.away, Links: r.awayTo}
	for _, path := range newLinks(r.Links, w.found.Links) {
		at, closed, err := descend(r.Project, filepath.Dir(path), enter)
		if err != nil {
			continue
		}
		info, err := at.Lstat(filepath.Base(path))
		if err == nil && info.Mode()&fs.ModeSymlink != 0 && at.Remove(filepath.Base(path)) == nil {
			removed = append(removed, path)
			if s.Links[path] != "" || len(s.Moved) < maxAway {
				s.moved(path, w.found.Links)
			}
		}
		closed()
	}
	r.away, r.awayTo = s.Moved, s.Links
	return removed
}

// links looks for links in one of git's directories, top. Of its objects only what git writes by its name is looked through, and
// nothing of what the agent may not write.
func (w *walk) links(ctx context.Context, r *Run, at *os.Root, top, name string, depth int) {
	d, err := at.Open(".")
	if err != nil || depth > maxDepth {
		return
	}
	defer d.Close()
	for err == nil && ctx.Err() == nil && w.left > 0 && len(w.found.Links) < maxAway {
		var some []fs.DirEntry
		some, err = d.ReadDir(1024)
		w.left -= len(some)
		for _, e := range some {
			path := filepath.ToSlash(filepath.Join(name, e.Name()))
			switch {
			case slices.Contains(r.Before, path):
			case e.Type()&fs.ModeSymlink != 0:
				w.out(at, name, e.Name(), true)
			case e.IsDir() && !(name == top+"/objects" && len(e.Name()) == 2):
				if sub, closed, err := enter(at, e.Name()); err == nil {
					w.links(ctx, r, sub, top, path, depth+1)
					closed()
				}
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
	if inGit || w.leadsOut(words, dir, name) {
		w.found.Links[filepath.ToSlash(filepath.Join(dir, name))] = words
	}
}

func (w *walk) leadsOut(words, dir, name string) bool {
	to := words
	if !filepath.IsAbs(to) {
		to = filepath.Join(w.project, dir, to)
	}
	to = filepath.Clean(to)
	if !within(w.project, to) && !within(w.real, to) && !slices.ContainsFunc(systemTrees, func(tree string) bool { return within(tree, to) }) {
		return true // whatever it is
	}
	real := resolved(filepath.Join(w.project, dir, name))
	return !within(w.real, real) && !slices.ContainsFunc(systemTrees, func(tree string) bool { return within(tree, real) })

}

// systemTrees hold what only the system's packages change.
var systemTrees = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store"}

// resolved is where a path ends; what is not there is where it would be made. What has more links or parts than the kernel follows
// ends nowhere in a project.
func resolved(path string) string {
	at, rest, links := "/", strings.Split(path, "/"), 0
	for steps := 0; len(rest) > 0; steps++ {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		to, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		if links++; links > maxLinks || steps > maxSteps || len(to) > 4096 {
			return "/"
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return at
}

// maxLinks is how many links Linux follows in one path (path_resolution(7)).
const maxLinks, maxSteps = 40, 1024
