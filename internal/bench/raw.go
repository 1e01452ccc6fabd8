package bench

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"bailey/internal/ledger"
)

// rawFile appends bytes to a file and syncs it, in groups as a ledger.Log does, and does nothing else. Measurements compare
// a Log with it.
type rawFile struct {
	disk ledger.Disk
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

// newRawFile creates a file in dir. Close releases it.
func newRawFile(dir string) (*rawFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, "raw"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	r := &rawFile{disk: ledger.NewDisk(f), file: f, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		gone:    make(chan struct{}),
		pending: &rawGroup{done: make(chan struct{})}}
	go r.runWriter()
	return r, nil
}

// Append returns when line is on the disk. It must not be called after Close.
func (r *rawFile) Append(line []byte) error {
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

func (r *rawFile) runWriter() {
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

func (r *rawFile) writeLines(lines []byte) error {
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
func (r *rawFile) Close() error {
	close(r.stop)
	<-r.gone
	return r.file.Close()
}
