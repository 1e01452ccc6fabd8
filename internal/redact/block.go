package redact

import "bytes"

const (
	beginMark = "-----BEGIN"
	endMark   = "-----END"
	dashes    = "-----"

	maxLabel = 64       // bytes between a mark and its closing dashes
	maxBlock = 64 << 10 // bytes of an open block that are held back
	slack    = 256      // bytes after the last certain part of a key within which its END may follow
	// bytes before the first certain part of a key: armour headers may be many (RFC 4880, section 6.2)
	headers  = 8 << 10
	longRun  = 32 // number of base64 characters in a row that count as key anywhere in a block
	freshRun = 16 // the same at the start of a line
)

// keyBlock finds private keys in text armour (RFC 7468; RFC 4880, section 6.2; OpenSSH's own format): a BEGIN line
// whose label contains PRIVATE and KEY, and the text after it. Line ends may be of any kind, including escaped ones.
// Lines may have indents, quotes, numbers or time stamps.
//
//   - If an END is within reach and any word precedes it, the find extends to the END.
//   - Without an END (the text was cut), the find ends at the last character that is certainly key. For a BEGIN line that
//     is only mentioned, nothing is found.
//   - Beyond 64 KiB, the block is cut into pieces, each a separate find, so that an endless block is hidden without being
//     held back.
//
// It is a state machine over single bytes, so the result does not depend on how a text is split. Offsets count from the
// start of the stream's buffer.
type keyBlock struct {
	pos    int  // first byte not yet read
	inside bool // after a BEGIN line
	start  int  // of the open block, or of the piece after the last cut
	good   int  // end of the part that is certainly key
	run    int  // base64 characters in a row before pos
	anchor bool // the run is at the start of a line
	fresh  bool // only decoration since the start of the line, with at most one quote
	quote  bool // that quote was seen
	escape bool // after a backslash
	any    bool // a word was seen
	sure   bool // a sufficiently long run was seen
}

// scan continues the search and calls add for each find. It returns the first undecided offset.
func (k *keyBlock) scan(b []byte, final bool, add func(span)) int {
	for {
		if !k.inside && !k.findHeader(b, final) {
			return k.pos
		}
		if !k.readBody(b, final, add) {
			return k.start
		}
	}
}

func (k *keyBlock) shiftOffsets(n int) {
	k.pos -= n
	k.start -= n
	k.good -= n
}

// findHeader finds the next BEGIN line of a private key and enters the block. If it finds no such line, pos is the
// first offset at which one could still begin.
func (k *keyBlock) findHeader(b []byte, final bool) bool {
	for {
		i := bytes.Index(b[k.pos:], []byte(beginMark))
		if i < 0 {
			k.pos = len(b) - partialMarkLen(b[k.pos:], beginMark, final)
			return false
		}
		at := k.pos + i
		label, n, open := readLabel(b[at+len(beginMark):], final)
		if open {
			k.pos = at
			return false
		}
		k.pos = at + len(beginMark) + n
		if private := bytes.Index(label, []byte("PRIVATE")); private >= 0 &&
			bytes.Contains(label[private:], []byte("KEY")) {
			*k = keyBlock{pos: k.pos, inside: true, start: at, good: k.pos, fresh: true}
			return true
		}
	}
}

// partialMarkLen returns the number of bytes at the end of b that could be the beginning of mark.
func partialMarkLen(b []byte, mark string, final bool) int {
	if final {
		return 0
	}
	for n := min(len(b), len(mark)-1); n > 0; n-- {
		if string(b[len(b)-n:]) == mark[:n] {
			return n
		}
	}
	return 0
}

// readLabel reads a label and its closing dashes. n is zero if it finds no label. Spaces may be percent-encoded or plus
// signs. If the text is final, its label may be cut.
func readLabel(b []byte, final bool) (label []byte, n int, open bool) {
	i := 0
	for i < len(b) && i <= maxLabel && labelByte(b[i]) {
		i++
	}
	tail := b[i:min(len(b), i+len(dashes))]
	switch {
	case i > maxLabel || string(tail) != dashes[:len(tail)]:
		return nil, 0, false
	case len(tail) == len(dashes):
		return b[:i], i + len(dashes), false
	case final:
		return nil, len(b), false
	}
	return nil, 0, true
}

