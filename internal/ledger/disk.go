package ledger

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Disk is what the log asks of the file it writes. Each method does one thing or says why not, so that a
// test can stand in between and fail.
type Disk interface {
	io.WriterAt
	// Sync returns when what was written is on the disk, the length included (fdatasync(2)).
	Sync() error
	// Truncate cuts the file to size bytes and gives back space reserved behind them (ftruncate(2)).
	Truncate(size int64) error
	// Reserve takes disk space for n bytes from off on and leaves the length as it is (fallocate(2)).
	Reserve(off, n int64) error
}

// segment is the real Disk.
type segment struct{ *os.File }

func (s segment) Sync() error {
	return restart(func() error { return unix.Fdatasync(int(s.Fd())) })
}

// Reserve asks for the limit on file sizes too: fallocate does not when it keeps the length (measured on
// Linux 6.18, ext4), and the write would then fail.
func (s segment) Reserve(off, n int64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if uint64(off+n) > limit.Cur {
		return unix.EFBIG
	}
	return restart(func() error { return unix.Fallocate(int(s.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, n) })
}

// restart calls f again while signals interrupt it: Go's own preemption sends them (signal(7)).
func restart(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// cure says what to do about an error of the disk.
func cure(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "free some space, or raise the quota, where the ledger is, then call again"
	case errors.Is(err, unix.EFBIG):
		return "raise the limit on file sizes (ulimit -f) and end the gateway (bailey gateway stop): the next call starts one"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		return "the file system cannot reserve space: keep BAILEY_HOME on ext4, xfs, btrfs or tmpfs"
	case errors.Is(err, unix.EROFS):
		return "the file system is read-only: look at the kernel's log, mount it read-write and end the gateway (bailey gateway stop): the next call starts one"
	}
	return "look at the disk and the kernel's log, then end the gateway (bailey gateway stop): the next call starts one that verifies the ledger and repairs its tail"
}
