//go:build linux

package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"bailey"
)

// hidePaths puts an empty file in place of each of paths, which must lie below places that the tool cannot write. If a path
// does not exist, hide returns it, and [run.checkStillAbsent] checks it again later. Every component on the way must be a real
// directory: through a symbolic link, or a file that names another directory, such as git's .git file, the tool would
// find the hidden file under another name.
func (l *layout) hidePaths(paths []string) (absent []unhidden, err error) {
	for _, path := range paths {
		over, ok := l.bindAbove(path)
		if !ok || over.place == nil || over.attrs&readOnly == 0 || filepath.Clean(path) != path {
			return nil, bailey.Denied.Errorf("name two places of which neither contains the other",
				"%q is in no read-only place, so it cannot be hidden", path)
		}
		there, err := plainFile(over.target, path)
		if err != nil {
			return nil, err
		}
		if !there {
			absent = append(absent, unhidden{over.target, path})
			continue
		}
		l.files[nothing] = ""
		l.binds[path] = bind{source: nothing[1:], target: path, layer: "masks", attrs: readOnly | inert}
	}
	return absent, nil
}

// unhidden is a path to hide that did not exist, and the place in which it would lie.
type unhidden struct{ place, path string }

// checkStillAbsent returns an error if a path to hide that did not exist at planning exists now. Between plan and start, a person
// may have been asked.
func (r *run) checkStillAbsent() error {
	for _, u := range r.absent {
		if there, err := plainFile(u.place, u.path); err != nil || there {
			return bailey.Conflict.Wrap(err,
				u.path+" did not exist when the call was planned, but must be hidden now",
				"call again")
		}
	}
	return nil
}

// plainFile reports whether path exists. If so, it must be a regular file, with only directories from dir down to it.
func plainFile(dir, path string) (bool, error) {
	var way []string
	for p := path; p != dir; p = filepath.Dir(p) {
		way = append(way, p)
	}
	for i := len(way) - 1; i >= 0; i-- {
		var st unix.Stat_t
		err := unix.Lstat(way[i], &st)
		kind, want := st.Mode&unix.S_IFMT, uint32(unix.S_IFDIR)
		if i == 0 {
			want = unix.S_IFREG
		}
		switch {
		case errors.Is(err, unix.ENOENT):
			return false, nil
		case err != nil:
			return false, layerUnavailable("masks", err)
		case kind != want:
			what := map[uint32]string{unix.S_IFREG: "file", unix.S_IFDIR: "directory"}[want]
			return false, bailey.Denied.Errorf("name the target of the link instead, if it is inside the place",
				"%s is not a %s itself, so %s cannot be hidden", way[i], what, path)
		}
	}
	return true, nil
}

// maxWalk bounds the number of names that are examined in all places of an agent jail, and in each kept directory.
const maxWalk = 1 << 17

// coverSockets covers the host's Unix sockets in a place. A tool that may have sockets could otherwise connect to the
// process that listens there, in spite of a read-only mount or an old Landlock. A socket that is made later is not
// covered. Sockets lie near the top, so the walk goes level by level; if it reaches its limit, the receipt says so. If
// the kernel's Landlock has the right to connect, no walk is needed.
func (l *layout) coverSockets(r *run) error {
	if !l.wall.Unix || r.jail.landlock >= resolveEdition {
		return nil
	}
	left := maxWalk
	for _, target := range l.placeTargets() {
		b := l.binds[target]
		found, whole := searchTree(b.source, &left,
			func(_ string, kind fs.FileMode) bool { return kind == fs.ModeSocket })
		if !whole {
			l.crowded = fmt.Sprintf("%s, after the first %d names", b.source, maxWalk)
		}
		for _, path := range found {
			at := filepath.Join(target, path[len(b.source):])
			if len(l.binds) > maxCovered {
				return bailey.Denied.Errorf("name a directory without sockets",
					"%s contains more sockets than a jail can hide, for example %s", b.source, path)
			}
			null := l.binds["/dev/null"]
			l.binds[at] = bind{source: "/dev/null", target: at, layer: "masks", attrs: readOnly | inert, dev: null.dev,
				ino: null.ino}
		}
	}
	return nil
}

const maxCovered = 256

// systemDirs hold the files that distributions install, too many to examine; no process listens there.
var systemDirs = [...]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store"}

// placeTargets returns the sorted targets of the directories that were named. A home that is kept is left out: its files were
// made in a cage.
func (l *layout) placeTargets() (targets []string) {
	for target, b := range l.binds {
		system := slices.ContainsFunc(systemDirs[:], func(dir string) bool { return containsPath(dir, b.source) })
		if b.dir && (b.tree && !system || b.place != nil && !b.tree && target != homeDir && target != bailey.FetchedDir) {
			targets = append(targets, target)
		}
	}
	slices.Sort(targets)
	return targets
}

// onlyName refuses a path that could be changed through another name, for example a file with a hard link, or a
// directory with such a file in it.
func onlyName(path string, st *unix.Stat_t) error {
	linked := func(path string, st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT == unix.S_IFDIR || st.Nlink < 2 {
			return nil
		}
		return bailey.Denied.New(path+" cannot be kept unchanged: another hard link could change it",
			"replace it by a copy")
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return linked(path, st)
	}
	left := maxWalk
	var bad error
	_, whole := searchTree(path, &left, func(name string, kind fs.FileMode) bool {
		var st unix.Stat_t
		if bad == nil && kind.IsRegular() && unix.Lstat(name, &st) == nil {
			bad = linked(name, &st)
		}
		return false
	})
	if bad == nil && !whole {
		bad = bailey.Denied.Errorf("remove files from it that are not needed",
			"%s cannot be kept unchanged: it contains more than %d names", path, maxWalk)
	}
	return bad
}

// searchTree examines the entries below dir, level by level, and returns those that pick selects. It follows no symbolic
// links and skips unreadable directories. whole is true if left sufficed.
func searchTree(dir string, left *int, pick func(path string, kind fs.FileMode) bool) (found []string, whole bool) {
	for queue := []string{dir}; len(queue) > 0; queue = queue[1:] {
		f, err := os.OpenFile(queue[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		for *left > 0 {
			entries, err := f.ReadDir(min(*left, 512))
			*left -= len(entries)
			for _, e := range entries {
				path := filepath.Join(queue[0], e.Name())
				if e.IsDir() {
					queue = append(queue, path)
				}
				if pick(path, e.Type()) {
					found = append(found, path)
				}
			}
			if err != nil {
				break
			}
		}
		f.Close()
		if *left <= 0 {
			return found, false
		}
	}
	return found, true
}
