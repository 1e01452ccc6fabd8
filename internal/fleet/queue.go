package fleet

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"bailey"
	"bailey/internal/safefile"
)

// Limits of a queue.
const (
	maxQueue   = 256 << 20 // bytes of events that wait; further ones are refused
	maxSegment = 4 << 20   // bytes after which another file begins
)

// Queue keeps the events of a host in files of a directory until the server has acknowledged them. Its methods may be
// called concurrently, but only one process may have a queue open.
//
// A file is named by the number of its first event. Each event is a length, a CRC-32 and JSON. An incomplete event at
// the end of the last file was never promised to anyone, and is cut off.
type Queue struct {
	dir string
	id  string

	mu     sync.Mutex
	last   *os.File // the file that grows
	size   int64    // of last
	total  int64    // of all files
	next   uint64   // the number of the next event
	acked  uint64
	firsts []uint64 // the first numbers of the files, ascending
	broken error    // after a failed write, nothing is known about the end of the file
	more   chan struct{}
}

// OpenQueue opens the queue in dir, and creates it if it is missing.
func OpenQueue(dir string) (*Queue, error) {
	q := &Queue{dir: dir, more: make(chan struct{})}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = q.readID()
	}
	if err == nil {
		err = q.openFiles()
	}
	if err != nil {
		q.Close()
		return nil, queueFault(err, dir)
	}
	return q, nil
}

func queueFault(err error, dir string) error {
	return bailey.Unavailable.Wrapf(err, "free space, correct the permissions, or move the directory away: events in it are lost then",
		"cannot use the queue of events in %s", dir)
}

func (q *Queue) readID() error {
	name := filepath.Join(q.dir, "id")
	text, err := safefile.Read(name, 100)
	if err != nil {
		return err
	}
	if q.id = strings.TrimSpace(string(text)); text != nil && isID(q.id) {
		return nil
	}
	if text != nil {
		return errors.New("its file id does not hold an id")
	}
	q.id = NewID()
	return safefile.Create(name, []byte(q.id+"\n"), 0o600)
}

func (q *Queue) openFiles() error {
	names, err := filepath.Glob(filepath.Join(q.dir, "*.events"))
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		first, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(name), ".events"), 10, 64)
		if err != nil || first == 0 || q.next != 0 && first != q.next {
			return fmt.Errorf("the file %s does not follow the one before", filepath.Base(name))
		}
		q.firsts, q.next = append(q.firsts, first), first
		size, err := scanEvents(name, func(e Event) error {
			if e.Seq != q.next {
				return fmt.Errorf("event %d stands where %d belongs", e.Seq, q.next)
			}
			q.next++
			return nil
		})
		if errors.Is(err, io.ErrUnexpectedEOF) && name == names[len(names)-1] {
			err = os.Truncate(name, size)
		}
		if err != nil {
			return err
		}
		q.size, q.total = size, q.total+size
	}
	if len(q.firsts) == 0 {
		return q.beginFile(1)
	}
	q.acked = q.firsts[0] - 1
	q.last, err = os.OpenFile(names[len(names)-1], os.O_WRONLY|os.O_APPEND, 0)
	return err
}

func (q *Queue) fileName(first uint64) string {
	return filepath.Join(q.dir, fmt.Sprintf("%020d.events", first))
}

// beginFile begins another file. It exists durably before the ones before it may be removed.
func (q *Queue) beginFile(first uint64) error {
	if err := safefile.Create(q.fileName(first), nil, 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(q.fileName(first), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if q.last != nil {
		q.last.Close()
	}
	q.last, q.size, q.next, q.firsts = f, 0, first, append(q.firsts, first)
	return nil
}

// scanEvents reads the events of a file and returns where the last whole one ends.
func scanEvents(name string, each func(Event) error) (size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			if err == io.EOF {
				return size, nil
			}
			return size, err
		}
		n := binary.BigEndian.Uint32(head[:])
		if n > MaxFrame {
			return size, fmt.Errorf("an event of %d bytes in %s", n, filepath.Base(name))
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(r, text); err != nil {
			return size, io.ErrUnexpectedEOF
		}
		var e Event
		if crc32.ChecksumIEEE(text) != binary.BigEndian.Uint32(head[4:]) {
			return size, errEvent(r, name)
		}
		if err := json.Unmarshal(text, &e); err != nil {
			return size, err
		}
		if err := each(e); err != nil {
			return size, err
		}
		size += int64(len(head)) + int64(n)
	}
}

// errEvent is the error for a wrong checksum. At the end of a file it is an incomplete write.
func errEvent(r *bufio.Reader, name string) error {
	if _, err := r.Peek(1); err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return fmt.Errorf("an event in %s was changed", filepath.Base(name))
}

// ID names the queue. A queue that was created anew has another one.
func (q *Queue) ID() string { return q.id }

// Floor returns the last event that is gone.
func (q *Queue) Floor() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.firsts[0] - 1
}

