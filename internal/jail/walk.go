//go:build linux

package jail

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"bailey"
)

// maxWalk bounds how many names are looked at in all the places of a wall, and in what is kept.
const maxWalk = 1 << 17

// sockets covers those of the machine's that lie in a place: a tool that may have sockets could connect to whoever listens
// there, and neither a read-only mount nor an old Landlock keeps it from that. One that is made later is not covered. They lie near the
// top, so the walk goes by the level, and where it is not through in time the receipt says so. A kernel whose Landlock knows
// the right to connect needs no walk.
func (l *layout) sockets(r *run) error {
	if !l.wall.Unix || r.jail.landlock >= resolveEdition {
		return nil
	}
	left := maxWalk
	for _, target := range l.places() {
		b := l.binds[target]
		found, whole := search(b.source, &left, func(_ string, kind fs.FileMode) bool { return kind == fs.ModeSocket })
		if !whole {
			l.crowded = fmt.Sprintf("%s, beyond the first %d names", b.source, maxWalk)
		}
		for _, path := range found {
			at := filepath.Join(target, path[len(b.source):])
			if len(l.binds) > maxCovered {
				return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s holds more sockets than a cage can cover, %s among them", b.source, path),
					Hint: "name a directory without them"}
			}
			null := l.binds["/dev/null"]
			l.binds[at] = bind{source: "/dev/null", target: at, layer: "masks", attrs: readOnly | inert, dev: null.dev, ino: null.ino}
		}
	}
	return nil
}

const maxCovered = 256

// systemDirs hold what distributions install, and too much to look at: nobody listens there.
var systemDirs = [...]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store"}

// places are the targets of directories that were named, sorted. A home that is kept is none: its files were made in a cage.
func (l *layout) places() (targets []string) {
	for target, b := range l.binds {
		system := slices.ContainsFunc(systemDirs[:], func(dir string) bool { return above(dir, b.source) })
		if b.dir && (b.tree && !system || b.place != nil && !b.tree && target != homeDir && target != bailey.FetchedDir) {
			targets = append(targets, target)
		}
	}
	slices.Sort(targets)
	return targets
}

// onlyName refuses what could be changed by another name: a file with more than one, or a directory with such a file in it.
func onlyName(path string, st *unix.Stat_t) error {
	linked := func(path string, st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT == unix.S_IFDIR || st.Nlink < 2 {
			return nil
		}
		return &bailey.Error{Kind: bailey.Denied, Message: path + " cannot be kept as it is: it has another name, by which it could be changed",
			Hint: "put a copy in its place"}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return linked(path, st)
	}
	left := maxWalk
	var bad error
	_, whole := search(path, &left, func(name string, kind fs.FileMode) bool {
		var st unix.Stat_t
		if bad == nil && kind.IsRegular() && unix.Lstat(name, &st) == nil {
			bad = linked(name, &st)
		}
		return false
	})
	if bad == nil && !whole {
		bad = &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s cannot be kept as it is: it holds more than %d names", path, maxWalk),
			Hint: "keep what matters of it"}
	}
	return bad
}

// search looks at what lies beneath dir, level by level, and returns what pick picks; symbolic links are not followed, nor
// is what cannot be read. It is whole if left sufficed.
func search(dir string, left *int, pick func(path string, kind fs.FileMode) bool) (found []string, whole bool) {
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
