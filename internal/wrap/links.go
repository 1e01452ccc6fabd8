//go:build linux

package wrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"bailey"
)

// If an agent leaves a link in .git, git writes to the link's target when a person works outside: git opens COMMIT_EDITMSG, logs/HEAD,
// FETCH_HEAD, packed-refs and index by name, and follows links. A link elsewhere in the project does the same to any program that
// writes the project's files. So links that lead out of the project are taken out of it: new ones are put in quarantine at the end of
// a run, and while an agent runs, those in git's directories are removed at once. The removed link itself is not kept: it has nothing
// to keep but its target, which is reported, and an agent could make one again and again.

// watchEvery is how often git's directories are looked through while an agent runs, unless that takes too long.
const watchEvery = 200 * time.Millisecond

// maxAway bounds how many removed links are named to a person.
const maxAway = 1000

// maxRemoved is how many links an agent may make before it is ended. maxSeen is how many entries of git's directories one search looks
// at, and maxPartial how many searches in a row may leave something out.
const maxRemoved, maxSeen, maxPartial = 100, 1 << 20, 10

// Watch removes links as they appear in git's directories, until ctx ends. Settle says which they were. A link that cannot be removed is
// left to Settle, which finds it again. Watch calls end with the reason if that does not keep git outside safe: links came again and
// again, and git may follow one before it is removed, or the directories cannot be searched whole. It goes on until the agent is gone.
func (r *Run) Watch(ctx context.Context, end context.CancelCauseFunc) {
	removed, partial := 0, 0
	for pause := watchEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		begin := time.Now()
		gone, left := r.lookThrough(ctx)
		if removed += len(gone); removed >= maxRemoved && len(gone) > 0 {
			end(&bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("the agent was ended: it put links into git's directories again and again, the last one at %s", gone[len(gone)-1]),
				Hint: "look at what it was told to do before you start it again"})
		}
		if partial++; left == "" {
			partial = 0
		}
		if partial >= maxPartial {
			end(&bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("the agent was ended: git's directories cannot be searched whole for links: %s", left),
				Hint: "remove what you do not know there; git pack-refs --all makes references fewer"})
		}
		pause = max(watchEvery, 20*time.Since(begin)) // a twentieth of a processor at most
	}
}

// lookThrough removes links that appeared and returns their paths. left says why something was not looked at, "" if everything was.
func (r *Run) lookThrough(ctx context.Context) (removed []string, left string) {
	w := newWalk(r.Project, maxSeen)
	dirs := r.git
	if !slices.Contains(dirs, dotGit) { // the repository may be younger than the run
		dirs = append(slices.Clone(dirs), dotGit)
	}
	for _, dir := range dirs {
		at, closed, err := descend(r.Project, dir, enter)
		if err == nil {
			w.links(ctx, r, at, dir, dir, 0)
			closed()
		}
		w.missed(dir, err)
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
	return removed, strings.Join(w.found.Unseen, ", ")
}

// links looks for links in one of git's directories, top, except where the agent may not write. Below objects it skips
// the loose objects, which git writes under names that cannot be chosen.
func (w *walk) links(ctx context.Context, r *Run, at *os.Root, top, name string, depth int) {
	d, err := at.Open(".")
	if err != nil {
		w.missed(name, err)
		return
	}
	defer d.Close()
	for err == nil && ctx.Err() == nil && len(w.found.Links) < maxAway {
		if w.left <= 0 {
			w.missed(name, fmt.Errorf("there are more than %d entries", maxSeen))
			return
		}
		var some []fs.DirEntry
		some, err = d.ReadDir(1024)
		w.left -= len(some)
		for _, e := range some {
			path := filepath.ToSlash(filepath.Join(name, e.Name()))
			switch {
			case slices.Contains(r.Before, path):
			case e.Type()&fs.ModeSymlink != 0:
				if words, err := at.Readlink(e.Name()); err == nil && r.Links[path] != words {
					w.found.Links[path] = words
				}
			case !e.IsDir(), name == top+"/objects" && len(e.Name()) == 2:
			case depth == maxDepth:
				w.missed(path, fmt.Errorf("it is more than %d directories deep", maxDepth))
			default:
				sub, closed, err := enter(at, e.Name())
				if err == nil {
					w.links(ctx, r, sub, top, path, depth+1)
					closed()
				}
				if !errors.Is(err, fs.ErrPermission) || ours(e) {
					w.missed(path, err)
				}
			}
		}
	}
	if err != io.EOF {
		w.missed(name, err)
	}
}

// missed notes the first directory that could not be searched. One that is gone, or is no directory any more, holds nothing.
func (w *walk) missed(path string, err error) {
	if err != nil && len(w.found.Unseen) == 0 && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ELOOP) {
		w.found.Unseen = append(w.found.Unseen, fmt.Sprintf("%s: %v", path, err))
	}
}

// ours reports whether a directory belongs to this user, whose agent can change its mode. In another user's it writes nothing.
func ours(e fs.DirEntry) bool {
	info, err := e.Info()
	if err != nil {
		return false // gone
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(st.Uid) == os.Geteuid()
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

// systemTrees are directories that only the system's packages change.
var systemTrees = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store"}

// resolved is where a path ends, or would end if its missing parts were made. A path with more links or parts than the kernel follows
// ends at the root, which is outside of every project.
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
