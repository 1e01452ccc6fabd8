//go:build linux

package jail

import (
	"errors"
	"path/filepath"

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
			return nil, bailey.Denied.Errorf("name two places that do not lie in each other",
				"%q is in no place that is only read, and cannot be hidden", path)
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
				u.path+" was not there when the call was planned, and has to be hidden now",
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
			return false, bailey.Denied.Errorf("name the place that it leads to, if it is one of its own",
				"%s is no %s of its own, so %s cannot be hidden", way[i], what, path)
		}
	}
	return true, nil
}
