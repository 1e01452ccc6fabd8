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
	cuts []cut // omissions, in order
	seen int   // bytes of raw that are in b or omitted
}

// cut is the total number of bytes of raw that are omitted before the byte of b at offset at.
type cut struct{ at, missing int }

// maxEscape limits an escape sequence that is held back, in bytes.
const maxEscape = 32

const escapeByte = 0x1b

// take appends p.
func (v *view) take(p []byte, final bool) {
	shared := len(v.cuts) == 0
	v.raw = append(v.raw, p...)
	if shared {
		v.b = v.raw[:v.seen]
	}
	nul, esc := next{c: 0}, next{c: escapeByte}
	for v.seen < len(v.raw) {
		rest := v.raw[v.seen:]
		n := min(nul.after(v.raw, v.seen), esc.after(v.raw, v.seen)) - v.seen
		if n == 0 {
			left, wait := invisible(rest, final)
			if wait {
				return
			}
			if left > 0 {
				v.leave(left)
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

// next finds the next occurrence of one byte and examines no byte twice.
type next struct {
	c     byte
	at    int
	known bool
}

// after returns the first offset of the byte at or after i, or the end.
func (n *next) after(b []byte, i int) int {
	if n.known && n.at >= i {
		return n.at
	}
	n.at, n.known = len(b), true
	if k := bytes.IndexByte(b[i:], n.c); k >= 0 {
		n.at = i + k
	}
	return n.at
}

// clear returns the number of bytes before the first one that might be omitted.
func clear(b []byte) int {
	n := len(b)
	if i := bytes.IndexByte(b, 0); i >= 0 {
		n = i
	}
	if i := bytes.IndexByte(b[:n], escapeByte); i >= 0 {
		n = i
	}
	return n
}

// leave omits the next n bytes.
func (v *view) leave(n int) {
	missing := n
	if k := len(v.cuts); k > 0 {
		missing += v.cuts[k-1].missing
		if v.cuts[k-1].at == len(v.b) {
			v.cuts = v.cuts[:k-1]
		}
	} else {
		v.b = bytes.Clone(v.b) // from here on they differ
	}
	v.cuts = append(v.cuts, cut{len(v.b), missing})
	v.seen += n
}

// invisible returns how many bytes at the start of b are omitted, or zero, and whether it must wait for more bytes.
func invisible(b []byte, final bool) (n int, wait bool) {
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

// from returns the offset in raw of the byte of b at p, or of its place if p is the end.
func (v *view) from(p int) int {
	if p >= len(v.b) {
		return v.seen
	}
	i := sort.Search(len(v.cuts), func(i int) bool { return v.cuts[i].at > p })
	if i == 0 {
		return p
	}
	return p + v.cuts[i-1].missing
}

// to returns the offset in raw directly after the byte of b before p.
func (v *view) to(p int) int {
	if p == 0 {
		return 0
	}
	return v.from(p-1) + 1
}

// at returns how many bytes of b precede the offset in raw.
func (v *view) at(raw int) int {
	return sort.Search(len(v.b), func(p int) bool { return v.from(p) >= raw })
}

// drop discards the first n bytes of b, and as many bytes of raw as possible up to most. It returns how many those
// were.
func (v *view) drop(n, most int) int {
	start := min(v.from(n), most)
	base := v.from(n) - start
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
			kept = append(kept, cut{c.at - n, c.missing - (start - n)})
		}
	}
	v.b = v.b[:copy(v.b, v.b[n:])]
	if base > 0 {
		kept = slices.Insert(kept, 0, cut{0, base})
	}
	if v.cuts = kept; len(kept) == 0 {
		v.b = v.raw[:v.seen]
	}
	return start
}

// visible returns s without the bytes that a view omits.
func visible(s string) string {
	if clear([]byte(s)) == len(s) {
		return s
	}
	v := view{}
	v.take([]byte(s), true)
	return string(v.b)
}
