//go:build linux || darwin

package owned

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// holder holds a directory by its descriptor.
type holder struct{ *os.File }

func OpenUnchecked(path string) (*Dir, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{holder: holder{os.NewFile(uintptr(fd), path)}, Path: path}, nil
}

// CheckFit returns an error if the directory must not hold a ledger.
func (d *Dir) CheckFit() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return err
	}
	return checkStat(&st, unix.S_IFDIR, 0o700, os.Geteuid())
}

// checkStat returns an error if a file with this status must not hold a ledger: another user could read or change it, or it
// has a second name. The width of a mode depends on the platform.
func checkStat(st *unix.Stat_t, kind, most uint32, uid int) error {
	mode := uint32(st.Mode)
	switch {
	case mode&unix.S_IFMT != kind:
		return fmt.Errorf("it is of another type (%#o)", mode&unix.S_IFMT)
	case int(st.Uid) != uid:
		return fmt.Errorf("it belongs to uid %d, not to %d", st.Uid, uid)
	case mode&0o7777&^most != 0:
		return fmt.Errorf("its mode is %#o, but may be at most %#o", mode&0o7777, most)
	case kind == unix.S_IFREG && st.Nlink != 1:
		return fmt.Errorf("it has %d names (hard links)", st.Nlink)
	}
	return nil
}

// CheckSame checks that name still leads to f, and that f has the given size. It fails if f was, for example, moved,
// replaced, linked or changed.
func (d *Dir) CheckSame(f *os.File, name string, size int64) error {
	var named, opened unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &named, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("%s was removed: %w", filepath.Join(d.Path, name), err)
	}
	if err := unix.Fstat(int(f.Fd()), &opened); err != nil {
		return err
	}
	if named.Dev != opened.Dev || named.Ino != opened.Ino {
		return fmt.Errorf("%s is now another file", filepath.Join(d.Path, name))
	}
	if opened.Size != size {
		return fmt.Errorf("%s has %d bytes, but %d were written", filepath.Join(d.Path, name), opened.Size, size)
	}
	return checkStat(&opened, unix.S_IFREG, 0o600, os.Geteuid())
}

// OpenFit opens a file that may hold a ledger. If a FIFO is in its place, O_NONBLOCK keeps the call from blocking
// (open(2)).
func (d *Dir) OpenFit(name string, flags int) (*os.File, error) {
	var fd int
	err := RetryEINTR(func() (err error) {
		fd, err = unix.Openat(int(d.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = checkStat(&st, unix.S_IFREG, 0o600, os.Geteuid())
	}
	if uint32(st.Mode)&unix.S_IFMT == unix.S_IFREG {
		err = d.accept(name, err)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(d.Path, name)), nil
}

// reopenDir opens the directory again.
func (d *Dir) reopenDir() (*os.File, error) {
	fd, err := unix.Openat(int(d.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.Path), nil
}

func (d *Dir) Remove(name string) error { return unix.Unlinkat(int(d.Fd()), name, 0) }

// Rename durably renames temp to name, which must not exist yet.
func (d *Dir) Rename(temp, name string) error {
	if err := renameNew(int(d.Fd()), temp, name); err != nil {
		return err
	}
	return d.Sync()
}

// SyncDir makes the names in a directory durable (fsync(2)).
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// LockFile takes an exclusive lock on f or fails at once (flock(2)).
func LockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// RetryEINTR repeats f while signals interrupt it, such as those of Go's own preemption (signal(7)).
func RetryEINTR(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
