package audit

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// Reason is why a ledger is not in order.
type Reason string

const (
	Torn    Reason = "torn"    // the last line has no newline: unfinished, or zeros
	Empty   Reason = "empty"   // no entry at all
	Frame   Reason = "frame"   // a line that is not the format
	Chain   Reason = "chain"   // a hash or a number that does not follow from the entry before
	Origin  Reason = "origin"  // genesis missing, repeated or not the format
	Pairing Reason = "pairing" // an intent or outcome too many, an outcome without intent
	Planned Reason = "plan"    // a plan that is not its digest's, an outcome whose plan is nowhere before it
	Started Reason = "segment" // a segment that does not begin with what stands before it
	Rekeyed Reason = "key"     // a change of the log's key that the key before did not sign

	// Against a checkpoint:

	Replaced    Reason = "replaced"    // another genesis: the ledger of another time or host
	Truncated   Reason = "truncated"   // fewer entries than were signed
	Rollback    Reason = "rollback"    // what is shown as newest is older than what was seen
	Forked      Reason = "fork"        // other entries than were signed
	Unsigned    Reason = "signature"   // no checkpoint of a key that is trusted
	Unwitnessed Reason = "unwitnessed" // fewer cosignatures than are wanted
)

// Bad is the first thing found wrong. It is the error that [Scan] yields.
type Bad struct {
	Segment    int    // counted from 1; 0 where the fault is no line's
	Entry      uint64 // the number that stands there, or should; 0 where the fault is no one entry's
	Within     uint64 // the fault is in one of the first Within entries, and nothing tells which; 0 where that is known
	Offset     int64  // of the line in its segment, in bytes
	Tail       bool   // a crash may have left it, and no well-formed line stands behind it: a writer keeps aside what does, cuts it off and goes on
	Checkpoint string // what the checkpoint is called that the ledger does not agree with
	Reason     Reason
	Detail     string
}

func (b *Bad) Error() string {
	switch {
	case b.Segment == 0 && b.Checkpoint == "":
		return fmt.Sprintf("%s: %s", b.Reason, b.Detail)
	case b.Segment == 0:
		return fmt.Sprintf("%s: %s: %s", b.Reason, b.Checkpoint, b.Detail)
	}
	return fmt.Sprintf("entry %d (segment %d, byte %d): %s: %s", b.Entry, b.Segment, b.Offset, b.Reason, b.Detail)
}

// MarshalJSON leaves out what is not known: where no line is at fault, its place.
func (b *Bad) MarshalJSON() ([]byte, error) {
	var offset *int64
	if b.Segment > 0 {
		offset = &b.Offset
	}
	return json.Marshal(struct {
		Segment    int    `json:"segment,omitempty"`
		Entry      uint64 `json:"entry,omitempty"`
		Within     uint64 `json:"within,omitempty"`
		Offset     *int64 `json:"offset,omitempty"`
		Tail       bool   `json:"tail,omitempty"`
		Checkpoint string `json:"checkpoint,omitempty"`
		Reason     Reason `json:"reason"`
		Detail     string `json:"detail"`
	}{b.Segment, b.Entry, b.Within, offset, b.Tail, b.Checkpoint, b.Reason, b.Detail})
}

// Scan yields the entries that r holds after the entry at after, the zero Head for a ledger's first
// segment, and checks each against the format and the chain. It ends at the first error: a *[Bad], or what
// reading r returned. It needs memory for two lines, whatever r holds.
func Scan(r io.Reader, after Head) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		s := newScanner(r, 1, after)
		for {
			e, err := s.next()
			if err == io.EOF {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// scanner reads one segment.
type scanner struct {
	r       *bufio.Reader // holds two lines, so that a line's last MaxLine bytes are always at hand
	segment int
	head    Head  // of the last good entry
	off     int64 // where the next line begins
}

func newScanner(r io.Reader, segment int, after Head) *scanner {
	return &scanner{r: bufio.NewReaderSize(r, 2*MaxLine), segment: segment, head: after}
}

// next returns the next entry, io.EOF at the end.
func (s *scanner) next() (Entry, error) {
	line, err := s.r.ReadSlice('\n')
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return Entry{}, err
	}
	if len(line) == 0 {
		return Entry{}, io.EOF
	}
	claimed, raw, err := parseLine(line)
	if err != nil {
		return Entry{}, s.damaged(line, err)
	}
	e, err := parseEntry(raw)
	if err != nil {
		return Entry{}, s.damaged(line, err)
	}
	e.Prev, e.Hash, e.Leaf = s.head.Hash, next(s.head.Hash, raw), Leaf(line)
	if bad := s.follows(e, claimed); bad != nil {
		return Entry{}, bad
	}
	s.head = Head{Seq: e.Seq, Hash: e.Hash}
	s.off += int64(len(line))
	return e, nil
}

// follows checks a well-formed entry against the one before it.
func (s *scanner) follows(e Entry, claimed Hash) error {
	switch {
	case e.Seq != s.head.Seq+1:
		return s.misplaced(e.Seq)
	case e.Hash != claimed:
		return s.bad(Chain, "the entry was changed, or is not in its place: its hash does not follow from its bytes and the entry before")
	case (e.Kind == KindGenesis) != (e.Seq == 1):
		return s.bad(Origin, "genesis is entry 1 and no other; this is of kind %s", e.Kind)
	case e.Seq == 1 && !validGenesis(e.Data):
		return s.bad(Origin, "genesis does not hold format %d, an origin and a host", Format)
	}
	return nil
}

// validGenesis reads loosely and accepts only if encoding what it read gives the same bytes.
func validGenesis(data []byte) bool {
	var g Genesis
	if json.Unmarshal(data, &g) != nil || g.Format != Format || !validName(g.Host, 253) {
		return false
	}
	origin, err := hex.DecodeString(g.Origin)
	if err != nil || len(origin) != 16 || g.Origin != hex.EncodeToString(origin) {
		return false
	}
	same, err := json.Marshal(g)
	return err == nil && bytes.Equal(same, data)
}

func (s *scanner) bad(reason Reason, format string, args ...any) *Bad {
	return &Bad{Segment: s.segment, Entry: s.head.Seq + 1, Offset: s.off, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}
