package redact

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// minEncoded is the minimum length in bytes of a secret for which hex and base64 forms are searched. In a shorter one,
// some alignment leaves fewer than four characters that depend only on the secret.
const minEncoded = 4

// form is one spelling of a secret. In base64 the characters at both ends may also have bits of a neighbour. For the
// character before the core, there is one form per value of those bits. In the character after it, only the bits of the
// secret are compared.
type form struct {
	lead string // "" or one character
	core string
	bits uint8 // how many high bits of the character after core belong to the secret: 0, 2, 4
	top  byte  // their value
}

func (f form) len() int { return len(f.lead) + len(f.core) }

// firstBytes returns the first n bytes, or all if there are fewer.
func (f form) firstBytes(n int) string {
	s := f.lead + f.core[:min(len(f.core), n)]
	return s[:min(len(s), n)]
}

// secretForms returns every spelling of secret that is searched for, each once.
func secretForms(secret string) []form {
	var list []form
	for _, s := range escapedForms(secret) {
		list = append(list, form{core: s})
	}
	if len(secret) >= minEncoded {
		low := hex.EncodeToString([]byte(secret))
		list = append(list, form{core: low}, form{core: strings.ToUpper(low)})
		for before := range 3 {
			list = append(list, base64Forms(secret, before, stdAlphabet)...)
			list = append(list, base64Forms(secret, before, urlAlphabet)...)
		}
	}
	seen := map[form]bool{}
	out := list[:0]
	for _, f := range list {
		if !seen[f] {
			seen[f] = true
			out = append(out, f)
		}
	}
	return out
}

const (
	alnum       = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	stdAlphabet = alnum + "+/"
	urlAlphabet = alnum + "-_"
)

// base64Forms returns the forms of secret; before is the number of other bytes at the start of its group of three. RFC
// 4648, sections 4 and 5: three bytes are four characters of six bits.
func base64Forms(secret string, before int, alphabet string) []form {
	enc := base64.NewEncoding(alphabet).WithPadding(base64.NoPadding)
	text := enc.EncodeToString([]byte("\x00\x00\x00"[:before] + secret))
	total := 8 * (before + len(secret))
	f := form{core: text[(8*before+5)/6 : total/6], bits: uint8(total % 6)}
	f.top = secret[len(secret)-1] & (1<<f.bits - 1)
	own := []int{0, 4, 2}[before] // bits of the secret in the character before the core
	if own == 0 {
		return []form{f}
	}
	var list []form
	for neighbour := range 1 << (6 - own) {
		v := neighbour<<own | int(secret[0]>>(8-own))
		f.lead = alphabet[v : v+1]
		list = append(list, f)
	}
	return list
}

// sixBits returns the value of a base64 character of either alphabet.
func sixBits(c byte) (byte, bool) {
	switch {
	case 'A' <= c && c <= 'Z':
		return c - 'A', true
	case 'a' <= c && c <= 'z':
		return c - 'a' + 26, true
	case '0' <= c && c <= '9':
		return c - '0' + 52, true
	case c == '+' || c == '-':
		return 62, true
	case c == '/' || c == '_':
		return 63, true
	}
	return 0, false
}

// escapedForms returns the secret itself, its JSON escapes by common encoders (once, and twice for JSON inside JSON),
// and its percent-encodings by common encoders.
func escapedForms(s string) []string {
	plain, html, ascii := jsonText(s, false), jsonText(s, true), jsonASCII(s)
	list := []string{
		s, plain, html, ascii, strings.ReplaceAll(plain, "/", `\/`), strings.ReplaceAll(ascii, "/", `\/`),
		jsonText(plain, false), jsonText(html, false), jsonText(ascii, false),
	}
	query := url.QueryEscape(s) // leaves -_.~, space is +
	strict := strings.ReplaceAll(query, "+", "%20")
	for _, p := range []string{
		query, strict, strings.ReplaceAll(strict, "~", "%7E"),
		percentEncode(s, "-_.~/"),                // Python's quote
		percentEncode(s, "-_.!~*'()"),            // encodeURIComponent
		percentEncode(s, "-_.!~*'();/?:@&=+$,#"), // encodeURI
		url.PathEscape(s), url.UserPassword("", s).String()[1:], percentAll(s),
	} {
		list = append(list, p, lowerHex(p))
	}
	return list
}

