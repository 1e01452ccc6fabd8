package jail

import (
	"crypto/rand"
	"errors"
	"fmt"
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
		"remove it, or set TMPDIR to a directory of your own")
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
