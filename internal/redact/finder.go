package redact

const (
	maxValue = 4 << 10  // bytes of a value or a token that are held back; the rest of a longer one is hidden in pieces
	maxWord  = 16 << 10 // bytes of a word that are held back
	look     = 512      // bytes before an offset that can affect a find there
	lineLook = 128      // bytes of the same line before an offset that can affect a find there
)

// finder finds secrets by their format or by the text before them, in one pass over the words of a text. It never looks
// back more than look bytes. It looks ahead only up to a limit that does not depend on how the text arrives; if the
// bytes do not suffice, it reports from where on they must be held. So its finds do not depend on how the text is
// split.
type finder struct {
	t      *tables
	next   int   // first undecided byte
	open   int   // end of the part read of the open word at next, or zero
	kinds  class // classes of its bytes
	last   byteRange
	ask    valueKind // of the last word
	sep    separator
	scheme bool           // the last word was a service's own authentication scheme: Authorization: GenieKey …
	tail   Category       // if not "", a value was cut at its limit and continues at next
	blob   int            // end of base64 text that has no find
	block  yamlBlock      // the block that contains next
	armour bool           // inside armour that is not private, such as a certificate or a signature
	bare   failedSearches // unquoted values
	sums   failedSearches // hashes
	where  failedSearches // connection strings of Azure
	depth  int            // layers of encoding around this text
}

// failedSearches records searches for a construct that started at several offsets and found nothing. It limits how
// often the same text is read, for example in key=key=key=…
type failedSearches struct{ from, to, tries int }

// maxDry is how often the same text may be read.
const maxDry = 4

func (d *failedSearches) isExhausted(i int) bool { return i < d.to && d.tries > maxDry }

// noteMiss records that nothing was found between i and end. It may be called twice for the same offset, if the finder
// had to wait there for another reason.
func (d *failedSearches) noteMiss(i, end int) {
	switch {
	case i >= d.to:
		d.tries = 0
	case i > d.from:
		d.tries++
	}
	d.from, d.to = i, max(d.to, end)
}

func (d *failedSearches) shiftOffsets(n int) {
	d.from -= n
	d.to -= n
}

type byteRange struct{ start, end int }

// nameBytes returns the end of a word that is a name. If the word is longer than a name, its start may no longer be
// available.
func (e byteRange) nameBytes(b []byte) []byte { return b[max(e.start, e.end-maxName):e.end] }

func (f *finder) shiftOffsets(n int) {
	f.next -= n
	f.open = max(0, f.open-n)
	f.last.start -= n
	f.last.end -= n
	f.blob -= n
	f.block.judged -= n
	f.bare.shiftOffsets(n)
	f.sums.shiftOffsets(n)
	f.where.shiftOffsets(n)
}

// scan continues the search and calls add for each find. It returns the first undecided offset.
func (f *finder) scan(b []byte, final bool, add func(span)) int {
	for f.next < len(b) {
		if f.inBlock(b) {
			if f.blockLine(b, final, add) {
				return f.next
			}
			continue
		}
		if f.ask == nothing && f.tail == "" && f.open <= f.next && f.block.ask == nothing {
			if f.skipPlain(b); f.next == len(b) {
				break
			}
		}
		i := f.next
		if f.tail != "" {
			if f.hideRest(b, final, add) {
				return i
			}
			continue
		}
		c := classes[b[i]]
		if c&word == 0 {
			if !f.handleNonWord(b, i, c, final, add) {
				return f.next
			}
			continue
		}
		if !f.handleWord(b, i, final, add) {
			return f.next
		}
	}
	return f.next
}

// skipPlain skips plain text: short words that expect no value, with only bytes between them that cannot start a find.
// Most text is like that.
func (f *finder) skipPlain(b []byte) {
	i, sep, last := f.next, f.sep, f.last
	for i < len(b) {
		c := classes[b[i]]
		if c&word == 0 {
			if c&ascend != 0 || c&colon != 0 && !isLoneColon(b, i) {
				break
			}
			if c&quote != 0 {
				sep.opened = b[i]
			}
			sep.noteByte(c)
			i++
			continue
		}
		j, kinds := i, class(0)
		for limit := min(len(b), i+minLong); j < limit; j++ {
			k := classes[b[j]]
			if k&word == 0 {
				break
			}
			kinds |= k
		}
		if j == len(b) || j-i == minLong || !f.isPlainWord(b, i, j, kinds) {
			break
		}
		last, sep, i = byteRange{i, j}, separator{}, j
	}
	f.next, f.sep, f.last, f.open = i, sep, last, 0
}

// minLong is the minimum length of a word that could be a token, in bytes.
const minLong = 10

// handleNonWord processes a byte outside any word. It returns false if it must wait for more bytes.
func (f *finder) handleNonWord(b []byte, i int, c class, final bool, add func(span)) bool {
	if c&(ascend|colon) != 0 {
		if n, open := f.findConstruct(b, i, final, add); open {
			return false
		} else if n > 0 {
			f.next, f.ask, f.sep = i+n, nothing, separator{}
			return true
		}
	}
	if f.ask != nothing && (b[i] == '@' || b[i] == '$') && f.sep.separatesValue() && f.sep.opened == 0 { // @"…" of C#
		if i+1 == len(b) && !final {
			return false
		}
		if i+1 < len(b) && classes[b[i+1]]&quote != 0 {
			f.sep.n++
			f.next++
			return true
		}
	}
	if f.ask != nothing && (b[i] == '|' || b[i] == '>') {
		if begins, open := f.beginsBlock(b, i, final); open {
			return false
		} else if begins {
			return true
		}
	}
	if f.ask != nothing && !f.extendSeparator(b, i, c) {
		if f.isValueNext() {
			end, open := f.decideValue(b, i, final, add)
			if open {
				return false
			}
			if end > i {
				f.next = end
				return true
			}
		}
		f.ask = nothing
	}
	if f.ask == nothing && c&quote != 0 {
		f.sep.opened = b[i]
	}
	f.sep.noteByte(c)
	f.next++
	return true
}

// hideRest hides the continuation of a value that was cut, in pieces. It returns true if it must wait for more bytes.
func (f *finder) hideRest(b []byte, final bool, add func(span)) bool {
	i := f.next
	j := i
	for j < len(b) && j-i < maxValue && classes[b[j]]&(gap|quote|stop) == 0 {
		j++
	}
	if j == len(b) && j-i < maxValue && !final {
		return true
	}
	if j > i {
		add(span{i, j, f.tail})
	}
	if j-i < maxValue {
		f.tail = ""
	}
	f.next = j
	return false
}
