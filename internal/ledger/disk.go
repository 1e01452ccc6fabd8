package ledger

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

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

func (s segment) Free() (uint64, error) { return freeBytes(filepath.Dir(s.Name())) }

// diskErrorHint returns the remedy for an error of the disk, such as a lack of space.
func diskErrorHint(err error) string {
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

// Raw appends bytes to a file and syncs it, in groups as a Log does, and does nothing else. Measurements compare a Log
// with it.
type Raw struct {
	disk Disk
	file *os.File
	size int64
	wake chan struct{}
	stop chan struct{}
	gone chan struct{}

	mu      sync.Mutex
	pending *rawGroup // guarded by mu
}

type rawGroup struct {
	lines []byte
	err   error
	done  chan struct{}
}

// NewRaw creates a file in dir. Close releases it.
func NewRaw(dir string) (*Raw, error) {
	f, err := os.OpenFile(filepath.Join(dir, "raw"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	r := &Raw{disk: segment{f}, file: f, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		gone:    make(chan struct{}),
		pending: &rawGroup{done: make(chan struct{})}}
	go r.runWriter()
	return r, nil
}

// Append returns when line is on the disk. It must not be called after Close.
func (r *Raw) Append(line []byte) error {
	r.mu.Lock()
	h := r.pending
	h.lines = append(h.lines, line...)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	<-h.done
	return h.err
}

func (r *Raw) runWriter() {
	defer close(r.gone)
	var lines []byte // of the previous group, for the next one
	for {
		select {
		case <-r.wake:
		case <-r.stop:
			return
		}
		runtime.Gosched()
		r.mu.Lock()
		h := r.pending
		r.pending = &rawGroup{lines: lines[:0], done: make(chan struct{})}
		r.mu.Unlock()
		h.err = r.writeLines(h.lines)
		lines = h.lines
		close(h.done)
	}
}

func (r *Raw) writeLines(lines []byte) error {
	n, err := r.disk.WriteAt(lines, r.size)
	r.size += int64(n)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return err
	}
	return r.disk.Sync()
}

// Close closes the file.
func (r *Raw) Close() error {
	close(r.stop)
	<-r.gone
	return r.file.Close()
}
