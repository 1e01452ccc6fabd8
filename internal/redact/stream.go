package redact

import (
	"cmp"
	"slices"
)

// span is a find: the bytes from start to end.
type span struct {
	start, end int
	category   string
}

// stream redacts one text that arrives in pieces. Both finders say up to where they have decided; what
// lies before the lesser of the two goes out, what lies behind is held. So the output does not depend on the
// pieces. Offsets count from the start of b.
type stream struct {
	t     *Table
	b     []byte
	done  int  // bytes of b that are out
	cover span // the find that reaches furthest of those that begin before done
	next  int  // first place that the index has not decided
	size  int  // of the index when it looked
	keys  block
	finds []span // begin at or after done, or overlap it
	out   []byte // what feed has made
	count int    // tokens in it, and in all before
}

// feed looks at what was appended to b, the last piece if final, and appends to out what is decided.
func (s *stream) feed(final bool) {
	hold := min(s.search(final), s.keys.scan(s.b, final, s.add))
	slices.SortFunc(s.finds, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	s.emit(hold, final)
	s.compact()
}

func (s *stream) add(f span) { s.finds = append(s.finds, f) }

// search runs the index. What was learned since the last piece is looked for in all that is still held.
func (s *stream) search(final bool) int {
	s.t.mu.RLock()
	defer s.t.mu.RUnlock()
	if s.size != s.t.index.size {
		s.size, s.next = s.t.index.size, 0
	}
	s.next = s.t.index.scan(s.b, s.next, final, s.add)
	return s.next
}

// emit writes what lies before hold, all of which is decided.
func (s *stream) emit(hold int, final bool) {
	for s.done < hold {
		s.drop()
		end := hold
		if len(s.finds) > 0 {
			end = min(end, s.finds[0].start)
		}
		switch {
		case len(s.finds) > 0 && s.finds[0].start == s.done:
			s.hide(s.finds[0].end, s.finds[0].category)
		case s.cover.end > end && end == hold:
			return // a find yet to come may begin inside the cover
		case s.cover.end > s.done:
			s.hide(min(s.cover.end, end), s.cover.category)
		default:
			wait := 0
			if end == hold && !final {
				wait = s.straddle(end)
			}
			s.out = escape(s.out, s.b[s.done:end-wait])
			s.done = end - wait
			if wait > 0 {
				return
			}
		}
	}
}

// drop forgets the finds that begin before done, but for what they cover.
func (s *stream) drop() {
	for len(s.finds) > 0 && s.finds[0].start < s.done {
		s.reach(s.finds[0])
		s.finds = s.finds[1:]
	}
}

func (s *stream) reach(f span) {
	if f.end > s.cover.end {
		s.cover = f
	}
}

// hide writes a token for the bytes up to end.
func (s *stream) hide(end int, category string) {
	s.out = append(s.out, s.t.token(category, s.b[s.done:end])...)
	s.count++
	s.done = end
}

// straddle returns how many bytes before end belong to a mark that ends behind it, or may do so. They
// wait: a find could still begin inside the mark, which then is none.
func (s *stream) straddle(end int) int {
	for i := max(s.done, end-len(mark)+1); i < end; i++ {
		n := min(len(s.b)-i, len(mark))
		if string(s.b[i:i+n]) == mark[:n] {
			return end - i
		}
	}
	return 0
}

// compact frees what nobody looks at any more, once that is half of the buffer: so each byte is moved
// a bounded number of times.
func (s *stream) compact() {
	low := min(s.done, s.next, s.keys.pos)
	if s.keys.inside { // a find may have carried done beyond its start
		low = min(low, s.keys.start)
	}
	if low < len(s.b)/2 {
		return
	}
	s.b = s.b[:copy(s.b, s.b[low:])]
	s.done -= low
	s.next -= low
	s.cover.start -= low
	s.cover.end -= low
	s.keys.shift(low)
	for i := range s.finds {
		s.finds[i].start -= low
		s.finds[i].end -= low
	}
}
