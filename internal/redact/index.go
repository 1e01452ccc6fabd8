package redact

import "encoding/binary"

// pattern is a form to search for, with the category of its secret.
type pattern struct {
	form
	category string
}

// index finds the longest pattern at each offset. A filter with one bit per hash of four bytes rejects almost every
// offset; it has 32 KiB so that it fits into the first-level cache. Other offsets are looked up by those four bytes.
type index struct {
	filter []uint64
	by4    map[uint32]bucket // by the first four bytes
	short  bucket            // patterns of fewer than four bytes
	first  [256]bool         // their first bytes
	heads  map[string]bool   // the proper prefixes of all patterns, up to three bytes
	size   int               // number of patterns; it only grows, so it also identifies a version
}

const filterBits = 18

// filterSlot is Fibonacci hashing: the high bits of a product with 2³² / φ.
func filterSlot(four uint32) uint32 { return four * 0x9E3779B1 >> (32 - filterBits) }

func (x *index) addPattern(p pattern) {
	if x.size == 0 {
		x.filter = make([]uint64, 1<<filterBits/64)
		x.by4 = map[uint32]bucket{}
		x.heads = map[string]bool{}
	}
	x.size++
	for n := 1; n < 4 && n < p.len(); n++ {
		x.heads[p.firstBytes(n)] = true
	}
	if p.len() < 4 {
		x.short = x.short.addPattern(p)
		x.first[p.core[0]] = true
		return
	}
	four := binary.LittleEndian.Uint32([]byte(p.firstBytes(4)))
	h := filterSlot(four)
	x.filter[h/64] |= 1 << (h % 64)
	x.by4[four] = x.by4[four].addPattern(p)
}

// scan searches for patterns that begin at or after from and calls add for the longest at each offset. It returns the
// first offset at which more bytes could change the answer. Unless final is set, that offset is undecided.
func (x *index) scan(b []byte, from int, final bool, add func(span)) int {
	if x.size == 0 {
		return len(b)
	}
	for i := from; i < len(b); i++ {
		if i = x.skipRejected(b, i); i == len(b) {
			break
		}
		n, category, open := x.longestMatch(b[i:])
		if open && !final {
			return i
		}
		if n > 0 {
			add(span{i, i + n, category})
		}
	}
	return len(b)
}

// skipRejected returns the first offset at or after i that the filter cannot reject. It rejects none of the last three offsets.
func (x *index) skipRejected(b []byte, i int) int {
	filter, short := (*[1 << filterBits / 64]uint64)(x.filter), len(x.short) > 0
	for ; i+4 <= len(b); i++ {
		h := filterSlot(binary.LittleEndian.Uint32(b[i:]))
		if filter[h/64]&(1<<(h%64)) != 0 || short && x.first[b[i]] {
			return i
		}
	}
	return i
}

// longestMatch returns the length of the longest pattern that is a prefix of b, or zero, and whether more bytes could change the
// result.
func (x *index) longestMatch(b []byte) (n int, category string, open bool) {
	n, category, open = x.short.longestMatch(b)
	if len(b) < 4 {
		return n, category, open || x.heads[string(b)]
	}
	m, c, more := x.by4[binary.LittleEndian.Uint32(b)].longestMatch(b)
	if m > n {
		n, category = m, c
	}
	return n, category, open || more
}

// matchStart returns how many bytes of b match the form, or zero, and whether more bytes could lead to a match or extend it
// by one.
func (f form) matchStart(b []byte) (n int, open bool) {
	k := min(len(b), len(f.lead))
	if string(b[:k]) != f.lead[:k] {
		return 0, false
	}
	rest := b[k:]
	k = min(len(rest), len(f.core))
	if string(rest[:k]) != f.core[:k] {
		return 0, false
	}
	switch {
	case len(b) < f.len():
		return 0, true
	case f.bits == 0:
		return f.len(), false
	case len(b) == f.len():
		return f.len(), true
	}
	if v, ok := sixBits(b[f.len()]); ok && v>>(6-f.bits) == f.top {
		return f.len() + 1, false
	}
	return f.len(), false
}
