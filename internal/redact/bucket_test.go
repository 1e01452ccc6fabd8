package redact

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
)

// TestIndex checks that the index gives the same result at each position as trying one pattern after the other, even if
// many patterns share their first bytes.
func TestIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 21))
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab"[r.IntN(2)]
		}
		return string(b)
	}
	for range 300 {
		var x index
		var all []pattern
		for i := range 1 + r.IntN(40) {
			p := pattern{form{core: text(1 + r.IntN(9))}, fmt.Sprint(i)}
			if r.IntN(3) == 0 {
				p.lead = text(1)
			}
			if p.len() >= 4 && r.IntN(2) == 0 {
				p.bits = []uint8{2, 4}[r.IntN(2)]
				p.top, _ = sixBits("ab"[r.IntN(2)])
				p.top >>= 6 - p.bits
			}
			x.addPattern(p)
			all = append(all, p)
		}
		for range 100 {
			b := []byte(text(1 + r.IntN(12)))
			n, _, open := x.longestMatch(b)
			most, more := 0, false
			for _, p := range all {
				m, o := p.matchStart(b)
				most, more = max(most, m), more || o
			}
			if n != most || open != more {
				t.Fatalf("patterns %v: %q gives %d, %v, want %d, %v", all, b, n, open, most, more)
			}
		}
	}
}

// BenchmarkShared measures that the cost per position does not grow with the number of patterns that have the same
// beginning.
func BenchmarkShared(b *testing.B) {
	text := rep("10.0.300.300 ", 32<<10/13)
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := NewTable()
			for i := range n {
				table.Learn("K", fmt.Sprintf("10.0.%d.%d", i/250, i%250))
			}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				w := table.Writer(io.Discard)
				io.WriteString(w, text)
				w.Close()
			}
		})
	}
}
