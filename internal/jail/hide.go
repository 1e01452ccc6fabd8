//go:build linux

package jail

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bailey"
)

// hide puts an empty file in place of each of paths, which lie below places that the tool cannot write. What is
// not there needs no hiding, as long as it is not: [run.hidden] looks again. Every directory on the way must be one itself: through a symbolic link, or a file
// that names another directory as git's does, the tool would find under another name what was hidden under this.
func (l *layout) hide(paths []string) (absent []unhidden, err error) {
	for _, path := range paths {
		over, ok := l.covered(path)
		if !ok || over.place == nil || over.attrs&readOnly == 0 || filepath.Clean(path) != path {
			return nil, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%q is in no place that is only read, and cannot be hidden", path),
				Hint: "name two places that do not lie in each other"}
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

// unhidden is a path to hide that was not there, and the place it would lie in.
type unhidden struct{ place, path string }

// hidden wants that nothing has come to be by now where there was nothing to hide: between plan and start a person may
// have been asked.
func (r *run) hidden() error {
	for _, u := range r.absent {
		if there, err := plainFile(u.place, u.path); err != nil || there {
			return &bailey.Error{Kind: bailey.Conflict, Message: u.path + " was not there when the call was planned, and has to be hidden now", Err: err, Hint: "call again"}
		}
	}
	return nil
}

// plainFile reports whether path is a file, with nothing but directories from dir down to it.
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
			return false, refuse("masks", err)
		case kind != want:
			what := map[uint32]string{unix.S_IFREG: "file", unix.S_IFDIR: "directory"}[want]
			return false, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s is no %s of its own, so %s cannot be hidden", way[i], what, path),
				Hint: "name the place that it leads to, if it is one of its own"}
		}
	}
	return true, nil
}
