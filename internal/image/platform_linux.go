package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

const errQuota = unix.EDQUOT

var errLocked = errors.New("another process has it locked")

func systemSupport() error { return nil }

// lockFile opens a file or directory and locks it until it is closed. A lock that was waited for belongs to the file of
// that name, not to one that was removed meanwhile.
func lockFile(name string, exclusive, wait bool) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	if !wait {
		how |= unix.LOCK_NB
	}
	for err = unix.Flock(fd, how); errors.Is(err, unix.EINTR); err = unix.Flock(fd, how) {
	}
	var named, opened unix.Stat_t
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = errLocked
	case err == nil && (unix.Lstat(name, &named) != nil || unix.Fstat(fd, &opened) != nil ||
		named.Ino != opened.Ino || named.Dev != opened.Dev):
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

// identifyFile returns the identity of a regular file.
func identifyFile(f *os.File) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return identity{}, fmt.Errorf("%s is not a regular file", f.Name())
	}
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, nil
}
