package ledger

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
)

// Reader reads receipts from a ledger's files alone: it takes no lock, starts nothing, writes nothing and uses no
// index. It reads the ledger as it was when the reader was opened, up to the last whole line, and checks each line
// against the chain.
type Reader struct {
	// Progress, if set, is called now and then with the number of bytes read and their total.
	Progress func(done, all int64)
	// Rest is the number of bytes after the last whole line. They are left out: a writer is writing them, or a crash
	// left them.
	Rest int64

	dir   string
	files []*os.File
	sizes []int64 // bytes to read of each
}

// OpenReader opens the ledger of a home. Like a writer, it refuses a directory that must not hold a ledger.
func OpenReader(dir string) (*Reader, error) {
	if !Begun(dir) {
		return nil, noLedgerError(dir)
	}
	d, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	files, err := d.openSegments()
	if err != nil {
		return nil, err
	}
	return newReader(dir, files)
}

// OpenCopy opens a ledger in any place and of any owner, as [VerifyCopy] does.
func OpenCopy(dir string) (*Reader, error) {
	d, _, err := openCopy(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	files, err := d.openSegments()
	if errors.Is(err, bailey.NotFound) {
		err = emptyCopyError(dir)
	}
	if err != nil {
		return nil, err
	}
	return newReader(dir, files)
}

// Begun reports whether a ledger was ever begun in dir. If it cannot tell, it returns true.
func Begun(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, segmentFile(1)))
	return !errors.Is(err, fs.ErrNotExist)
}

func noLedgerError(dir string) error {
	return bailey.NotFound.New("there is no ledger in "+dir, "make a call first, which creates one")
}

func newReader(dir string, files []*os.File) (*Reader, error) {
	r := &Reader{dir: dir, files: files}
	for i, f := range files {
		st, err := f.Stat()
		size := int64(0)
		if err == nil {
			size = st.Size()
		}
		if err == nil && i+1 == len(files) {
			size, err = wholeLines(f, size)
			r.Rest = st.Size() - size
		}
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("cannot read the ledger in %s: %w", dir, err)
		}
		r.sizes = append(r.sizes, size)
	}
	return r, nil
}

// wholeLines returns the length of the whole lines in a file of size bytes. If the tail holds no whole line, it is kept
// for the scan to refuse.
func wholeLines(f io.ReaderAt, size int64) (int64, error) {
	tail := make([]byte, min(size, audit.MaxLine+1))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return 0, err
	}
	if i := bytes.LastIndexByte(tail, '\n'); i >= 0 {
		return size - int64(len(tail)-i-1), nil
	}
	return size, nil
}

// Close closes the files.
func (r *Reader) Close() { closeAll(r.files) }

// entries reads from the beginning each time.
func (r *Reader) entries(ctx context.Context) iter.Seq2[Placed, error] {
	return func(yield func(Placed, error) bool) {
		var segments []io.ReadSeeker
		all := int64(0)
		for i, f := range r.files {
			segments = append(segments, io.NewSectionReader(f, 0, r.sizes[i]))
			all += r.sizes[i]
		}
		for p, err := range walkLedger(ctx, r.dir, segments, Place{}) {
			if !yield(p, err) {
				return
			}
			if r.Progress != nil && p.Seq%1024 == 0 {
				r.Progress(p.endOffset(), all)
			}
		}
	}
}

// Find returns the receipts that match f, as [Log.Find] does.
func (r *Reader) Find(ctx context.Context, f receipts.Filter) (receipts.Page, error) {
	page, err := findIn(r.entries(ctx), f)
	if err == nil && page.Head.Seq == 0 {
		err = noLedgerError(r.dir)
	}
	return page, err
}

// Each calls do for all receipts that match f, oldest first. Before that it calls begin with the origin of the ledger
// and the head up to which it was read. It reads twice, so that everything after begin is known to be in order. Limit
// and Size have no effect.
func (r *Reader) Each(ctx context.Context, f receipts.Filter, begin func(origin string, head audit.Head) error,
	do func(receipts.Record) error) error {
	if err := f.Check(); err != nil {
		return err
	}
	s := firstPass{dir: r.dir, open: map[bailey.ReceiptID]openIntent{}, late: map[uint64]Place{}}
	for p, err := range r.entries(ctx) {
		if err == nil {
			err = s.addEntry(p)
		}
		if err != nil {
			return err
		}
	}
	if s.head.Seq == 0 {
		return noLedgerError(r.dir)
	}
	s.markOpenLate()
	if err := begin(s.origin, s.head); err != nil {
		return err
	}
	q := receiptQueue{reader: r, filter: f, late: s.late, do: do, waiting: map[bailey.ReceiptID]*pendingReceipt{},
		buf: bufio.NewReaderSize(nil, 2*audit.MaxLine)}
	for p, err := range r.entries(ctx) {
		if err == nil {
			err = q.addEntry(p)
		}
		if err != nil {
			return err
		}
	}
	if q.head != s.head {
		return r.changedError(nil)
	}
	return nil
}

