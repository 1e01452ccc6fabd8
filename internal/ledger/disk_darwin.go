package ledger

import "golang.org/x/sys/unix"

// Sync also flushes the drive's cache. On macOS fsync(2) does not do this, F_FULLFSYNC does (fcntl(2)). If the file
// system does not support it, Sync fails.
func (s segment) Sync() error {
	return retryEINTR(func() error {
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
	return retryEINTR(func() error {
		return unix.FcntlFstore(s.Fd(), unix.F_PREALLOCATE,
			&unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: n})
	})
}

// renameNew renames within a directory. It fails if name exists (renameatx_np(2)).
func renameNew(dir int, old, name string) error {
	return unix.RenameatxNp(dir, old, dir, name, unix.RENAME_EXCL)
}

// freeBytes returns the number of bytes available to an ordinary user in dir (statfs(2)).
func freeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	err := retryEINTR(func() error { return unix.Statfs(dir, &st) })
	return st.Bavail * uint64(st.Bsize), err
}
