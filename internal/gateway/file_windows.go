package gateway

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

const noWait, noFollow = 0, 0

// LockFile takes an exclusive lock on path (LockFileEx); it ends with unlock or with the process. A lock that
// somebody else has is EWOULDBLOCK, as on other systems.
func LockFile(path string) (unlock func(), err error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("it is no regular file")}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		err = fmt.Errorf("%s: %w", path, syscall.EWOULDBLOCK)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// ownerOf knows no owner: a file that replaces another gets the access list of its directory, as the other had.
func ownerOf(os.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }

// wide is never known: modes mean nothing here, and the home's access list is checked as a whole (package peer).
func wide(os.FileInfo) bool { return false }

// syncDir does nothing: Windows flushes no directory. The rename is in the journal of NTFS.
func syncDir(*os.Root) error { return nil }
