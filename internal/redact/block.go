package redact

import "bytes"

const (
	beginMark = "-----BEGIN"
	endMark   = "-----END"
	dashes    = "-----"

	maxLabel = 64       // bytes between a mark and its closing dashes
	maxBlock = 64 << 10 // bytes of an open block that are held back
	slack    = 256      // bytes after the last certain piece of key within which its END may stand
	headers  = 8 << 10  // bytes before the first certain piece: armour headers may be many (RFC 4880, section 6.2)
	longRun  = 32       // base64 characters that are key wherever they stand in a block
	freshRun = 16       // the same at the beginning of a line
)

// block finds private keys in text armour (RFC 7468; RFC 4880, section 6.2; OpenSSH's own): a BEGIN line
// whose label holds PRIVATE and KEY, and what follows it. Line ends may be of any kind, escaped ones too,
// and lines may carry indents, quotes, numbers or time stamps:
//
//   - up to an END within reach, all of it, if there is any word between;
//   - without one (the text was cut), up to the last character that is certainly key, which is nothing
//     for a BEGIN line that is only spoken of;
//   - beyond 64 KiB the block is cut into pieces, each a find of its own, so that an endless one is
//     hidden without being held.
//
// It is a machine over single bytes, so that it does not matter how a text is split. Offsets count from
// the start of the stream's buffer.
type block struct {
	pos    int  // first byte not looked at
	inside bool // after a BEGIN line
	start  int  // of the open block, or of the piece after the last cut
	good   int  // end of what is certainly key
	run    int  // base64 characters in a row up to pos
	anchor bool // the run stands at the beginning of a line
	fresh  bool // nothing but decoration since the line began, with one quote at most
	quote  bool // that quote was seen
	escape bool // after a backslash
	any    bool // some word was seen
	sure   bool // a run long enough was seen
}

// scan looks on and calls add for each find. It returns the first place that is not decided.
func (k *block) scan(b []byte, final bool, add func(span)) int {
	for {
		if !k.inside && !k.header(b, final) {
			return k.pos
		}
		if !k.body(b, final, add) {
			return k.start
		}
	}
}

func (k *block) shift(n int) {
	k.pos -= n
	k.start -= n
	k.good -= n
}

// header finds the next BEGIN line of a private key and steps inside. When there is none, pos is the
// first place where one could still begin.
func (k *block) header(b []byte, final bool) bool {
	for {
		i := bytes.Index(b[k.pos:], []byte(beginMark))
		if i < 0 {
			k.pos = len(b) - overlap(b[k.pos:], beginMark, final)
			return false
		}
		at := k.pos + i
		label, n, open := readLabel(b[at+len(beginMark):], final)
		if open {
			k.pos = at
			return false
		}
		k.pos = at + len(beginMark) + n
		if private := bytes.Index(label, []byte("PRIVATE")); private >= 0 && bytes.Contains(label[private:], []byte("KEY")) {
			*k = block{pos: k.pos, inside: true, start: at, good: k.pos, fresh: true}
			return true
		}
	}
}

// overlap returns how many of the last bytes of b could begin mark.
func overlap(b []byte, mark string, final bool) int {
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

// readLabel reads a label and its closing dashes: n is zero if there is none. Spaces may be
// percent-encoded or plus signs. The label of a final text may be cut.
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

// armour holds for base64 and its padding.
var armour = func() (set [256]bool) {
	for _, c := range []byte(stdAlphabet + "=") {
		set[c] = true
	}
	return set
}()

// body walks through an open block. It returns true when the block is over, false at the end of b.
func (k *block) body(b []byte, final bool, add func(span)) bool {
	for ; k.pos < len(b); k.pos++ {
		k.split(add)
		if k.pos-k.good > k.reach() {
			k.cut(add)
			return true
		}
		c := b[k.pos]
		if c == '-' {
			over, open := k.dash(b, final, add)
			if over || open {
				return over
			}
		}
		if armour[c] && !(k.escape && (c == 'n' || c == 'r' || c == 't')) {
			k.word()
		} else {
			k.between(b, c)
		}
	}
	if !final {
		return false
	}
	k.endRun(b, '\n')
	k.cut(add)
	return true
}

// reach is how far from what is certainly key the block may go on.
func (k *block) reach() int {
	if k.sure {
		return slack
	}
	return headers
}

// word takes one character of base64.
func (k *block) word() {
	if k.run == 0 {
		k.anchor = k.fresh
	}
	k.run++
	k.any, k.fresh, k.escape = true, false, false
	if k.run >= longRun || k.anchor && k.run >= freshRun {
		k.sure, k.good = true, k.pos+1
	}
}

// between takes one character of anything else: line ends make the next word stand at a beginning,
// decoration leaves it where it was.
func (k *block) between(b []byte, c byte) {
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

// endRun decides on a run too short to be key by itself: after a long one it is the last line when
// it is padded, or alone in its line.
func (k *block) endRun(b []byte, next byte) {
	alone := k.anchor && next != ' ' && next != '\t' && next != ':'
	if k.run > 0 && k.sure && (alone || b[k.pos-1] == '=') {
		k.good = k.pos
	}
	k.run = 0
}

// dash looks for the END of this block, or the BEGIN of another one.
func (k *block) dash(b []byte, final bool, add func(span)) (over, open bool) {
	rest := b[k.pos:]
	if !final && (len(rest) < len(endMark) && string(rest) == endMark[:len(rest)] ||
		len(rest) < len(beginMark) && string(rest) == beginMark[:len(rest)]) {
		return false, true
	}
	if bytes.HasPrefix(rest, []byte(beginMark)) {
		k.endRun(b, '\n')
		k.cut(add)
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

// split cuts a piece off a block that has grown to its bound. What follows stays inside.
func (k *block) split(add func(span)) {
	if k.pos-k.start >= maxBlock && k.good > k.start {
		add(span{k.start, k.good, keyCategory})
		k.start = k.good
	}
}

// cut ends a block that has no END.
func (k *block) cut(add func(span)) {
	if k.sure && k.good > k.start {
		add(span{k.start, k.good, keyCategory})
	}
	k.inside = false
}

const keyCategory = "PRIVATE_KEY"
