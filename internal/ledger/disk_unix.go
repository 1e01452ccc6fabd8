//go:build linux || darwin

package ledger

import (
	"golang.org/x/sys/unix"

	"bailey/internal/ledger/owned"
)

// freeBytes returns the number of bytes available to an ordinary user in dir (statfs(2)).
func freeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	err := owned.RetryEINTR(func() error { return unix.Statfs(dir, &st) })
	return st.Bavail * uint64(st.Bsize), err
}

// tooLarge returns an error if this process may not let a file grow to size (setrlimit(2)).
func tooLarge(size int64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if uint64(size) > limit.Cur {
		return unix.EFBIG
	}
	return nil
}