// Append keeps an event durably. If the queue is full, the error is Unavailable, and the event is not kept.
func (q *Queue) Append(kind string, body []byte) error {
	if err := checkContent(kind, body); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.broken != nil {
		return queueFault(q.broken, q.dir)
	}
	text, err := json.Marshal(Event{Seq: q.next, Kind: kind, Body: body})
	if err != nil {
		return err
	}
	if q.total+int64(len(text)) > maxQueue {
		return bailey.Unavailable.Errorf("bring the control plane back, or end the enrolment: bailey unenroll",
			"%d MiB of events wait for the control plane: no more are kept", maxQueue>>20)
	}
	if q.size > maxSegment {
		if err := q.beginFile(q.next); err != nil {
			return queueFault(err, q.dir)
		}
	}
	line := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	line = append(binary.BigEndian.AppendUint32(line, crc32.ChecksumIEEE(text)), text...)
	_, err = q.last.Write(line)
	if err == nil {
		err = q.last.Sync()
	}
	if err != nil {
		q.broken = err
		return queueFault(err, q.dir)
	}
	q.size, q.total, q.next = q.size+int64(len(line)), q.total+int64(len(line)), q.next+1
	close(q.more)
	q.more = make(chan struct{})
	return nil
}

// After returns events after a number, at least one if there is any and about 1 MiB at most, and a channel that is closed
// when there are more.
func (q *Queue) After(seq uint64) ([]Event, <-chan struct{}, error) {
	q.mu.Lock()
	more, next := q.more, q.next
	at, found := slices.BinarySearch(q.firsts, seq+1)
	if !found {
		at--
	}
	firsts := slices.Clone(q.firsts[max(at, 0):])
	q.mu.Unlock()
	var events []Event
	size := 0
	for _, first := range firsts {
		_, err := scanEvents(q.fileName(first), func(e Event) error {
			if e.Seq <= seq || e.Seq >= next {
				return nil
			}
			if size += len(e.Body); size > 1<<20 && len(events) > 0 {
				return errEnough
			}
			events = append(events, e)
			return nil
		})
		if errors.Is(err, errEnough) {
			break
		}
		// Beyond next another event may be half-written.
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, nil, queueFault(err, q.dir)
		}
	}
	return events, more, nil
}

var errEnough = errors.New("enough")

// Acknowledge removes the files whose events the server has stored. A number that was never given is an error: the
// server knows another queue.
func (q *Queue) Acknowledge(seq uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if seq >= q.next {
		return bailey.Conflict.Errorf("enrol again, with a new token",
			"the server acknowledges event %d, and the last one here is %d", seq, q.next-1)
	}
	q.acked = max(q.acked, seq)
	for len(q.firsts) > 1 && q.firsts[1] <= q.acked+1 {
		name := q.fileName(q.firsts[0])
		info, err := os.Stat(name)
		if err == nil {
			err = os.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return queueFault(err, q.dir)
		}
		if err == nil {
			q.total -= info.Size()
		}
		q.firsts = q.firsts[1:]
	}
	if q.acked+1 == q.next && q.size > maxSegment {
		return q.replaceLast()
	}
	return nil
}

// replaceLast begins a new file after one of which everything was acknowledged.
func (q *Queue) replaceLast() error {
	if err := q.beginFile(q.next); err != nil {
		return queueFault(err, q.dir)
	}
	old := q.firsts[0]
	q.total, q.firsts = 0, q.firsts[1:]
	if err := os.Remove(q.fileName(old)); err != nil {
		return queueFault(err, q.dir)
	}
	return nil
}

// Waiting returns how many events wait, and the number of the last one.
func (q *Queue) Waiting() (n, last uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next - 1 - q.acked, q.next - 1
}

// Close closes the files.
func (q *Queue) Close() error {
	if q.last == nil {
		return nil
	}
	return q.last.Close()
}
