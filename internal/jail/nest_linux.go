package jail

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"bailey"
)

// A nest is the private directory of one call in the lesser cage: its HOME and TMPDIR, made for the cage's user and
// removed with the call. It lies in a directory of the gateway's user below [os.TempDir], and the gateway locks it
// while it is in use. It has no quota: the disk limits its size, and RLIMIT_FSIZE the size of each file.
type scratchDir struct {
	path   string
	base   *os.File // parent directory
	name   string
	lock   *os.File // the directory itself, locked with flock(2)
	handle *os.File // the same, O_PATH, for a Landlock rule
}

// newNest makes a nest below dir for a user.
func newNest(dir string, uid, gid int) (*scratchDir, error) {
	base, err := openNests(dir, true)
	if err != nil {
		return nil, layerUnavailable("tmp-private", err)
	}
	n := &scratchDir{base: base, name: rand.Text()}
	n.path = filepath.Join(dir, n.name)
	// This lock must be held until the new directory is locked; otherwise a sweep would remove that.
	if err = unix.Flock(int(base.Fd()), unix.LOCK_EX); err == nil {
		err = n.createDir(uid, gid)
		unix.Flock(int(base.Fd()), unix.LOCK_UN)
	}
	if err != nil {
		n.removeDir()
		return nil, layerUnavailable("tmp-private", fmt.Errorf("%s: %w", n.path, err))
	}
	return n, nil
}

func (n *scratchDir) createDir(uid, gid int) error {
	at := int(n.base.Fd())
	if err := unix.Mkdirat(at, n.name, 0o700); err != nil {
		return err
	}
	var err error
	if n.lock, err = openFolder(at, n.name); err != nil {
		return err
	}
	if err := unix.Flock(int(n.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := unix.Fchown(int(n.lock.Fd()), uid, gid); err != nil {
			return err
		}
	}
	fd, err := unix.Openat(at, n.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	n.handle = os.NewFile(uintptr(fd), n.path)
	return nil
}

// removeDir deletes the directory with all files that a tool has left in it. All processes of the call must have ended.
func (n *scratchDir) removeDir() error {
	err := removeTree(n.base, n.name)
	for _, f := range []*os.File{n.handle, n.lock, n.base} {
		if f != nil {
			f.Close()
		}
	}
	return err
}

// scratchParent returns the parent directory of the nests of the gateway's user.
func scratchParent(tmp string) string {
	return filepath.Join(tmp, "bailey-cages-"+strconv.Itoa(os.Geteuid()))
}

// openNests opens that directory, makes it if create is true, and refuses one that another user made.
func openNests(dir string, create bool) (*os.File, error) {
	if create {
		if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	f, err := openFolder(unix.AT_FDCWD, dir)
	if err != nil {
		var st unix.Stat_t
		if errors.Is(err, unix.EACCES) && unix.Lstat(dir, &st) == nil && int(st.Uid) != os.Geteuid() {
			return nil, foreignOwnerError(dir, err)
		}
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err == nil && int(st.Uid) == os.Geteuid() {
		if err = unix.Fchmod(int(f.Fd()), 0o711); err == nil { // independent of the umask
			return f, nil
		}
	}
	f.Close()
	return nil, foreignOwnerError(dir, err)
}

func foreignOwnerError(dir string, err error) error {
	return bailey.Unavailable.Wrap(err, dir+" belongs to another user",
		"remove it, or set TMPDIR to a directory that you own")
}

// sweepNests removes the nests of killed gateways, whose locks are free.
func sweepNests(dir string) {
	base, err := openNests(dir, false)
	if err != nil {
		return // it does not exist, or the next call reports the error
	}
	defer base.Close()
	if unix.Flock(int(base.Fd()), unix.LOCK_EX) != nil {
		return
	}
	defer unix.Flock(int(base.Fd()), unix.LOCK_UN)
	names, _ := base.Readdirnames(-1)
	for _, name := range names {
		d, err := openFolder(int(base.Fd()), name)
		if err != nil {
			continue
		}
		if unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			removeTree(base, name)
		}
		d.Close()
	}
}

func openFolder(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// A rung is a directory on the way down: its name in the directory above, and the identity of that directory.
type parentDir struct {
	name     string
	dev, ino uint64 // of the directory above
}

// removeTree removes the directory name in base with everything that a tool has left in it, even if that is very deep,
// wide, unreadable or deceptive: it follows no link, holds two descriptors at a time and uses only paths of one
// component.
func removeTree(base *os.File, name string) error {
	at, err := duplicateFile(base)
	if err != nil {
		return err
	}
	defer func() { at.Close() }()
	var way []parentDir
	for {
		if name != "" { // down
			below, r, err := openChildDir(at, name)
			if err != nil {
				return ignoreErrno(err, unix.ENOENT)
			}
			at.Close()
			at, way = below, append(way, r)
		} else { // up
			r := way[len(way)-1]
			above, err := openParentDir(at, r)
			if err != nil {
				return err
			}
			at.Close()
			at, way = above, way[:len(way)-1]
			if err := unix.Unlinkat(int(at.Fd()), r.name, unix.AT_REMOVEDIR); err != nil {
				return &os.PathError{Op: "rmdir", Path: r.name, Err: err}
			}
			if len(way) == 0 {
				return nil
			}
		}
		if name, err = removeFiles(at); err != nil {
			return err
		}
	}
}

// openChildDir opens a directory, whatever its mode.
func openChildDir(at *os.File, name string) (*os.File, parentDir, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(at.Fd()), &st); err != nil {
		return nil, parentDir{}, err
	}
	handle, err := unix.Openat(int(at.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, parentDir{}, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(handle)
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(handle), 0o700); err != nil {
		return nil, parentDir{}, &os.PathError{Op: "chmod", Path: name, Err: err}
	}
	below, err := openFolder(handle, ".")
	return below, parentDir{name, uint64(st.Dev), st.Ino}, err
}

// openParentDir opens the directory above, which must be the one that was passed on the way down.
func openParentDir(at *os.File, r parentDir) (*os.File, error) {
	above, err := openFolder(int(at.Fd()), "..")
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(above.Fd()), &st); err != nil || uint64(st.Dev) != r.dev || st.Ino != r.ino {
		above.Close()
		return nil, errors.Join(err, errors.New("a directory was moved while it was removed"))
	}
	return above, nil
}

// removeFiles removes all entries except directories. It returns the name of the first directory, or "" if the directory is
// empty.
func removeFiles(at *os.File) (directory string, err error) {
	for {
		if _, err := at.Seek(0, io.SeekStart); err != nil {
			return "", err
		}
		names, err := at.Readdirnames(256)
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		for _, name := range names {
			switch err := unix.Unlinkat(int(at.Fd()), name, 0); err {
			case nil, unix.ENOENT:
			case unix.EISDIR:
				return name, nil
			default:
				return "", &os.PathError{Op: "unlink", Path: name, Err: err}
			}
		}
	}
}

// ignoreErrno returns err, or nil if err is one.
func ignoreErrno(err error, one unix.Errno) error {
	if errors.Is(err, one) {
		return nil
	}
	return err
}