// jsonText returns the content of a JSON string. If html is set, it also escapes <, > and &, as encoding/json does.
func jsonText(s string, html bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if e.Encode(s) != nil {
		return s
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// jsonASCII is jsonText with every character beyond ASCII as \uXXXX, in UTF-16 (RFC 8259, section 7).
func jsonASCII(s string) string {
	var b strings.Builder
	for _, r := range jsonText(s, false) {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// percentEncode encodes every byte that is not a letter, a digit or in keep (RFC 3986, section 2.1).
func percentEncode(s, keep string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(alnum, s[i]) >= 0 || strings.IndexByte(keep, s[i]) >= 0 {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

func percentAll(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// lowerHex converts the two digits after each % to lower case.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], strings.ToLower(string(b[i+1:i+3])))
			i += 2
		}
	}
	return string(b)
}

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

// skipRejected returns the first offset at or after i that the filter cannot reject. It rejects none of the last three
// offsets.
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

// longestMatch returns the length of the longest pattern that is a prefix of b, or zero, and whether more bytes could
// change the result.
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

// matchStart returns how many bytes of b match the form, or zero, and whether more bytes could lead to a match or
// extend it by one.
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

// bucket holds patterns sorted by text. One search finds all patterns that are a prefix of a text, however many there
// are: the nearest pattern that does not sort after the text, and the prefixes of that pattern.
type bucket []*node

type node struct {
	text string
	pattern
	same   *node // the next pattern with this text; they differ in the bits of the next character
	parent *node // the longest other text that is a prefix of this one
}

func (k bucket) addPattern(p pattern) bucket {
	text := p.lead + p.core
	n := &node{text: text, pattern: p}
	i, there := k.searchText([]byte(text))
	if there {
		at := k[i]
		for at.same != nil {
			at = at.same
		}
		at.same = n
		return k
	}
	if i > 0 {
		n.parent = k[i-1].longestPrefix([]byte(text))
	}
	for _, m := range k[i:] {
		if !strings.HasPrefix(m.text, text) {
			break
		}
		if m.parent == n.parent {
			m.parent = n
		}
	}
	return slices.Insert(k, i, n)
}

// searchText returns the index of the first text that does not sort before b, and whether it equals b.
func (k bucket) searchText(b []byte) (i int, there bool) {
	low, high := 0, len(k)
	for low < high {
		if mid := (low + high) / 2; k[mid].text < string(b) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, low < len(k) && k[low].text == string(b)
}

// longestPrefix returns the node with the longest text that is a prefix of b: n or one of its ancestors. No text that
// sorts between n and b may be a prefix of b.
func (n *node) longestPrefix(b []byte) *node {
	common := 0
	for most := min(len(b), len(n.text)); common < most && b[common] == n.text[common]; common++ {
	}
	for n != nil && len(n.text) > common {
		n = n.parent
	}
	return n
}

// longestMatch returns the length of the longest pattern that is a prefix of b, or zero, and whether more bytes could
// change the result.
func (k bucket) longestMatch(b []byte) (n int, category string, open bool) {
	if len(k) == 0 {
		return 0, "", false
	}
	i, there := k.searchText(b)
	behind := i + b2i(there)
	open = behind < len(k) && len(k[behind].text) > len(b) && k[behind].text[:len(b)] == string(b)
	if behind == 0 {
		return 0, "", open
	}
	for p := k[behind-1].longestPrefix(b); p != nil; p = p.same {
		m, more := p.matchStart(b)
		open = open || more
		if m > n {
			n, category = m, p.category
		}
	}
	return n, category, open
}
