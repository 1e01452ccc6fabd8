package redact

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// span is a find: the bytes from start to end.
type span struct {
	start, end int
	category   string
}

// stream redacts one text that arrives in pieces. Each finder reports the offset up to which it has decided. The text
// before the lowest of these is written; the rest is held. So the output does not depend on the pieces. Finders use
// offsets in the view, all other code uses offsets in the text; see view.
type stream struct {
	t     *Table
	v     view
	done  int  // bytes of the held text that are written
	gone  int  // bytes of the text that are no longer held
	cover span // the find that ends last of those that begin before done
	next  int  // first offset that the index has not decided
	size  int  // size of the index at its last search
	keys  keyBlock
	words *finder        // nil if there are no rules
	signs *encodedFinder // nil if there are no rules
	lines *lines         // nil if there are no custom patterns
	finds []span         // begin at or after done, or overlap it
	out   []byte         // output of feed
	count int            // number of tokens written so far
	marks int            // number of marks escaped so far
	tell  func(Finding)
	keep  bool // the text was already redacted: see [Table.Again]
	shows bool // pseudonyms stay: see [Table.ForPerson]
	line  int  // newlines before done, counted only if tell is set
}

// newStream returns a stream that searches as the table's rules require.
func (t *Table) newStream() *stream {
	s := &stream{t: t}
	if t.rules != nil {
		s.words, s.signs = &finder{t: builtIn()}, &encodedFinder{t: builtIn()}
		if len(t.rules.patterns) > 0 {
			s.lines = &lines{rules: t.rules}
		}
	}
	return s
}

// feedPiece searches p, the last piece if final is set, and appends the decided text to out.
func (s *stream) feedPiece(p []byte, final bool) {
	s.v.appendText(p, final)
	hold := min(s.searchIndex(final), s.keys.scan(s.v.b, final, s.addSpan))
	if s.words != nil {
		hold = min(hold, s.words.scan(s.v.b, final, s.addRuled), s.signs.scan(s.v.b, final, s.addRuled))
	}
	if s.lines != nil {
		hold = min(hold, s.lines.scan(s.v.b, final, s.addRuled))
	}
	if s.keep {
		s.spareTokens()
	}
	slices.SortFunc(s.finds, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), cmp.Compare(a.category, b.category))
	})
	if final {
		s.emitUntil(len(s.v.raw), true)
	} else {
		s.emitUntil(s.v.rawOffset(hold), false)
	}
	s.compact()
}

func (s *stream) addSpan(f span) {
	if s.shows && Pseudonym(f.category) { // a secret inside it is a find of its own
		return
	}
	s.finds = append(s.finds, span{s.v.rawOffset(f.start), s.v.rawEnd(f.end), f.category})
}

// addRuled adds a find unless the rules exempt it.
func (s *stream) addRuled(f span) {
	if s.t.rules.isExempt(f.category, s.v.b[f.start:f.end]) {
		return
	}
	s.addSpan(f)
}

// searchIndex runs the index. If secrets were learned since the last piece, it searches all held text again.
func (s *stream) searchIndex(final bool) int {
	s.t.mu.RLock()
	defer s.t.mu.RUnlock()
	if s.size != s.t.index.size {
		s.size, s.next = s.t.index.size, 0
	}
	s.next = s.t.index.scan(s.v.b, s.next, final, s.addSpan)
	return s.next
}

// emitUntil writes the text before hold, all of which is decided.
func (s *stream) emitUntil(hold int, final bool) {
	for s.done < hold {
		s.dropPassed()
		end := hold
		if len(s.finds) > 0 {
			end = min(end, s.finds[0].start)
		}
		switch {
		case len(s.finds) > 0 && s.finds[0].start == s.done:
			s.hideUntil(s.finds[0].end, s.finds[0].category)
		case s.cover.end > end && end == hold:
			return // a later find may begin inside the cover
		case s.cover.end > s.done:
			s.hideUntil(min(s.cover.end, end), s.cover.category)
		default:
			wait := 0
			if end == hold && !final {
				wait = s.straddlingLen(end)
			}
			s.writePlain(s.v.raw[s.done : end-wait])
			s.advanceTo(end - wait)
			if wait > 0 {
				return
			}
		}
	}
}

