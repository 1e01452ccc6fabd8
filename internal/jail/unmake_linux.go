package jail

import (
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A rung is a directory on the way down: its name in the directory above, and the identity of that directory.
type rung struct {
	name     string
	dev, ino uint64 // of the directory above
}

// unmake removes the directory name in base with everything that a tool has left in it, even if that is very deep,
// wide, unreadable or deceptive: it follows no link, holds two descriptors at a time and uses only paths of one
// component.
func unmake(base *os.File, name string) error {
	at, err := duplicate(base)
	if err != nil {
		return err
	}
	defer func() { at.Close() }()
	var way []rung
	for {
		if name != "" { // down
			below, r, err := descend(at, name)
			if err != nil {
				return ignore(err, unix.ENOENT)
			}
			at.Close()
			at, way = below, append(way, r)
		} else { // up
			r := way[len(way)-1]
			above, err := ascend(at, r)
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
		if name, err = strip(at); err != nil {
			return err
		}
	}
}

// descend opens a directory, whatever its mode.
func descend(at *os.File, name string) (*os.File, rung, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(at.Fd()), &st); err != nil {
		return nil, rung{}, err
	}
	handle, err := unix.Openat(int(at.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, rung{}, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(handle)
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(handle), 0o700); err != nil {
		return nil, rung{}, &os.PathError{Op: "chmod", Path: name, Err: err}
	}
	below, err := openFolder(handle, ".")
	return below, rung{name, uint64(st.Dev), st.Ino}, err
}

// ascend opens the directory above, which must be the one that was passed on the way down.
func ascend(at *os.File, r rung) (*os.File, error) {
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

// strip removes all entries except directories. It returns the name of the first directory, or "" if the directory is
// empty.
func strip(at *os.File) (directory string, err error) {
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

// ignore returns err, or nil if err is one.
func ignore(err error, one unix.Errno) error {
	if errors.Is(err, one) {
		return nil
	}
	return err
}
