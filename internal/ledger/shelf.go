package ledger

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"bailey/audit"
	"bailey/internal/receipts"
)

// linePlace is the place of a line in the ledger, with the hash before it and its own hash.
type linePlace struct {
	seq        uint64
	segment    int // counted from 1
	offset     int64
	length     int
	prev, hash audit.Hash
}

// receiptLines holds the places of the two lines of a receipt. If the receipt is open, outcome is zero.
type receiptLines struct{ intent, outcome linePlace }

func (p *receiptLines) scanRow(rows *sql.Rows) error {
	var segment, offset, length sql.NullInt64
	var prev, hash, oprev, ohash sql.RawBytes
	i, o := &p.intent, &p.outcome
	if err := rows.Scan(&i.seq, &i.segment, &i.offset, &i.length, &prev, &hash, &o.seq, &segment, &offset, &length,
		&oprev, &ohash); err != nil {
		return err
	}
	o.segment, o.offset, o.length = int(segment.Int64), offset.Int64, int(length.Int64)
	copy(i.prev[:], prev)
	copy(i.hash[:], hash)
	copy(o.prev[:], oprev)
	copy(o.hash[:], ohash)
	return nil
}

// lineReader reads lines of the ledger at given places.
type lineReader struct {
	dir   *directory
	files map[int]*os.File
	buf   *bufio.Reader // as large as [audit.Scan] needs
}

func (s *lineReader) close() {
	for _, f := range s.files {
		f.Close()
	}
}

// readEntry reads one line and checks it against the chain and against the index.
func (s *lineReader) readEntry(l linePlace) (audit.Entry, error) {
	f, err := s.openSegment(l.segment)
	if err != nil {
		return audit.Entry{}, err
	}
	return entryAt(f, s.buf, l)
}

func (s *lineReader) openSegment(segment int) (*os.File, error) {
	if f := s.files[segment]; f != nil {
		return f, nil
	}
	f, err := s.dir.openRegular(fmt.Sprintf("%08d.jsonl", segment), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, staleError(fmt.Sprintf("the ledger has no segment %d", segment))
	}
	if err != nil {
		return nil, err
	}
	if s.files == nil {
		s.files, s.buf = map[int]*os.File{}, bufio.NewReaderSize(nil, 2*audit.MaxLine)
	}
	s.files[segment] = f
	return f, nil
}

// readRecord reads a receipt.
func (s *lineReader) readRecord(p receiptLines) (receipts.Record, error) {
	var outcome audit.Entry
	intent, err := s.readEntry(p.intent)
	if err == nil && p.outcome.seq > 0 {
		outcome, err = s.readEntry(p.outcome)
	}
	if err != nil {
		return receipts.Record{}, err
	}
	if intent.Kind != audit.KindIntent || p.outcome.seq > 0 &&
		(outcome.Kind != audit.KindOutcome || outcome.Receipt != intent.Receipt) {
		return receipts.Record{}, staleError(fmt.Sprintf("its entries %d and %d are no receipt", p.intent.seq,
			p.outcome.seq))
	}
	return receipts.NewRecord(intent, outcome)
}
