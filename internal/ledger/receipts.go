package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"bailey"
	"bailey/audit"
)

// Filter says which receipts are wanted. Empty fields want all.
type Filter struct {
	Limit      int // at most MaxLimit; 0 is 50
	ID         bailey.ReceiptID
	Session    bailey.SessionID
	Capability bailey.CapabilityID
}

// MaxLimit bounds the receipts of one answer, and with it the memory that it needs.
const MaxLimit = 1000

// Receipts returns the receipts that f wants, newest first. It reads the ledger from its beginning, as far
// as it was durable when it was called, and checks the chain on the way.
func (l *Log) Receipts(f Filter) ([]bailey.Receipt, error) {
	files, err := l.dir.files()
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	found := finder{filter: f, limit: min(f.Limit, MaxLimit), at: make(map[bailey.ReceiptID]*found)}
	if f.Limit <= 0 {
		found.limit = 50
	}
	var head audit.Head
	for i, r := range l.upToDurable(files) {
		for e, err := range audit.Scan(r, head) {
			var bad *audit.Bad
			if errors.As(err, &bad) {
				bad.Segment = i + 1
				return nil, damaged(l.dir.path, bad)
			}
			if err != nil {
				return nil, fmt.Errorf("reading the ledger: %w", err)
			}
			found.add(e)
			head = audit.Head{Seq: e.Seq, Hash: e.Hash}
		}
	}
	return found.receipts()
}

// Extent returns how many entries are durable, in how many segments and bytes.
func (l *Log) Extent() (entries uint64, segments int, bytes int64, err error) {
	files, err := l.dir.files()
	if err != nil {
		return 0, 0, 0, err
	}
	defer closeAll(files)
	at := l.durable.Load()
	for _, f := range files[:min(len(files), at.segment-1)] {
		st, err := f.Stat()
		if err != nil {
			return 0, 0, 0, err
		}
		bytes += st.Size()
	}
	return at.tree.Size(), at.segment, bytes + at.bytes, nil
}

// upToDurable bounds the segments to what the writer has answered for.
func (l *Log) upToDurable(files []*os.File) []io.Reader {
	return upTo(files, l.durable.Load())
}

// files opens every segment for reading; there is at least one.
func (d *directory) files() (files []*os.File, err error) {
	names, err := d.segments()
	if err == nil && len(names) == 0 {
		err = &bailey.Error{Kind: bailey.NotFound, Message: "there is no ledger in " + d.path, Hint: "the first call begins one"}
	}
	for _, name := range names {
		f, oerr := d.open(name, os.O_RDONLY)
		if oerr != nil {
			closeAll(files)
			return nil, oerr
		}
		files = append(files, f)
	}
	return files, err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// found is a receipt as the ledger holds it. Only what is returned gets decoded.
type found struct {
	seq             uint64
	intent, outcome json.RawMessage
}

// finder keeps the newest receipts that the filter wants, at most limit.
type finder struct {
	filter Filter
	limit  int
	list   []*found // oldest first
	ids    []bailey.ReceiptID
	at     map[bailey.ReceiptID]*found
}

func (f *finder) add(e audit.Entry) {
	switch {
	case e.Kind == audit.KindOutcome:
		if r := f.at[e.Receipt]; r != nil {
			r.outcome = e.Data
		}
	case e.Kind == audit.KindIntent && f.wants(e):
		if len(f.list) == f.limit {
			delete(f.at, f.ids[0])
			f.list, f.ids = f.list[1:], f.ids[1:]
		}
		r := &found{seq: e.Seq, intent: e.Data}
		f.list, f.ids = append(f.list, r), append(f.ids, e.Receipt)
		f.at[e.Receipt] = r
	}
}

func (f *finder) wants(e audit.Entry) bool {
	if f.filter.ID != "" && f.filter.ID != e.Receipt {
		return false
	}
	if f.filter.Session == "" && f.filter.Capability == "" {
		return true
	}
	var in struct {
		Session    bailey.SessionID    `json:"session"`
		Capability bailey.CapabilityID `json:"capability"`
	}
	return json.Unmarshal(e.Data, &in) == nil &&
		(f.filter.Session == "" || f.filter.Session == in.Session) &&
		(f.filter.Capability == "" || f.filter.Capability == in.Capability)
}

func (f *finder) receipts() ([]bailey.Receipt, error) {
	list := make([]bailey.Receipt, 0, len(f.list))
	for _, r := range slices.Backward(f.list) {
		receipt := bailey.Receipt{Seq: r.seq}
		if err := json.Unmarshal(r.intent, &receipt.Intent); err != nil {
			return nil, fmt.Errorf("entry %d of the ledger is no intent of this version: %w", r.seq, err)
		}
		if r.outcome != nil {
			if err := json.Unmarshal(r.outcome, &receipt.Outcome); err != nil {
				return nil, fmt.Errorf("the outcome of entry %d is none of this version: %w", r.seq, err)
			}
		}
		list = append(list, receipt)
	}
	return list, nil
}
