package ledger

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"bailey/audit"
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
	// Free returns how many bytes this user may still take where the file is (statfs(2)).
	Free() (uint64, error)
}

// segment is the real Disk: disk_linux.go, disk_darwin.go, disk_windows.go.
type segment struct{ *os.File }

func (s segment) Free() (uint64, error) { return free(filepath.Dir(s.Name())) }

// cure says what to do about an error of the disk.
func cure(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space, or raise the quota, where the ledger is, then call again"
	case errors.Is(err, syscall.EFBIG):
		return "raise the limit on file sizes (ulimit -f) and end the gateway (bailey gateway stop): the next call starts one"
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
		return "the file system cannot reserve space: keep BAILEY_HOME on ext4, xfs, btrfs or tmpfs"
	case errors.Is(err, syscall.EROFS):
		return "the file system is read-only: look at the kernel's log, mount it read-write and end the gateway (bailey gateway stop): the next call starts one"
	}
	return "look at the disk and the kernel's log, then end the gateway (bailey gateway stop): the next call starts one that verifies the ledger and repairs its tail"
}

// Rehearse does to a file of its own in dir what the ledger does to its segment, and returns how many bytes
// are free there.
func Rehearse(dir string) (uint64, error) {
	f, err := os.CreateTemp(dir, "rehearsal-")
	if err != nil {
		return 0, err
	}
	held := os.Remove(f.Name()) // at once, so that nothing stays whatever ends this process
	defer func() {
		f.Close()
		if held != nil { // Windows removes no open file
			os.Remove(f.Name())
		}
	}()
	disk := segment{f}
	if err := disk.Reserve(0, audit.MaxLine); err != nil {
		return 0, os.NewSyscallError("reserve", err)
	}
	if _, err := disk.WriteAt(make([]byte, audit.MaxLine), 0); err != nil {
		return 0, err
	}
	if err := disk.Sync(); err != nil {
		return 0, err
	}
	return free(dir)
}
