package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
)

// Reason says why a ledger is not in order.
type Reason string

const (
	Torn    Reason = "torn"    // the last line is unfinished, without a newline, or zeros
	Empty   Reason = "empty"   // the ledger has no entry
	Frame   Reason = "frame"   // a line is not in the format
	Chain   Reason = "chain"   // a hash or number does not follow from the entry before
	Origin  Reason = "origin"  // genesis is missing, repeated or not in the format
	Pairing Reason = "pairing" // a second intent or outcome, or an outcome without an intent
	Planned Reason = "plan"    // a plan does not match its digest, or an outcome names an unknown plan
	Started Reason = "segment" // a segment does not begin with the description of the entries before it
	Rekeyed Reason = "key"     // the previous key did not sign a key change, or a given key is not announced

	// Found by comparison with a checkpoint:

	Replaced    Reason = "replaced"    // another genesis: the ledger of another time or host
	Truncated   Reason = "truncated"   // fewer entries than were signed
	Rollback    Reason = "rollback"    // the newest checkpoint shown is older than one seen before
	Forked      Reason = "fork"        // other entries than those that were signed
	Unsigned    Reason = "signature"   // no signature by a trusted key
	Unwitnessed Reason = "unwitnessed" // fewer cosignatures than required
)

// Bad is the first fault that was found. [Scan] yields it as an error.
type Bad struct {
	Segment int    // counted from 1; 0 if the fault is not in a line
	Entry   uint64 // the number that is there or should be; 0 if the fault is not in one entry
	Within  uint64 // the fault is in one of the first Within entries, unknown which; 0 if known
	Offset  int64  // of the line in its segment, in bytes
	// Tail is set if a crash may have left these bytes and no well-formed line follows. A writer keeps a copy of them,
	// cuts them off and continues.
	Tail       bool
	Checkpoint string // name of the checkpoint that the ledger contradicts
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

// MarshalJSON omits unknown values: the position, if no line is at fault.
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

// Scan yields the entries of r, which follow the entry at after. For a ledger's first segment, after must be the zero
// Head. Scan checks each entry against the format and the chain. It ends at the first error: a *[Bad], or the error of
// reading r. It needs memory for two lines, regardless of the length of r.
func Scan(r io.Reader, after Head) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		s := newScanner(r, 1, after)
		for {
			e, err := s.nextEntry()
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
	r       *bufio.Reader // buffers two lines, so that a line's last MaxLine bytes are always available
	segment int
	head    Head  // of the last good entry
	off     int64 // offset of the next line
}

func newScanner(r io.Reader, segment int, after Head) *scanner {
	return &scanner{r: bufio.NewReaderSize(r, 2*MaxLine), segment: segment, head: after}
}

// nextEntry returns the next entry, or io.EOF at the end.
func (s *scanner) nextEntry() (Entry, error) {
	line, err := s.r.ReadSlice('\n')
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return Entry{}, err
	}
	if len(line) == 0 {
		return Entry{}, io.EOF
	}
	claimed, raw, err := parseLine(line)
	if err != nil {
		return Entry{}, s.describeDamage(line, err)
	}
	e, err := parseEntry(raw)
	if err != nil {
		return Entry{}, s.describeDamage(line, err)
	}
	e.Prev, e.Hash, e.Leaf = s.head.Hash, hashEntry(s.head.Hash, raw), Leaf(line)
	if bad := s.checkFollows(e, claimed); bad != nil {
		return Entry{}, bad
	}
	s.head = Head{Seq: e.Seq, Hash: e.Hash}
	s.off += int64(len(line))
	return e, nil
}

// checkFollows checks a well-formed entry against the previous one.
func (s *scanner) checkFollows(e Entry, claimed Hash) error {
	switch {
	case e.Seq != s.head.Seq+1:
		return s.describeMisplaced(e.Seq)
	case e.Hash != claimed:
		return s.newBad(Chain,
			"the entry was changed or moved: its hash does not match its bytes and the previous entry")
	case (e.Kind == KindGenesis) != (e.Seq == 1):
		return s.newBad(Origin, "only entry 1 can be genesis; this entry is of kind %s", e.Kind)
	case e.Seq == 1 && !validGenesis(e.Data):
		return s.newBad(Origin, "genesis does not have format %d, an origin and a host", Format)
	}
	return nil
}

// validGenesis parses leniently and accepts only if encoding the result gives the same bytes.
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

func (s *scanner) newBad(reason Reason, format string, args ...any) *Bad {
	return &Bad{Segment: s.segment, Entry: s.head.Seq + 1, Offset: s.off, Reason: reason,
		Detail: fmt.Sprintf(format, args...)}
}

// After a bad line a scanner reads on, to describe the damage as exactly as possible.

// tailBytes bounds, in bytes, how far a scanner reads on. No crash leaves so much, and a file may be endless.
const tailBytes = 64 << 20

// sector is the smallest amount that a disk writes, in bytes.
const sector = 512

