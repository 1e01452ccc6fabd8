//go:build linux

package jail

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A link is a symlink of the host that the cage has too, so that a path has the same meaning in both.
type link struct{ path, target string }

// maxLinks is the number of symlinks that the kernel follows in one path (path_resolution(7)).
const maxLinks = 40

// resolveLinks resolves an absolute path as the kernel would, and returns the final path and the symlinks on the way. If the
// path does not exist, it returns an error.
func resolveLinks(path string) (string, []link, error) {
	var links []link
	at, rest := "/", strings.Split(path, "/")
	for len(rest) > 0 {
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
		info, err := os.Lstat(next)
		if err != nil {
			return "", nil, err
		}
		if info.Mode()&os.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", nil, err
		}
		if links = append(links, link{next, target}); len(links) > maxLinks {
			return "", nil, &os.PathError{Op: "resolve", Path: path, Err: unix.ELOOP}
		}
		rest = append(strings.Split(target, "/"), rest...)
		if filepath.IsAbs(target) {
			at = "/"
		}
	}
	return at, links, nil
}

// realPath returns where path leads, with as few system calls as possible.
func realPath(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
}

// ident distinguishes one state of one file from every other.
type ident struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func identOf(st *unix.Stat_t) ident {
	return ident{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
}

// statIdent returns the present identity of path and does not follow symlinks.
func statIdent(path string) (ident, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return ident{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return identOf(&st), nil
}

// trust says whose files may be executed in place, besides those of root.
type trust struct {
	overflow bool // files of ids that this user namespace lacks: root is one of them, the caller is not
}

// overflowID is the id that every unmapped id appears as (user_namespaces(7)).
const overflowID = 65534

// untrustedPart returns the part of a canonical path that an untrusted user could write or replace: the file or a directory
// above it, or "" if every part is safe. In a sticky directory only the owner of an entry can replace it.
func (t trust) untrustedPart(path string) (string, error) {
	for p := path; ; p = filepath.Dir(p) {
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return "", &os.PathError{Op: "stat", Path: p, Err: err}
		}
		trusted := st.Uid == 0 || t.overflow && st.Uid == overflowID
		writable := st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && st.Gid != 0
		if st.Mode&0o020 != 0 && st.Gid == 0 { // the group's bits may be the mask of an access control list (acl(5))
			_, err := unix.Lgetxattr(p, "system.posix_acl_access", nil)
			writable = writable || err != unix.ENODATA && err != unix.EOPNOTSUPP
		}
		sticky := st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&unix.S_ISVTX != 0
		if !trusted || writable && !sticky {
			return p, nil
		}
		if p == "/" {
			return "", nil
		}
	}
}
