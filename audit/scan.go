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
	Torn    Reason = "torn"    // a torn tail: bytes after the last good line, none of them well-formed
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
	Segment int    `json:"segment"` // counted from 1; 0 where the fault is no line's
	Entry   uint64 `json:"entry"`   // the number that stands there, or should
	Offset  int64  `json:"offset"`  // of the line in its segment, in bytes
	Reason  Reason `json:"reason"`
	Detail  string `json:"detail"`
}

func (b *Bad) Error() string {
	if b.Segment == 0 {
		return fmt.Sprintf("%s: %s", b.Reason, b.Detail)
	}
	return fmt.Sprintf("entry %d (segment %d, byte %d): %s: %s", b.Entry, b.Segment, b.Offset, b.Reason, b.Detail)
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
		return s.bad(Chain, "the entry says that it is number %d", e.Seq)
	case e.Hash != claimed:
		return s.bad(Chain, "the hash over the entry before and this one is not the one written")
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

// damaged reads on after a line that is not the format, to tell a torn tail from damage further in.
func (s *scanner) damaged(line []byte, cause error) error {
	bad := s.bad(Torn, "%v", cause)
	window := bytes.Clone(line) // what ReadSlice returned does not outlive the next read
	for {
		if endsWell(window) {
			bad.Reason = Frame
			return bad
		}
		if bytes.HasSuffix(window, []byte("\n")) {
			window = window[:0]
		}
		more, err := s.r.ReadSlice('\n')
		window = append(window[max(0, len(window)-MaxLine):], more...)
		if err == io.EOF && len(more) == 0 {
			return bad
		}
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return err
		}
	}
}

// endsWell tells whether b ends in a well-formed line. Such a line may stand behind the bytes of one that
// was torn: a writer that appended after them has swallowed it, and it may be a receipt somebody holds.
func endsWell(b []byte) bool {
	const tries = 16 // data may hold the text of a frame; more than this is no accident and not worth the time
	for range tries {
		i := bytes.Index(b, []byte(frameHash))
		if i < 0 {
			return false
		}
		b = b[i:]
		if _, raw, err := parseLine(b); err == nil {
			if _, err := parseEntry(raw); err == nil {
				return true
			}
		}
		b = b[1:]
	}
	return false
}