// spareTokens removes tokens and escapes from the finds, so that nothing is hidden twice. The whole text must have been
// fed at once.
func (s *stream) spareTokens() {
	var all []byteRange
	for i := 0; i < len(s.v.raw); {
		n := bytes.Index(s.v.raw[i:], []byte(mark))
		if n < 0 {
			break
		}
		i += n
		kept := s.t.keptLen(s.v.raw[i:])
		if kept > 0 {
			all = append(all, byteRange{i, i + kept})
		}
		i += max(kept, 1)
	}
	var finds []span
	for _, f := range s.finds {
		j, _ := slices.BinarySearchFunc(all, f.start+1, func(e byteRange, at int) int { return cmp.Compare(e.end, at) })
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

// writePlain writes text outside finds and escapes every mark in it. If the text was already redacted, tokens and
// escapes stay.
func (s *stream) writePlain(data []byte) {
	for {
		i := bytes.Index(data, []byte(mark))
		if i < 0 {
			s.out = append(s.out, data...)
			return
		}
		s.out = append(s.out, data[:i]...)
		data = data[i:]
		n, as := len(mark), escaped
		if kept := s.keptLen(data); kept > 0 {
			n, as = kept, string(data[:kept])
		} else {
			s.marks++
		}
		s.out = append(s.out, as...)
		data = data[n:]
	}
}

// keptLen returns how much of data, which begins with a mark, stays because it was already redacted.
func (s *stream) keptLen(data []byte) int {
	if !s.keep {
		return 0
	}
	return s.t.keptLen(data)
}

// dropPassed removes the finds that begin before done and records the bytes that they cover.
func (s *stream) dropPassed() {
	for len(s.finds) > 0 && s.finds[0].start < s.done {
		s.extendCover(s.finds[0])
		s.finds = s.finds[1:]
	}
}

func (s *stream) extendCover(f span) {
	if f.end > s.cover.end {
		s.cover = f
	}
}

// hideUntil writes a token for the bytes up to end.
func (s *stream) hideUntil(end int, category string) {
	token := s.t.tokenFor(category, s.v.raw[s.done:end])
	s.out = append(s.out, token...)
	s.count++
	if s.tell != nil {
		s.tell(Finding{Category: category, Start: s.gone + s.done, End: s.gone + end, Line: s.line + 1, Token: token})
	}
	s.advanceTo(end)
}

func (s *stream) advanceTo(end int) {
	if s.tell != nil {
		s.line += bytes.Count(s.v.raw[s.done:end], []byte{'\n'})
	}
	s.done = end
}

// straddlingLen returns how many bytes before end belong, or may belong, to a mark that ends after it. They must wait,
// because a find could still begin inside the mark, which is then not a mark.
func (s *stream) straddlingLen(end int) int {
	for i := max(s.done, end-len(mark)+1); i < end; i++ {
		n := min(len(s.v.raw)-i, len(mark))
		if string(s.v.raw[i:i+n]) == mark[:n] {
			return end - i
		}
	}
	return 0
}

// compact frees text that is no longer needed, once it is half of the buffer. Each byte is therefore moved a bounded
// number of times.
func (s *stream) compact() {
	low := min(s.next, s.keys.pos)
	if s.keys.inside { // a find may have moved done beyond its start
		low = min(low, s.keys.start)
	}
	if s.words != nil {
		low = min(low, max(0, s.words.next-look), max(0, s.signs.next-s.signs.neededBefore()))
	}
	if s.lines != nil {
		low = min(low, s.lines.start)
	}
	if low < len(s.v.b)/2 || low == 0 {
		return
	}
	low = min(low, s.v.viewOffset(s.done))
	if low < len(s.v.b)/2 {
		return
	}
	n := s.v.dropPrefix(low, s.done)
	s.gone += n
	s.done -= n
	s.cover.start -= n
	s.cover.end -= n
	for i := range s.finds {
		s.finds[i].start -= n
		s.finds[i].end -= n
	}
	s.next -= low
	s.keys.shiftOffsets(low)
	if s.words != nil {
		s.words.shiftOffsets(low)
		s.signs.shiftOffsets(low)
	}
	if s.lines != nil {
		s.lines.start -= low
	}
}

// Writer redacts all text that is written to it, however it is split, and passes it on. It holds back text that could
// be the beginning of a secret until that is decided; the package comment gives the cases and limits. It must not be
// used by several goroutines.
type Writer struct {
	w   io.Writer
	s   *stream
	err error // the first error; nothing is written after it
}

// piece limits the bytes that one step of Write copies.
const piece = 64 << 10

// Writer returns a Writer that writes to w. The caller must Close it.
func (t *Table) Writer(w io.Writer) *Writer { return &Writer{w: w, s: t.newStream()} }

// Tell makes w call f for each find, in order, when the find is written. Offsets count from the first byte written to
// w.
func (w *Writer) Tell(f func(Finding)) { w.s.tell = f }

// Format keeps the held text out of fmt and log/slog.
func (w *Writer) Format(f fmt.State, _ rune) { io.WriteString(f, "redact.Writer") }

// Write processes p. If the underlying writer returns an error, every later call returns it too.
func (w *Writer) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) && w.err == nil {
		next := min(n+piece, len(p))
		w.writePiece(p[n:next], false)
		n = next
	}
	if w.err != nil {
		return 0, w.err
	}
	return n, nil
}

// Close writes the held text, redacted as the end of the text. It does not close the underlying writer. A Write after
// Close returns an error. If Close is called again, it returns the same result.
func (w *Writer) Close() error {
	if w.err == nil {
		w.writePiece(nil, true)
	}
	if w.err == nil {
		w.err = errClosed
	}
	if w.err == errClosed {
		return nil
	}
	return w.err
}

var errClosed = fmt.Errorf("the redaction of this stream has ended: %w", io.ErrClosedPipe)

// Count returns the number of tokens created so far.
func (w *Writer) Count() int { return w.s.count }

// Escapes returns how many literal marks were escaped so far. Only [Table.Restore] reverses these escapes.
func (w *Writer) Escapes() int { return w.s.marks }

// Escapes counts the escaped marks in a redacted text.
func Escapes(s string) int { return strings.Count(s, escaped) }

func (w *Writer) writePiece(p []byte, final bool) {
	w.s.out = w.s.out[:0]
	w.s.feedPiece(p, final)
	if len(w.s.out) == 0 {
		return
	}
	n, err := w.w.Write(w.s.out)
	if err == nil && n < len(w.s.out) {
		err = io.ErrShortWrite
	}
	w.err = err
}