func (r *Reader) changedError(cause error) error {
	return bailey.Conflict.Wrap(cause, "the ledger in "+r.dir+" changed while it was read",
		"try again; bailey audit verify checks the current ledger")
}

// firstPass collects the result of a first reading.
type firstPass struct {
	dir    string
	origin string
	head   audit.Head
	open   map[bailey.ReceiptID]openIntent
	late   map[uint64]Place // by intent: outcomes that come later than a queue waits; zero without an outcome
}

type openIntent struct {
	seq uint64
	end int64
}

// window is for how many bytes of the ledger an intent waits in memory for its outcome.
const window = 4 << 20

func (s *firstPass) addEntry(p Placed) error {
	s.head = audit.Head{Seq: p.Seq, Hash: p.Hash}
	switch p.Kind {
	case audit.KindGenesis:
		var g audit.Genesis
		err := json.Unmarshal(p.Data, &g)
		s.origin = g.Origin
		return err
	case audit.KindIntent:
		if _, twice := s.open[p.Receipt]; twice {
			return s.pairingError(p, "receipt "+string(p.Receipt)+" already has an intent")
		}
		s.open[p.Receipt] = openIntent{p.Seq, p.endOffset()}
	case audit.KindOutcome:
		o, ok := s.open[p.Receipt]
		if !ok {
			return s.pairingError(p, "receipt "+string(p.Receipt)+" is not open")
		}
		delete(s.open, p.Receipt)
		if p.endOffset()-o.end > window {
			s.late[o.seq] = p.At
		}
	}
	return nil
}

func (s *firstPass) pairingError(p Placed, why string) error {
	return damagedError(s.dir,
		&audit.Bad{Segment: p.At.Segment, Entry: p.Seq, Offset: p.At.Offset, Reason: audit.Pairing, Detail: why})
}

func (s *firstPass) markOpenLate() {
	for _, o := range s.open {
		s.late[o.seq] = Place{}
	}
	s.open = nil
}

// receiptQueue puts receipts into the order of their intents during the second reading of a ledger. It waits for most
// outcomes, which come soon; the places of the late ones are known. So it holds no more than a window of the ledger.
type receiptQueue struct {
	reader  *Reader
	filter  receipts.Filter
	late    map[uint64]Place
	do      func(receipts.Record) error
	head    audit.Head
	order   []*pendingReceipt
	waiting map[bailey.ReceiptID]*pendingReceipt
	buf     *bufio.Reader
}

// pendingReceipt is a receipt that is not passed on yet.
type pendingReceipt struct {
	intent, outcome audit.Entry
	whole           bool
}

func (q *receiptQueue) addEntry(p Placed) error {
	q.head = audit.Head{Seq: p.Seq, Hash: p.Hash}
	switch p.Kind {
	case audit.KindIntent:
		if !q.filter.MayMatch(p.Entry) {
			return nil
		}
		next := &pendingReceipt{intent: p.Entry}
		at, late := q.late[p.Seq]
		if late && at.Seq > 0 {
			var err error
			if next.outcome, err = q.readOutcome(at); err != nil {
				return err
			}
		}
		if next.whole = late; !late {
			q.waiting[p.Receipt] = next
		}
		q.order = append(q.order, next)
	case audit.KindOutcome:
		if waits := q.waiting[p.Receipt]; waits != nil {
			waits.outcome, waits.whole = p.Entry, true
			delete(q.waiting, p.Receipt)
		}
	default:
		return nil
	}
	return q.emitComplete()
}

// emitComplete passes on the complete receipts before the first incomplete one.
func (q *receiptQueue) emitComplete() error {
	for len(q.order) > 0 && q.order[0].whole {
		first := q.order[0]
		q.order[0], q.order = nil, q.order[1:]
		r, err := receipts.NewRecord(first.intent, first.outcome)
		if err != nil {
			return err
		}
		if !q.filter.Matches(r) {
			continue
		}
		if err := q.do(r); err != nil {
			return err
		}
	}
	return nil
}

// readOutcome reads an outcome ahead.
func (q *receiptQueue) readOutcome(at Place) (audit.Entry, error) {
	e, err := entryAt(q.reader.files[at.Segment-1], q.buf, at)
	if why := Misplaced(""); errors.As(err, &why) {
		err = q.reader.changedError(err)
	}
	return e, err
}
