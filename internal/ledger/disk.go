package ledger

import (
	"io"
	"os"
	"path/filepath"

	"bailey/audit"
)

// Disk is the log's interface to the file that it writes. Each method does one thing or returns an error, so that a
// test can intercept it and fail.
type Disk interface {
	io.WriterAt
	// Sync returns when all written bytes and the length are on the disk (fdatasync(2)).
	Sync() error
	// Truncate cuts the file to size bytes and releases space reserved after them (ftruncate(2)).
	Truncate(size int64) error
	// Reserve allocates disk space for n bytes from off on and does not change the length (fallocate(2)).
	Reserve(off, n int64) error
	// Free returns how many more bytes this user may use on the file's disk (statfs(2)).
	Free() (uint64, error)
}

// segment is the real Disk: see disk_linux.go, disk_darwin.go and disk_windows.go.
type segment struct{ *os.File }

// NewDisk returns the Disk of a file. Measurements compare a Log with what a file alone can do.
func NewDisk(f *os.File) Disk { return segment{f} }

func (s segment) Free() (uint64, error) { return freeBytes(filepath.Dir(s.Name())) }

// Rehearse performs the ledger's disk operations on a temporary file in dir. It returns the number of bytes that are
// free there.
func Rehearse(dir string) (uint64, error) {
	f, err := os.CreateTemp(dir, "rehearsal-")
	if err != nil {
		return 0, err
	}
	held := os.Remove(f.Name()) // at once, so that no file stays if this process ends
	defer func() {
		f.Close()
		if held != nil { // Windows does not remove an open file
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
	return freeBytes(dir)
}
