package redact

import (
	"bytes"
	"slices"
	"sort"
)

// view is the part of a text that is searched. It omits terminal escapes (ECMA-48, section 5.4), which may be inside a
// secret, and NUL bytes, without which UTF-16 of either byte order is ASCII. As long as nothing is omitted, b is raw
// itself.
type view struct {
	raw  []byte
	b    []byte
	cuts []omission // omissions, in order
	seen int        // bytes of raw that are in b or omitted
}

// omission is the total number of bytes of raw that are omitted before the byte of b at offset at.
type omission struct{ at, missing int }

// maxEscape limits an escape sequence that is held back, in bytes.
const maxEscape = 32

const escapeByte = 0x1b

// appendText appends p.
func (v *view) appendText(p []byte, final bool) {
	shared := len(v.cuts) == 0
	v.raw = append(v.raw, p...)
	if shared {
		v.b = v.raw[:v.seen]
	}
	nul, esc := byteFinder{c: 0}, byteFinder{c: escapeByte}
	for v.seen < len(v.raw) {
		rest := v.raw[v.seen:]
		n := min(nul.nextAfter(v.raw, v.seen), esc.nextAfter(v.raw, v.seen)) - v.seen
		if n == 0 {
			left, wait := invisibleLen(rest, final)
			if wait {
				return
			}
			if left > 0 {
				v.omitBytes(left)
				continue
			}
			n = 1
		}
		v.seen += n
		if len(v.cuts) == 0 {
			v.b = v.raw[:v.seen]
		} else {
			v.b = append(v.b, rest[:n]...)
		}
	}
}

// byteFinder finds the next occurrence of one byte and examines no byte twice.
type byteFinder struct {
	c     byte
	at    int
	known bool
}

// nextAfter returns the first offset of the byte at or after i, or the end.
func (n *byteFinder) nextAfter(b []byte, i int) int {
	if n.known && n.at >= i {
		return n.at
	}
	n.at, n.known = len(b), true
	if k := bytes.IndexByte(b[i:], n.c); k >= 0 {
		n.at = i + k
	}
	return n.at
}

// visiblePrefixLen returns the number of bytes before the first one that might be omitted.
func visiblePrefixLen(b []byte) int {
	n := len(b)
	if i := bytes.IndexByte(b, 0); i >= 0 {
		n = i
	}
	if i := bytes.IndexByte(b[:n], escapeByte); i >= 0 {
		n = i
	}
	return n
}

// omitBytes omits the next n bytes.
func (v *view) omitBytes(n int) {
	missing := n
	if k := len(v.cuts); k > 0 {
		missing += v.cuts[k-1].missing
		if v.cuts[k-1].at == len(v.b) {
			v.cuts = v.cuts[:k-1]
		}
	} else {
		v.b = bytes.Clone(v.b) // from here on they differ
	}
	v.cuts = append(v.cuts, omission{len(v.b), missing})
	v.seen += n
}

// invisibleLen returns how many bytes at the start of b are omitted, or zero, and whether it must wait for more bytes.
func invisibleLen(b []byte, final bool) (n int, wait bool) {
	if b[0] == 0 {
		return 1, false
	}
	if len(b) == 1 {
		return 0, !final
	}
	switch c := b[1]; {
	case c == '[':
		for i := 2; i < len(b) && i < maxEscape; i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				return i + 1, false
			}
			if b[i] < 0x20 || b[i] > 0x7e {
				return 0, false
			}
		}
		return 0, len(b) < maxEscape && !final
	case c >= 0x20 && c <= 0x2f: // of a character set
		if len(b) == 2 {
			return 0, !final
		}
		return 3, false
	case c >= 0x30 && c <= 0x7e:
		return 2, false
	}
	return 0, false
}

// rawOffset returns the offset in raw of the byte of b at p, or of its place if p is the end.
func (v *view) rawOffset(p int) int {
	if p >= len(v.b) {
		return v.seen
	}
	i := sort.Search(len(v.cuts), func(i int) bool { return v.cuts[i].at > p })
	if i == 0 {
		return p
	}
	return p + v.cuts[i-1].missing
}

// rawEnd returns the offset in raw directly after the byte of b before p.
func (v *view) rawEnd(p int) int {
	if p == 0 {
		return 0
	}
	return v.rawOffset(p-1) + 1
}

// viewOffset returns how many bytes of b precede the offset in raw.
func (v *view) viewOffset(raw int) int {
	return sort.Search(len(v.b), func(p int) bool { return v.rawOffset(p) >= raw })
}

// dropPrefix discards the first n bytes of b, and as many bytes of raw as possible up to most. It returns how many
// those were.
func (v *view) dropPrefix(n, most int) int {
	start := min(v.rawOffset(n), most)
	base := v.rawOffset(n) - start
	shared := len(v.cuts) == 0
	v.raw = v.raw[:copy(v.raw, v.raw[start:])]
	v.seen -= start
	if shared {
		v.b = v.raw[:v.seen]
		return start
	}
	kept := v.cuts[:0]
	for _, c := range v.cuts {
		if c.at > n {
			kept = append(kept, omission{c.at - n, c.missing - (start - n)})
		}
	}
	v.b = v.b[:copy(v.b, v.b[n:])]
	if base > 0 {
		kept = slices.Insert(kept, 0, omission{0, base})
	}
	if v.cuts = kept; len(kept) == 0 {
		v.b = v.raw[:v.seen]
	}
	return start
}

// stripInvisible returns s without the bytes that a view omits.
func stripInvisible(s string) string {
	if visiblePrefixLen([]byte(s)) == len(s) {
		return s
	}
	v := view{}
	v.appendText([]byte(s), true)
	return string(v.b)
}
