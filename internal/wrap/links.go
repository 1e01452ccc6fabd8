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

// If an agent leaves a link in .git, git writes to the link's target when a person works outside: git opens
// COMMIT_EDITMSG, logs/HEAD, FETCH_HEAD, packed-refs and index by name, and follows links. A link elsewhere in the
// project does the same to any program that writes the project's files. So links that lead out of the project must be
// removed from it: new ones are put in quarantine at the end of a run, and while an agent runs, those in git's
// directories are removed at once. Such a link is not kept: it contains only its target, which is reported, and an
// agent could make one again and again.

// watchEvery is the interval between searches of git's directories while an agent runs, unless a search takes too long.
const watchEvery = 200 * time.Millisecond

// maxAway limits how many removed links are named to a person.
const maxAway = 1000

// maxRemoved is the number of links after which an agent is ended. maxSeen limits the entries that one search reads,
// and maxPartial the number of incomplete searches in a row.
const maxRemoved, maxSeen, maxPartial = 100, 1 << 20, 10

// Watch removes links that appear in git's directories, until ctx ends. Settle reports them. If a link cannot be
// removed, Settle finds it again. Watch calls end with the reason if git outside is no longer safe: links appear again
// and again, so that git may follow one before it is removed, or the directories cannot be searched completely. It
// continues until the agent is gone.
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
			end(bailey.Denied.Errorf("review the agent's task before you start it again",
				"the agent was ended: it repeatedly put links into git's directories, the last one at %s", gone[len(gone)-1]))
		}
		if partial++; left == "" {
			partial = 0
		}
		if partial >= maxPartial {
			end(bailey.Denied.Errorf("remove unknown files there; git pack-refs --all reduces the number of references",
				"the agent was ended: git's directories cannot be searched completely for links: %s", left))
		}
		pause = max(watchEvery, 20*time.Since(begin)) // at most a twentieth of a processor
	}
}

// lookThrough removes new links and returns their paths. left says which part could not be searched and why; "" if
// everything was searched.
func (r *Run) lookThrough(ctx context.Context) (removed []string, left string) {
	w := newWalk(r.Project, maxSeen)
	dirs := r.git
	if !slices.Contains(dirs, dotGit) { // the repository may have been created during the run
		dirs = append(slices.Clone(dirs), dotGit)
	}
	for _, dir := range dirs {
		at, closed, err := descendInto(r.Project, dir, enterDir)
		if err == nil {
			w.findLinks(ctx, r, at, dir, dir, 0)
			closed()
		}
		w.recordMissed(dir, err)
	}
	s := Settled{Moved: r.away, Links: r.awayTo}
	for _, path := range changedPaths(w.found.Links, r.Links) {
		at, closed, err := descendInto(r.Project, filepath.Dir(path), enterDir)
		if err != nil {
			continue
		}
		info, err := at.Lstat(filepath.Base(path))
		if err == nil && info.Mode()&fs.ModeSymlink != 0 && at.Remove(filepath.Base(path)) == nil {
			removed = append(removed, path)
			if s.Links[path] != "" || len(s.Moved) < maxAway {
				s.recordMoved(path, w.found.Links)
			}
		}
		closed()
	}
	r.away, r.awayTo = s.Moved, s.Links
	return removed, strings.Join(w.found.Unseen, ", ")
}

// findLinks searches one of git's directories, top, for links, except where the agent cannot write. Below objects it skips
// the loose objects, because an agent cannot choose the names that git writes there.
func (w *walk) findLinks(ctx context.Context, r *Run, at *os.Root, top, name string, depth int) {
	d, err := at.Open(".")
	if err != nil {
		w.recordMissed(name, err)
		return
	}
	defer d.Close()
	for err == nil && ctx.Err() == nil && len(w.found.Links) < maxAway {
		if w.left <= 0 {
			w.recordMissed(name, fmt.Errorf("there are more than %d entries", maxSeen))
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
				w.recordMissed(path, fmt.Errorf("it is more than %d directories deep", maxDepth))
			default:
				sub, closed, err := enterDir(at, e.Name())
				if err == nil {
					w.findLinks(ctx, r, sub, top, path, depth+1)
					closed()
				}
				if !errors.Is(err, fs.ErrPermission) || isOwnedByUser(e) {
					w.recordMissed(path, err)
				}
			}
		}
	}
	if err != io.EOF {
		w.recordMissed(name, err)
	}
}

// recordMissed records the first directory that could not be searched. If a directory is gone or was replaced, it contains
// nothing.
func (w *walk) recordMissed(path string, err error) {
	if err != nil && len(w.found.Unseen) == 0 && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) &&
		!errors.Is(err, syscall.ELOOP) {
		w.found.Unseen = append(w.found.Unseen, fmt.Sprintf("%s: %v", path, err))
	}
}

// isOwnedByUser reports whether a directory belongs to this user. If so, the agent can change its mode. In another user's
// directory the agent cannot write.
func isOwnedByUser(e fs.DirEntry) bool {
	info, err := e.Info()
	if err != nil {
		return false // gone
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(st.Uid) == os.Geteuid()
}

// recordLinkOut records a link that leads out of the project, by its text or by its current target: a program outside that writes
// to it, or below it, would write there. In git's own directories any such link counts, because git opens its files by
// name. Elsewhere a link to the system's programs and libraries does not count: many projects have one, for example
// from a virtual environment to its Python.
func (w *walk) recordLinkOut(at *os.Root, dir, name string, inGit bool) {
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
	if !isWithin(w.project, to) && !isWithinAny(append(systemTrees, w.real), to) {
		return true // whatever the target is
	}
	return !isWithinAny(append(systemTrees, w.real), resolvePath(filepath.Join(w.project, dir, name)))
}

func isWithinAny(dirs []string, path string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return isWithin(dir, path) })
}

// systemTrees are directories that only the system's packages change.
var systemTrees = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store"}

// resolvePath returns where a path ends, or would end if its missing parts were made. If it has more links or parts than
// the kernel follows, resolved returns the root, which is outside every project.
func resolvePath(path string) string {
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

// maxLinks is the number of links that Linux follows in one path (path_resolution(7)).
const maxLinks, maxSteps = 40, 1024
