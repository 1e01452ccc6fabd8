package ledger

import "golang.org/x/sys/unix"

// Sync asks the drive to empty its cache too: fsync(2) on macOS does not, F_FULLFSYNC does (fcntl(2)). A file
// system without it is an error.
func (s segment) Sync() error {
	return restart(func() error {
		_, err := unix.FcntlInt(s.Fd(), unix.F_FULLFSYNC, 0)
		return err
	})
}

// Reserve takes n bytes behind what is allocated already, all or none, and leaves the length as it is
// (fcntl(2), F_PREALLOCATE from the physical end). The log reserves in order, so that end lies at off or
// beyond. What is reserved and not written is given back when the file is closed.
func (s segment) Reserve(off, n int64) error {
	if err := tooLarge(off + n); err != nil {
		return err
	}
	return restart(func() error {
		return unix.FcntlFstore(s.Fd(), unix.F_PREALLOCATE, &unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: n})
	})
}

// renameNew renames within a directory and replaces nothing (renameatx_np(2)).
func renameNew(dir int, old, name string) error {
	return unix.RenameatxNp(dir, old, dir, name, unix.RENAME_EXCL)
}

// free is how many bytes there are for an ordinary user in dir (statfs(2)).
func free(dir string) (uint64, error) {
	var st unix.Statfs_t
	err := restart(func() error { return unix.Statfs(dir, &st) })
	return st.Bavail * uint64(st.Bsize), err
}
