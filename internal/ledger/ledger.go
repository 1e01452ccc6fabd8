// Package ledger is the durable log on disk, the only writer of the format that package audit defines.
//
// Data is on the disk when a function returns without error (pwrite(2), fdatasync(2)). For a new file, so is its name
// (fsync(2) of the directory; for other systems see disk_darwin.go and dir_windows.go). Each caller chains its own
// entry while the disk is busy with those before. One goroutine takes all waiting entries as a group, writes them at
// once, syncs once and answers them.
//
// # Space
//
// For every open intent, twice [audit.MaxLine] bytes are reserved after the end of the file (fallocate(2) with
// FALLOC_FL_KEEP_SIZE), from before the intent is written until its outcome is. They are for the outcome, and for the
// plan of its cage, which precedes the outcome unless an earlier entry holds it. So a full disk refuses new calls and
// never loses the outcome of a call that ran. File systems without fallocate are refused. Calls are refused before the
// disk is full: if less space is free than [Config] keeps in reserve for other data of the machine.
//
// # Failure
//
// If a write fails, it is cut off again and its whole group is refused. No partial write stays, and the waiting entries
// are chained again. After a failed sync the content of the disk is unknown (Linux marks the pages clean; fsync(2),
// NOTES). The log then refuses everything until it is opened again.
//
// # Segments
//
// A full segment is followed by another one. It begins with the state after the segments before it: the head, the
// tree's edge and the open receipts. It gets its name when that line and the space for the open receipts are on the
// disk, and the segment before it is durable by then. So after a crash the old segment is the last one, or both are
// complete. A plan is recorded once in each segment that names it.
//
// # Bodies
//
// Arguments that are too long for an entry, and the output of tools, are stored in blobs/, redacted, each in a file of
// its own with the salt of its commitment. They are written before the outcome that names them and synced after it. If
// a body could not be written, the outcome says so. Bodies are removed after 30 days, if there are too many, or by
// [Log.Forget].
//
// # Recovery
//
// Opening verifies the last segment from its first line on, and that each segment before it ends where the next one
// begins: two reads, about 50 µs. [Verify] checks the rest. A torn tail is kept aside in torn-ENTRY-OFFSET, cut off,
// and recorded in a "repair" entry. Any other damage is refused with an error that names segment and entry. Receipts
// that are still open get the outcome [bailey.Interrupted]. If a crash interrupts a step, the step is repeated.
package ledger

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger/owned"
)

// Config configures a Log. Dir must be set; every other field may be zero.
type Config struct {
	Dir  string               // the ledger's directory; created with mode 0700 if it is missing
	Host string               // this machine's name for a new ledger; "" for the kernel's
	Log  *slog.Logger         // for operators; if nil, nothing is logged
	Now  func() time.Time     // if nil, time.Now
	Wrap func(disk Disk) Disk // for fault tests: wraps the Disk of each segment; may be nil
	// Segment is the size in bytes at which a segment is full and the next one begins; 0 is 64 MiB. The last group of a
	// segment may exceed it, by at most 4 MiB and an entry.
	Segment int64
	// Reserve is how many bytes must stay free on the disk; 0 is 64 MiB. If less is free, calls are refused, but
	// outcomes and notes are accepted. The space for open calls does not count, because it is allocated.
	Reserve int64
	// Retention is how long bodies are kept in blobs/; 0 is 30 days.
	Retention time.Duration
	// DailyBodies bounds the bytes of bodies of one day, and AllBodies of all. Beyond that the oldest are removed. 0 is
	// 1 GiB and 8 GiB.
	DailyBodies, AllBodies int64
	// Newest is the checkpoint that was signed last (package notary), or nil. A ledger that does not hold the entries it
	// names is refused.
	Newest []byte
	// Read is called with each entry of the last segment while opening verifies it; it may be nil. [Log.Before] passes
	// on the segments before.
	Read func(audit.Entry)
}

// Log is an open ledger. Its methods are safe for concurrent use.
type Log struct {
	log  *slog.Logger
	now  func() time.Time
	host string
	dir  *directory

	bodies *bodies

	before olderSegments     // set once
	read   func(audit.Entry) // [Config.Read]

	rotated chan struct{} // capacity 1: a segment began

	wake  chan struct{} // capacity 1: a request waits
	stop  chan struct{} // closed by Close
	gone  chan struct{} // closed by the writer when it ends
	close sync.Once

	mu      sync.Mutex
	chain   chain  // guarded by mu
	pending *group // being filled, after the group on its way to the disk; guarded by mu
	closed  bool   // guarded by mu
	spare   *group // owned by the writer's goroutine

	durable atomic.Pointer[Position] // the durable end; set by the writer alone
	writer  writer                   // owned by the writer's goroutine once New has returned
}

// New opens the ledger in c.Dir, or begins one, and locks it against every other writer until Close. Its errors name
// the cause and the remedy.
func New(c Config) (*Log, error) {
	l := &Log{
		log: c.Log, now: c.Now, host: c.Host, read: c.Read, rotated: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), pending: &group{done: make(chan struct{})}, spare: &group{},
		stop: make(chan struct{}), gone: make(chan struct{}),
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.now == nil {
		l.now = time.Now
	}
	if l.read == nil {
		l.read = func(audit.Entry) {}
	}
	if err := owned.MakeDir(c.Dir); err != nil {
		return nil, bailey.Unavailable.Wrapf(err,
			"set BAILEY_HOME to a directory on a disk that you can write",
			"cannot create the directory of the ledger")
	}
	dir, err := openDir(c.Dir)
	if err != nil {
		return nil, err
	}
	l.dir = dir
	if err := l.lockAndRecover(c); err != nil {
		l.writer.closeSegment()
		dir.Close()
		return nil, err
	}
	if l.bodies, err = openBodies(c, l.log, l.now); err != nil {
		l.writer.closeSegment()
		dir.Close()
		return nil, err
	}
	go l.runWriter()
	return l, nil
}

func (l *Log) lockAndRecover(c Config) error {
	if err := l.dir.lockDir(); err != nil {
		return err
	}
	names, err := l.dir.listSegments()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if names, err = l.createFirstSegment(); err != nil {
			return err
		}
	}
	return l.recoverLedger(names, c)
}

// Close answers all accepted requests, ends the writer and releases the ledger. Receipts that are still open stay open,
// and get an interrupted outcome when the ledger is opened again.
func (l *Log) Close() error {
	var err error
	l.close.Do(func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		close(l.stop)
		<-l.gone
		err = errors.Join(l.writer.closeSegment(), l.bodies.close())
		if cerr := l.dir.Close(); err == nil {
			err = cerr
		}
	})
	return err
}

// genesisHost returns name, or the kernel's host name if name is empty, in the characters that genesis allows.
func genesisHost(name string) string {
	if name == "" {
		name, _ = os.Hostname() // without a name, it is "unnamed"
	}
	b := []byte(name)
	for i, c := range b {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			b[i] = '_'
		}
	}
	if len(b) == 0 {
		return "unnamed"
	}
	return string(b[:min(len(b), 253)])
}
