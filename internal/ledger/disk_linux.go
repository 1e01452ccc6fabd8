package ledger

import "golang.org/x/sys/unix"

func (s segment) Sync() error {
	return retryEINTR(func() error { return unix.Fdatasync(int(s.Fd())) })
}

// Reserve also checks the limit on file sizes. fallocate does not check it if it keeps the length (measured on Linux
// 6.18, ext4), and the write would then fail.
func (s segment) Reserve(off, n int64) error {
	if err := tooLarge(off + n); err != nil {
		return err
	}
	return retryEINTR(func() error { return unix.Fallocate(int(s.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, n) })
}

// renameNew renames within a directory. It fails if name exists (renameat2(2)).
func renameNew(dir int, old, name string) error {
	return unix.Renameat2(dir, old, dir, name, unix.RENAME_NOREPLACE)
}

// freeBytes returns the number of bytes available to an ordinary user in dir (statfs(2)).
func freeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	err := retryEINTR(func() error { return unix.Statfs(dir, &st) })
	return st.Bavail * uint64(st.Bsize), err
}
