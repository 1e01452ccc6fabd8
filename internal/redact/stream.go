package redact

import (
	"bytes"
	"cmp"
	"slices"
)

// span is a find: the bytes from start to end.
type span struct {
	start, end int
	category   string
}

// stream redacts one text that arrives in pieces. Each finder says up to where it has decided; what lies
// before the least of these goes out, what lies behind is held. So the output does not depend on the pieces.
// Finders count in bytes of what is looked at, everything else in bytes of the text; see view.
type stream struct {
	t     *Table
	v     view
	done  int  // bytes of the text held that are out
	gone  int  // bytes of the text that are no longer held
	cover span // the find that reaches furthest of those that begin before done
	next  int  // first place that the index has not decided
	size  int  // of the index when it looked
	keys  block
	words *finder  // nil without rules
	signs *encoded // nil without rules
	lines *lines   // nil without custom patterns
	finds []span   // begin at or after done, or overlap it
	out   []byte   // what feed has made
	count int      // tokens in it, and in all before
	marks int      // escaped ones, likewise
	tell  func(Finding)
	keep  bool // the text was redacted already: see [Table.Again]
	line  int  // newlines before done, counted only for tell
}

// newStream returns one that looks for all that the table's rules say.
func (t *Table) newStream() *stream {
	s := &stream{t: t}
	if t.rules != nil {
		s.words, s.signs = &finder{t: builtIn()}, &encoded{t: builtIn()}
		if len(t.rules.patterns) > 0 {
			s.lines = &lines{rules: t.rules}
		}
	}
	return s
}

// feed looks at p, the last piece if final, and appends to out what is decided.
func (s *stream) feed(p []byte, final bool) {
	s.v.take(p, final)
	hold := min(s.search(final), s.keys.scan(s.v.b, final, s.add))
	if s.words != nil {
		hold = min(hold, s.words.scan(s.v.b, final, s.addRuled), s.signs.scan(s.v.b, final, s.addRuled))
	}
	if s.lines != nil {
		hold = min(hold, s.lines.scan(s.v.b, final, s.addRuled))
	}
	if s.keep {
		s.spare()
	}
	slices.SortFunc(s.finds, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), cmp.Compare(a.category, b.category))
	})
	if final {
		s.emit(len(s.v.raw), true)
	} else {
		s.emit(s.v.from(hold), false)
	}
	s.compact()
}

func (s *stream) add(f span) {
	s.finds = append(s.finds, span{s.v.from(f.start), s.v.to(f.end), f.category})
}

// addRuled takes the finds that the rules may let pass.
func (s *stream) addRuled(f span) {
	if s.t.rules.passes(f.category, s.v.b[f.start:f.end]) {
		return
	}
	s.add(f)
}

// search runs the index. What was learned since the last piece is looked for in all that is still held.
func (s *stream) search(final bool) int {
	s.t.mu.RLock()
	defer s.t.mu.RUnlock()
	if s.size != s.t.index.size {
		s.size, s.next = s.t.index.size, 0
	}
	s.next = s.t.index.scan(s.v.b, s.next, final, s.add)
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
			s.pass(s.v.raw[s.done : end-wait])
			s.advance(end - wait)
			if wait > 0 {
				return
			}
		}
	}
}

// spare takes tokens and escapes out of the finds, of a text that is fed as one: nothing is hidden twice.
func (s *stream) spare() {
	var all []extent
	for i := 0; i < len(s.v.raw); {
		n := bytes.Index(s.v.raw[i:], []byte(mark))
		if n < 0 {
			break
		}
		i += n
		kept := s.t.kept(s.v.raw[i:])
		if kept > 0 {
			all = append(all, extent{i, i + kept})
		}
		i += max(kept, 1)
	}
	var finds []span
	for _, f := range s.finds {
		j, _ := slices.BinarySearchFunc(all, f.start+1, func(e extent, at int) int { return cmp.Compare(e.end, at) })
		for ; j < len(all) && all[j].start < f.end; j++ {
			if f.start < all[j].start {
				finds = append(finds, span{f.start, all[j].start, f.category})
			}
			f.start = all[j].end
		}
		if f.start < f.end {
			finds = append(finds, f)
		}
	}
	s.finds = finds
}

// pass writes what is no find, with every mark in it escaped; of a text that was redacted already, not those of tokens
// and escapes.
func (s *stream) pass(data []byte) {
	for {
		i := bytes.Index(data, []byte(mark))
		if i < 0 {
			s.out = append(s.out, data...)
			return
		}
		s.out = append(s.out, data[:i]...)
		data = data[i:]
		n, as := len(mark), escaped
		if kept := s.kept(data); kept > 0 {
			n, as = kept, string(data[:kept])
		} else {
			s.marks++
		}
		s.out = append(s.out, as...)
		data = data[n:]
	}
}

// kept is how much of data, which begins with a mark, stays because it was redacted already.
func (s *stream) kept(data []byte) int {
	if !s.keep {
		return 0
	}
	return s.t.kept(data)
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
	token := s.t.token(category, s.v.raw[s.done:end])
	s.out = append(s.out, token...)
	s.count++
	if s.tell != nil {
		s.tell(Finding{Category: category, Start: s.gone + s.done, End: s.gone + end, Line: s.line + 1, Token: token})
	}
	s.advance(end)
}

func (s *stream) advance(end int) {
	if s.tell != nil {
		s.line += bytes.Count(s.v.raw[s.done:end], []byte{'\n'})
	}
	s.done = end
}

// straddle returns how many bytes before end belong to a mark that ends behind it, or may do so. They
// wait: a find could still begin inside the mark, which then is none.
func (s *stream) straddle(end int) int {
	for i := max(s.done, end-len(mark)+1); i < end; i++ {
		n := min(len(s.v.raw)-i, len(mark))
		if string(s.v.raw[i:i+n]) == mark[:n] {
			return end - i
		}
	}
	return 0
}

// compact frees what nobody looks at any more, once that is half of the buffer: so each byte is moved
// a bounded number of times.
func (s *stream) compact() {
	low := min(s.next, s.keys.pos)
	if s.keys.inside { // a find may have carried done beyond its start
		low = min(low, s.keys.start)
	}
	if s.words != nil {
		low = min(low, max(0, s.words.next-look), max(0, s.signs.next-s.signs.behind()))
	}
	if s.lines != nil {
		low = min(low, s.lines.start)
	}
	if low < len(s.v.b)/2 || low == 0 {
		return
	}
	low = min(low, s.v.at(s.done))
	if low < len(s.v.b)/2 {
		return
	}
	n := s.v.drop(low, s.done)
	s.gone += n
	s.done -= n
	s.cover.start -= n
	s.cover.end -= n
	for i := range s.finds {
		s.finds[i].start -= n
		s.finds[i].end -= n
	}
	s.next -= low
	s.keys.shift(low)
	if s.words != nil {
		s.words.shift(low)
		s.signs.shift(low)
	}
	if s.lines != nil {
		s.lines.start -= low
	}
}
