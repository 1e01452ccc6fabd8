package ledger

import (
	"fmt"

	"golang.org/x/sys/unix"

	"bailey/internal/ledger/owned"
)

// Sync also flushes the drive's cache. On macOS fsync(2) does not do this, F_FULLFSYNC does (fcntl(2)). If the file
// system does not support it, Sync fails.
func (s segment) Sync() error {
	return owned.RetryEINTR(func() error {
		_, err := unix.FcntlInt(s.Fd(), unix.F_FULLFSYNC, 0)
		return err
	})
}

// Reserve allocates n bytes after the existing allocation, all or none, and does not change the length (fcntl(2),
// F_PREALLOCATE from the physical end). The log reserves in order, so that end is at off or beyond. When the file is
// closed, reserved bytes that were not written are released.
func (s segment) Reserve(off, n int64) error {
	if err := tooLarge(off + n); err != nil {
		return err
	}
	return owned.RetryEINTR(func() error {
		return unix.FcntlFstore(s.Fd(), unix.F_PREALLOCATE,
			&unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: n})
	})
}

// Durability returns a sentence that says why synced data in dir may still be lost. It returns "" if a sync is as
// durable as the disk itself. A disk in memory looks like any other.
func Durability(dir string) (string, error) {
	var st unix.Statfs_t
	if err := owned.RetryEINTR(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return "", fmt.Errorf("cannot identify the file system of %s: %w", dir, err)
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return "the ledger is on " + unix.ByteSliceToString(st.Fstypename[:]) +
			", which is not a local disk: its durability depends on the server", nil
	}
	return "", nil
}
