package bench

import (
	"io"
	"time"

	"bailey/internal/redact"
)

// rateRow is one line of a measurement: millions of bytes per second of CPU time.
type rateRow struct {
	Name string  `json:"name"`
	Rate float64 `json:"mb_per_s"`
	N    int     `json:"found"`
}

// measureRedact redacts text as a stream with a new table of r. For comparison, it runs over the same text a prefilter
// that only searches for the same keywords. cpu must return the CPU time used by this process, so that other work on
// the machine does not count.
func measureRedact(r *redact.Rules, text []byte, cpu func() time.Duration) []rateRow {
	p := newPrefilter(redact.Keywords())
	rate := func(start time.Duration) float64 {
		return float64(len(text)) / 1e6 / max(cpu()-start, time.Microsecond).Seconds()
	}
	start := cpu()
	n := p.countHits(text)
	alone := rateRow{"prefilter", rate(start), n}
	start = cpu()
	w := r.NewTable().Writer(io.Discard)
	for rest := text; len(rest) > 0; {
		k := min(len(rest), 32<<10)
		w.Write(rest[:k])
		rest = rest[k:]
	}
	w.Close()
	return []rateRow{{"redact", rate(start), w.Count()}, alone}
}

// prefilter is an Aho-Corasick automaton (CACM 18, 1975) over keywords. It is the reference for the speed of the
// stream, because most scanners run one before their rules. The finder itself uses words, which is faster.
type prefilter struct {
	class [256]uint8 // of a byte, letters folded; zero for a byte that is in no keyword
	width int
	next  []uint16 // state and class → state
	hit   []bool
}

func newPrefilter(words []string) *prefilter {
	p := &prefilter{width: 1}
	for _, w := range words {
		for _, c := range []byte(w) {
			if p.class[c] == 0 {
				p.class[c] = uint8(p.width)
				if c >= 'a' && c <= 'z' {
					p.class[c-'a'+'A'] = uint8(p.width)
				}
				p.width++
			}
		}
	}
	p.addState()
	for _, w := range words {
		p.addKeyword(w)
	}
	p.linkStates()
	return p
}

func (p *prefilter) addState() uint16 {
	p.next = append(p.next, make([]uint16, p.width)...)
	p.hit = append(p.hit, false)
	return uint16(len(p.hit) - 1)
}

func (p *prefilter) addKeyword(w string) {
	s := uint16(0)
	for _, c := range []byte(w) {
		at := int(s)*p.width + int(p.class[c])
		if p.next[at] == 0 {
			p.next[at] = p.addState()
		}
		s = p.next[at]
	}
	p.hit[s] = true
}

// linkStates converts the tree to an automaton that never goes back in the text.
func (p *prefilter) linkStates() {
	fail := make([]uint16, len(p.hit))
	var queue []uint16
	for c := range p.width {
		if s := p.next[c]; s != 0 {
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		p.hit[s] = p.hit[s] || p.hit[fail[s]]
		for c := range p.width {
			at, back := int(s)*p.width+c, p.next[int(fail[s])*p.width+c]
			if t := p.next[at]; t != 0 {
				fail[t] = back
				queue = append(queue, t)
			} else {
				p.next[at] = back
			}
		}
	}
}

// countHits returns the number of offsets at which a keyword ends.
func (p *prefilter) countHits(text []byte) (n int) {
	s := 0
	for _, c := range text {
		s = int(p.next[s*p.width+int(p.class[c])])
		if p.hit[s] {
			n++
		}
	}
	return n
}