// describeDamage reads on after a line that is not in the format, to distinguish a torn tail from damage further inside.
func (s *scanner) describeDamage(line []byte, cause error) error {
	bad := s.newBad(Frame, "%s", describeMalformed(line, cause))
	bytesBehind, zeros, ended := 0, 0, false
	more, window := line, []byte(nil) // the slice of ReadSlice is valid only until the next read
	for {
		bytesBehind += len(more)
		zeros += bytes.Count(more, []byte{0})
		if window = append(window[max(0, len(window)-MaxLine):], more...); endsWell(window) {
			return bad
		}
		if bytesBehind > tailBytes {
			bad.Detail += fmt.Sprintf("; the %d MiB after it contain no entry", tailBytes>>20)
			return bad
		}
		if bytes.HasSuffix(window, []byte("\n")) {
			window, ended = window[:0], true
		}
		var err error
		if more, err = s.r.ReadSlice('\n'); err == io.EOF && len(more) == 0 {
			break
		}
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return err
		}
	}
	// A crash leaves an unfinished line without a newline, or blocks that never reached the disk, which read as zeros.
	switch bad.Tail = zeros >= sector || !ended; {
	case !bad.Tail:
	case zeros == bytesBehind:
		bad.Reason, bad.Detail = Torn, fmt.Sprintf("%d zero bytes follow the last entry", bytesBehind)
	case ended:
		bad.Reason, bad.Detail = Torn, fmt.Sprintf("%d bytes follow the last entry, zeros among them",
			bytesBehind)
	default:
		bad.Reason, bad.Detail = Torn, fmt.Sprintf("the last line has no newline: %d bytes of it are there",
			bytesBehind)
	}
	return bad
}

// describeMalformed describes a malformed line. If the cause is not obvious, the description is more specific than cause.
func describeMalformed(line []byte, cause error) string {
	switch zeros := bytes.Count(line, []byte{0}); {
	case string(line) == "\n":
		return "the line is empty"
	case bytes.HasSuffix(line, []byte("\r\n")):
		return "the line ends in CR LF: the file was copied as text, which changed its bytes"
	case zeros > 0:
		return fmt.Sprintf("%d of the line's bytes are zero", zeros)
	}
	return cause.Error()
}

// describeMisplaced explains why another number is in the place of the next one. It reads later numbers as far as they can be
// trusted.
func (s *scanner) describeMisplaced(got uint64) error {
	want := s.head.Seq + 1
	if got < want {
		return s.newBad(Chain, "entry %d is repeated or out of order here", got)
	}
	for read := 0; read <= tailBytes; {
		line, err := s.r.ReadSlice('\n')
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		read += len(line)
		if _, raw, wrong := splitLine(line); wrong == nil {
			switch n, _ := parseSeq(raw); n {
			case want:
				return s.newBad(Chain, "entry %d is here and entry %d follows later: they are out of order",
					got, want)
			case want + 1:
				return s.newBad(Chain, "the entry's number was changed to %d", got)
			}
		}
		if err == io.EOF {
			break
		}
	}
	if got == want+1 {
		return s.newBad(Chain, "entry %d was removed: entry %d follows", want, got)
	}
	return s.newBad(Chain, "entries %d to %d were removed: entry %d follows", want, got-1, got)
}

// endsWell reports whether b ends in a well-formed line. If a writer appended after a torn line, the new line is joined
// to the torn bytes. It must be found, because it may be a receipt that a user holds.
func endsWell(b []byte) bool {
	const tries = 16 // data may contain the text of a frame; more is deliberate and not worth the time
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

// Follow reads a segment after the entry at after and checks frames, numbers and hashes. It adds each line to tree
// unless tree is nil. It needs memory for two lines and little more time than hashing, because it parses no entry. A
// segment that it accepts was not changed since it was written; [Verify] tells whether it was written correctly.
func Follow(r io.Reader, after Head, tree *Tree) (Head, error) {
	b := bufio.NewReaderSize(r, 2*MaxLine)
	var text [2 * sha256.Size]byte
	for off, head := int64(0), after; ; {
		line, err := b.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return head, nil
		}
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return head, err
		}
		claimed, raw, err := splitLine(line)
		if err != nil {
			return head, &Bad{Segment: 1, Entry: head.Seq + 1, Offset: off, Reason: Frame, Detail: err.Error()}
		}
		h := hashEntry(head.Hash, raw)
		hex.Encode(text[:], h[:])
		if seq, ok := parseSeq(raw); !ok || seq != head.Seq+1 || !bytes.Equal(text[:], claimed) {
			return head, &Bad{Segment: 1, Entry: head.Seq + 1, Offset: off, Reason: Chain,
				Detail: "the entry was changed or moved: its number or hash does not match the previous entry"}
		}
		if tree != nil {
			tree.Add(Leaf(line))
		}
		head, off = Head{head.Seq + 1, h}, off+int64(len(line))
	}
}

// parseSeq returns the number that an entry states.
func parseSeq(raw []byte) (uint64, bool) {
	digits, _, ok := cutBetween(raw[:min(len(raw), 40)], `{"seq":`, ",")
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	return seq, ok && err == nil
}