func labelByte(c byte) bool {
	return armour[c] && c != '=' || c == ' ' || c == '%' || c == '.' || c == '_'
}

// armour is the set of base64 characters and padding.
var armour = func() (set [256]bool) {
	for _, c := range []byte(stdAlphabet + "=") {
		set[c] = true
	}
	return set
}()

// readBody reads an open block. It returns true at the end of the block, and false at the end of b.
func (k *keyBlock) readBody(b []byte, final bool, add func(span)) bool {
	for ; k.pos < len(b); k.pos++ {
		k.splitLong(add)
		if k.pos-k.good > k.maxTail() {
			k.endUnclosed(add)
			return true
		}
		c := b[k.pos]
		if c == '-' {
			over, open := k.checkMarks(b, final, add)
			if over || open {
				return over
			}
		}
		if armour[c] && !(k.escape && (c == 'n' || c == 'r' || c == 't')) {
			k.noteKeyByte()
		} else {
			k.noteOtherByte(b, c)
		}
	}
	if !final {
		return false
	}
	k.endRun(b, '\n')
	k.endUnclosed(add)
	return true
}

// maxTail returns how far the block may continue after the last certain part of the key.
func (k *keyBlock) maxTail() int {
	if k.sure {
		return slack
	}
	return headers
}

// noteKeyByte processes one base64 character.
func (k *keyBlock) noteKeyByte() {
	if k.run == 0 {
		k.anchor = k.fresh
	}
	k.run++
	k.any, k.fresh, k.escape = true, false, false
	if k.run >= longRun || k.anchor && k.run >= freshRun {
		k.sure, k.good = true, k.pos+1
	}
}

// noteOtherByte processes any other character. After a line end, the next word is at the start of a line; decoration
// does not change that.
func (k *keyBlock) noteOtherByte(b []byte, c byte) {
	k.endRun(b, c)
	line := c == '\n' || c == '\r' || k.escape && (c == 'n' || c == 'r')
	switch {
	case line:
		k.fresh, k.quote = true, false
	case c == '"' || c == '\'': // the second one opens another string
		k.fresh = k.fresh && !k.quote
		k.quote = true
	}
	k.escape = c == '\\'
}

// endRun decides on a run that is too short to be key by itself. After a long run, it is the last line of the key if it
// has padding or is alone on its line.
func (k *keyBlock) endRun(b []byte, next byte) {
	alone := k.anchor && next != ' ' && next != '\t' && next != ':'
	if k.run > 0 && k.sure && (alone || b[k.pos-1] == '=') {
		k.good = k.pos
	}
	k.run = 0
}

// checkMarks checks for the END of this block or the BEGIN of another.
func (k *keyBlock) checkMarks(b []byte, final bool, add func(span)) (over, open bool) {
	rest := b[k.pos:]
	if !final && (len(rest) < len(endMark) && string(rest) == endMark[:len(rest)] ||
		len(rest) < len(beginMark) && string(rest) == beginMark[:len(rest)]) {
		return false, true
	}
	if bytes.HasPrefix(rest, []byte(beginMark)) {
		k.endRun(b, '\n')
		k.endUnclosed(add)
		return true, false
	}
	if !bytes.HasPrefix(rest, []byte(endMark)) {
		return false, false
	}
	_, n, open := readLabel(rest[len(endMark):], final)
	if open {
		return false, true
	}
	k.pos += len(endMark) + n
	if k.any {
		add(span{k.start, k.pos, keyCategory})
	}
	k.inside = false
	return true, false
}

// splitLong cuts a piece from a block that has reached its limit. The rest stays in the block.
func (k *keyBlock) splitLong(add func(span)) {
	if k.pos-k.start >= maxBlock && k.good > k.start {
		add(span{k.start, k.good, keyCategory})
		k.start = k.good
	}
}

// endUnclosed ends a block that has no END.
func (k *keyBlock) endUnclosed(add func(span)) {
	if k.sure && k.good > k.start {
		add(span{k.start, k.good, keyCategory})
	}
	k.inside = false
}

const keyCategory = "PRIVATE_KEY"
