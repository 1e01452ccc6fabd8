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

// A nest is the private directory of one call in the lesser cage: HOME and TMPDIR, made for the cage's user, gone with the
// call. It lies in a directory of the gateway's user below [os.TempDir], is locked by the gateway for as
// long as it is in use, and has no quota: the disk bounds it, and RLIMIT_FSIZE each file.
type nest struct {
	path   string
	base   *os.File // where it lies
	name   string
	lock   *os.File // the directory itself, held by flock(2)
	handle *os.File // the same, O_PATH, for a rule
}

// newNest makes one below dir, for a user.
func newNest(dir string, uid, gid int) (*nest, error) {
	base, err := openNests(dir, true)
	if err != nil {
		return nil, refuse("tmp-private", err)
	}
	n := &nest{base: base, name: rand.Text()}
	n.path = filepath.Join(dir, n.name)
	// Held until the new directory is, lest a sweep takes it for one that was left.
	if err = unix.Flock(int(base.Fd()), unix.LOCK_EX); err == nil {
		err = n.make(uid, gid)
		unix.Flock(int(base.Fd()), unix.LOCK_UN)
	}
	if err != nil {
		n.remove()
		return nil, refuse("tmp-private", fmt.Errorf("%s: %w", n.path, err))
	}
	return n, nil
}

func (n *nest) make(uid, gid int) error {
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

// remove takes the directory away with all that a tool has left in it. No process of the call lives.
func (n *nest) remove() error {
	err := unmake(n.base, n.name)
	for _, f := range []*os.File{n.handle, n.lock, n.base} {
		if f != nil {
			f.Close()
		}
	}
	return err
}

// nests is the directory of the gateway's user's nests.
func nests(tmp string) string { return filepath.Join(tmp, "bailey-cages-"+strconv.Itoa(os.Geteuid())) }

// openNests opens it, makes it where told to, and refuses one that somebody else made.
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
			return nil, squatted(dir, err)
		}
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err == nil && int(st.Uid) == os.Geteuid() {
		if err = unix.Fchmod(int(f.Fd()), 0o711); err == nil { // whatever the umask made of it
			return f, nil
		}
	}
	f.Close()
	return nil, squatted(dir, err)
}

func squatted(dir string, err error) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: dir + " belongs to another user", Err: err,
		Hint: "remove it, or set TMPDIR to a directory of your own"}
}

// sweepNests removes what gateways have left that were killed: nobody holds its lock.
func sweepNests(dir string) {
	base, err := openNests(dir, false)
	if err != nil {
		return // there is none, or the next call says what is wrong with it
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
			unmake(base, name)
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
