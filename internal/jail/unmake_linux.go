package jail

import (
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

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
