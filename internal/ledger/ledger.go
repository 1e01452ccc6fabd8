// Package ledger is the durable log on disk: the one writer of the format that package audit defines.
//
// What returns without error is on the disk (pwrite(2), fdatasync(2)) and, for a new file, so is its
// name (fsync(2) of the directory; disk_darwin.go and dir_windows.go say how elsewhere). Each caller chains its own
// entry while the disk is busy with those before; one goroutine takes all that wait, writes them at once, syncs once
// and answers them: a group.
//
// # Space
//
// For every open intent two times [audit.MaxLine] bytes stand reserved behind the end of the file (fallocate(2)
// with FALLOC_FL_KEEP_SIZE), from before the intent is written until its outcome is: for that, and for the plan
// of its cage, which stands before it unless an earlier entry holds it. So a full disk refuses new
// calls and never loses what became of one that ran. File systems without fallocate are refused. Before the disk is
// full calls are refused already: when less is free than [Config] keeps in reserve, for what else the machine has to write.
//
// # Failure
//
// A write that fails is cut off again and refused, its whole group with it; nothing half written stays, and what waits
// behind it is chained anew.
// After a sync that failed nobody knows what the disk holds (Linux marks the pages clean; fsync(2), NOTES):
// the log then refuses everything until it is opened anew.
//
// # Segments
//
// A segment that is full is followed by another, which begins with what stands before it: the head, the tree's edge,
// the receipts that are open. It has its name when that line and the space of what is open are on the disk, and what
// it follows is durable by then; so a crash leaves the old segment as the last one, or both complete. A plan is
// noted once in each segment that names it.
//
// # Bodies
//
// Arguments that are too long for an entry and what tools write stand in blobs/, redacted, each in a file of its own
// with the salt of its commitment. They are written before the outcome that names them and synced behind it; one that
// could not be written makes the outcome say so. After 30 days they are removed, or when [Log.Forget] says so.
//
// # Recovery
//
// Opening verifies the last segment from its first line on, and of each segment before it that it ends where the
// next one begins: two reads, some 50 µs. The rest is for [Verify]. A torn tail is kept aside in torn-ENTRY-OFFSET, cut,
// and recorded in a "repair" entry; other damage is a refusal that names segment and entry. Receipts still open get
// an outcome [bailey.Interrupted]. Each step can be cut off by a crash and is then done again.
package ledger

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
	"bailey/audit"
)

// Config is what a Log is opened with. Dir has to be set; every other zero field is safe.
type Config struct {
	Dir  string               // the ledger's directory, made 0700 when it is missing
	Host string               // this machine's name for a new ledger; "" is what the kernel says
	Log  *slog.Logger         // for operators; nil is silent
	Now  func() time.Time     // nil is time.Now
	Wrap func(disk Disk) Disk // for fault tests: stands between the log and each of its segments; nil is nothing
	// Segment is the size in bytes at which a segment is full and the next one begins; 0 is 64 MiB. A segment is
	// longer by what its last group takes, at most 4 MiB and an entry.
	Segment int64
	// Reserve is how many bytes stay free on the disk: with less, no call is taken, and outcomes and notes are. 0 is
	// 64 MiB. What open calls need is not among them: it is allocated.
	Reserve int64
	// Retention is how long bodies are kept in blobs/; 0 is 30 days. NoOutput keeps none of what tools write.
	Retention time.Duration
	NoOutput  bool
	// DailyBodies bounds the bytes of bodies of one day, and AllBodies of all: beyond that the oldest go. 0 is 1 GiB and 8 GiB.
	DailyBodies, AllBodies int64
	// Newest is the checkpoint that was signed last ([Notary]): a ledger that does not hold what it names is refused. nil
	// is none.
	Newest []byte
	// Read is shown the entries of the last segment as opening verifies them; nil is nobody. Those before it, [Log.Before] shows.
	Read func(audit.Entry)
}

// Log is an open ledger. Its methods may be called from many goroutines.
type Log struct {
	log  *slog.Logger
	now  func() time.Time
	host string
	dir  *directory

	bodies   *bodies
	noOutput bool

	before past              // set once
	read   func(audit.Entry) // [Config.Read]

	rotated chan struct{} // holds one: a segment began

	wake  chan struct{} // holds one: something waits
	stop  chan struct{} // closed by Close
	gone  chan struct{} // closed by the writer when it has ended
	close sync.Once

	mu      sync.Mutex
	chain   chain  // guarded by mu
	pending *group // that is being filled, behind what the disk has; guarded by mu
	closed  bool   // guarded by mu
	spare   *group // owned by the writer's goroutine

	durable atomic.Pointer[position] // what is on the disk; set by the writer alone
	writer  writer                   // owned by the writer's goroutine once New has returned
}

// position is a place in the ledger: a segment, counted from 1, a byte in it, and the tree over the entries up to there.
type position struct {
	segment int
	bytes   int64
	tree    audit.Tree
}

// New opens the ledger in c.Dir, or begins one, and holds it against every other writer until Close.
// Its errors name cause and cure.
func New(c Config) (*Log, error) {
	l := &Log{
		noOutput: c.NoOutput, log: c.Log, now: c.Now, host: c.Host, read: c.Read, rotated: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), pending: &group{done: make(chan struct{})}, spare: &group{}, stop: make(chan struct{}), gone: make(chan struct{}),
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
	if err := makeDir(c.Dir); err != nil {
		return nil, unavailable("give the ledger a directory that can be made: BAILEY_HOME on a disk you can write", err, "the ledger has no directory")
	}
	dir, err := openDir(c.Dir)
	if err != nil {
		return nil, err
	}
	l.dir = dir
	if err := l.start(c); err != nil {
		l.writer.release()
		dir.Close()
		return nil, err
	}
	if l.bodies, err = openBodies(c, l.log, l.now); err != nil {
		l.writer.release()
		dir.Close()
		return nil, err
	}
	go l.run()
	return l, nil
}

func (l *Log) start(c Config) error {
	if err := l.dir.lock(); err != nil {
		return err
	}
	names, err := l.dir.segments()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if names, err = l.begin(); err != nil {
			return err
		}
	}
	return l.recover(names, c)
}

// Close answers what was heard, ends the writer and lets the ledger go. Receipts that are still open stay
// so, and get an interrupted outcome when the ledger is opened again.
func (l *Log) Close() error {
	var err error
	l.close.Do(func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		close(l.stop)
		<-l.gone
		err = errors.Join(l.writer.release(), l.bodies.close())
		if cerr := l.dir.Close(); err == nil {
			err = cerr
		}
	})
	return err
}

func unavailable(hint string, err error, format string, args ...any) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf(format, args...), Hint: hint, Err: err}
}

// hostname returns name, or the kernel's, in the letters that genesis takes.
func hostname(name string) string {
	if name == "" {
		name, _ = os.Hostname() // a host without a name is "unnamed"
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
