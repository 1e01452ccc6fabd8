package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
)

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
				Detail: "the entry was changed, or is not in its place: its number or hash does not follow from the entry before"}
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
