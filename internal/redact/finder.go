package redact

const (
	maxValue = 4 << 10  // bytes of a value, and of a token, that are held back; a longer one is hidden in pieces
	maxWord  = 16 << 10 // bytes of a word that are held back
	look     = 512      // bytes before a place on which what is found there may depend
	lineLook = 128      // of them, what of the line counts
)

// finder finds what is secret by its form or by what stands before it, in one pass over the words of a
// text. It never looks back further than look, and looks ahead only as far as a bound that is the same
// however the text comes: when the bytes do not suffice it says from where on to hold. So what it finds
// does not depend on how the text is split.
type finder struct {
	t      *tables
	next   int   // first byte that is not decided
	open   int   // how far the open word at next was read; zero if none
	kinds  class // of its bytes
	last   extent
	ask    ask // of the last word
	sep    separator
	scheme bool      // the last word was the name of an authentication scheme of its own: Authorization: GenieKey …
	tail   Category  // a value was cut at its bound: what follows directly belongs to it
	blob   int       // up to here there is base64 that says nothing
	block  yamlBlock // that next is in
	armour bool      // inside the armour of something that is not private: a certificate, a signature
	bare   dry       // values without quotes
	sums   dry       // hashes
	where  dry       // connection strings of Azure
	depth  int       // layers of encoding around this text
}

// dry is how far was looked for something, from several places, in vain. It bounds how often the same text is read:
// key=key=key=…
type dry struct{ from, to, tries int }

// maxDry is how often the same text is read.
const maxDry = 4

func (d *dry) over(i int) bool { return i < d.to && d.tries > maxDry }

// none says that there was nothing between i and end. It may be said twice of the same place, at which the finder
// had to wait for something else.
func (d *dry) none(i, end int) {
	switch {
	case i >= d.to:
		d.tries = 0
	case i > d.from:
		d.tries++
	}
	d.from, d.to = i, max(d.to, end)
}

func (d *dry) shift(n int) {
	d.from -= n
	d.to -= n
}

type extent struct{ start, end int }

// name returns the last bytes of a word that is a name: of one that is longer, not all is there to be looked at.
func (e extent) name(b []byte) []byte { return b[max(e.start, e.end-maxName):e.end] }

func (f *finder) shift(n int) {
	f.next -= n
	f.open = max(0, f.open-n)
	f.last.start -= n
	f.last.end -= n
	f.blob -= n
	f.block.judged -= n
	f.bare.shift(n)
	f.sums.shift(n)
	f.where.shift(n)
}

// scan looks on and calls add for each find. It returns the first place that is not decided.
func (f *finder) scan(b []byte, final bool, add func(span)) int {
	for f.next < len(b) {
		if f.inBlock(b) {
			if f.blockLine(b, final, add) {
				return f.next
			}
			continue
		}
		if f.ask == nothing && f.tail == "" && f.open <= f.next && f.block.ask == nothing {
			if f.skim(b); f.next == len(b) {
				break
			}
		}
		i := f.next
		if f.tail != "" {
			if f.rest(b, final, add) {
				return i
			}
			continue
		}
		c := classes[b[i]]
		if c&word == 0 {
			if !f.between(b, i, c, final, add) {
				return f.next
			}
			continue
		}
		if !f.word(b, i, final, add) {
			return f.next
		}
	}
	return f.next
}

// skim goes over what is dull: short words that ask for nothing, with nothing between them that could make
// something of them. Most of any text is like that.
func (f *finder) skim(b []byte) {
	i, sep, last := f.next, f.sep, f.last
	for i < len(b) {
		c := classes[b[i]]
		if c&word == 0 {
			if c&ascend != 0 || c&colon != 0 && !lone(b, i) {
				break
			}
			if c&quote != 0 {
				sep.opened = b[i]
			}
			sep.note(c)
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
		if j == len(b) || j-i == minLong || !f.dull(b, i, j, kinds) {
			break
		}
		last, sep, i = extent{i, j}, separator{}, j
	}
	f.next, f.sep, f.last, f.open = i, sep, last, 0
}

// minLong is the length in bytes from which on a word could be a token.
const minLong = 10

// between takes a byte that is in no word. It returns false to wait.
func (f *finder) between(b []byte, i int, c class, final bool, add func(span)) bool {
	if c&(ascend|colon) != 0 {
		if n, open := f.begins(b, i, final, add); open {
			return false
		} else if n > 0 {
			f.next, f.ask, f.sep = i+n, nothing, separator{}
			return true
		}
	}
	if f.ask != nothing && (b[i] == '@' || b[i] == '$') && f.sep.operated() && f.sep.opened == 0 { // @"…" of C#
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
	if f.ask != nothing && !f.separate(b, i, c) {
		if f.asked() {
			end, open := f.value(b, i, final, add)
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
	f.sep.note(c)
	f.next++
	return true
}

// rest hides what follows a value that was cut, in pieces. It returns true to wait.
func (f *finder) rest(b []byte, final bool, add func(span)) bool {
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
