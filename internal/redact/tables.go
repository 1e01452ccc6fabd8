package redact

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

//go:generate go run ./gen

//go:embed data/prefixes.txt
var prefixText string

//go:embed data/own-prefixes.txt
var ownPrefixText string

//go:embed data/services.txt
var serviceText string

//go:embed data/own-services.txt
var ownServiceText string

// builtIn are the tables of the detectors. They are made when the first text is looked at, which takes
// about a millisecond, never when the program starts.
var builtIn = sync.OnceValue(newTables)

// tables are the detectors as data.
type tables struct {
	tails    *tails
	services map[string]bool
	endings  map[uint32][]ending
	prefixes map[uint32][]prefix // by the first three bytes, in lower case
	starts   bitmap              // what prefixes of three bytes begin with
	fours    bitmap              // what longer ones begin with
	inner    bitmap              // what those begin with that may stand within a word
}

// prefix is what a kind of token begins with.
type prefix struct {
	text     string
	fold     bool // letters of either case
	least    int  // bytes of the shortest one known
	alphabet *[256]bool
	category Category
}

func newTables() *tables {
	t := &tables{tails: newTails(), services: wordSet(data(serviceText) + data(ownServiceText)), prefixes: map[uint32][]prefix{}, endings: byTail()}
	alphabets := map[string]*[256]bool{}
	for _, row := range strings.Split(data(prefixText)+data(ownPrefixText), "\n") {
		f := strings.Fields(row)
		if len(f) != 5 {
			continue
		}
		a, ok := alphabets[f[2]]
		if !ok {
			a = alphabet(f[2])
			alphabets[f[2]] = a
		}
		least, _ := strconv.Atoi(f[1])
		t.add(prefix{text: f[0], fold: f[3] == "i", least: least, alphabet: a, category: categoryOf(f[4])})
	}
	return t
}

// data is a file without its comments.
func data(text string) string {
	var b strings.Builder
	for _, l := range strings.Split(text, "\n") {
		if !strings.HasPrefix(l, "#") {
			b.WriteString(l + "\n")
		}
	}
	return b.String()
}

func alphabet(extras string) *[256]bool {
	var set [256]bool
	for _, c := range []byte(alnum) {
		set[c] = true
	}
	if extras != "none" {
		for _, c := range []byte(extras) {
			set[c] = true
		}
	}
	return &set
}

// categoryOf maps the name of a rule.
func categoryOf(rule string) Category {
	for _, c := range []struct {
		start    string
		category Category
	}{
		{"aws-", CloudKey}, {"gcp-", CloudKey}, {"google-", CloudKey}, {"azure-", CloudKey}, {"alibaba-", CloudKey}, {"bedrock", CloudKey},
		{"age-", PrivateKey}, {"slack-webhook", Webhook}, {"slack-cookie", Cookie}, {"gitlab-session", Cookie}, {"django", Password},
	} {
		if strings.HasPrefix(rule, c.start) {
			return c.category
		}
	}
	return APIKey
}

func (t *tables) add(p prefix) {
	k := three(p.text[0], p.text[1], p.text[2])
	t.prefixes[k] = append(t.prefixes[k], p)
	if len(p.text) < 4 {
		t.starts.set(k)
		return
	}
	four := k | uint32(p.text[3]|0x20)<<24
	t.fours.set(four)
	if p.inner() {
		t.inner.set(four)
	}
}

func three(a, b, c byte) uint32 { return uint32(a|0x20) | uint32(b|0x20)<<8 | uint32(c|0x20)<<16 }

// bitmap answers in a nanosecond, and now and then with yes for no.
type bitmap [1 << bitmapBits / 64]uint64

const bitmapBits = 15

func (m *bitmap) set(v uint32) {
	h := v * 0x9E3779B1 >> (32 - bitmapBits)
	m[h/64] |= 1 << (h % 64)
}

func (m *bitmap) has(v uint32) bool {
	h := v * 0x9E3779B1 >> (32 - bitmapBits)
	return m[h/64]>>(h%64)&1 != 0
}

// minInner is the length of a prefix that may stand anywhere in a word: a shorter one would be found by accident.
const minInner = 5

func (p *prefix) inner() bool {
	return len(p.text) >= minInner && strings.ContainsAny(p.text, "_-./+~%")
}

// token finds the longest token of a known kind that begins at i, in a word that begins at start. It says
// how many bytes it had to read for that.
func (t *tables) token(b []byte, start, i int, final bool) (end int, category Category, read int, open bool) {
	k := three(b[i], b[i+1], b[i+2])
	fresh := i == start || classes[b[i-1]]&slash != 0
	for _, p := range t.prefixes[k] {
		if !fresh && !p.inner() {
			continue
		}
		e, n, wait := p.match(b[i:], final)
		if wait {
			return 0, "", 0, true
		}
		read += n
		if i+e > end && e > 0 {
			end, category = i+e, p.category
		}
	}
	return end, category, read, false
}

// meant holds for a part of a token that is long and random enough.
func meant(part []byte) bool {
	s := shapeOf(part)
	return s.n >= 12 && (s.random() || s.hex || s.lowers == 0 && s.digits > 0)
}

// longest returns the longest part of a text between its joints.
func longest(text []byte) (part []byte) {
	for len(text) > 0 {
		n := max(1, runEnd(text, 0, alnum_))
		if n > len(part) {
			part = text[:n]
		}
		text = text[n:]
	}
	return part
}

// words holds for words joined by underscores or humps, and for x again and again: what follows a short prefix
// by accident.
func words(s shape) bool {
	return s.lowers > 0 && !s.random() && !s.hex && (s.others > 0 || s.digits == 0) || s.uppers == s.n && s.n < 12
}

// match returns how many bytes of b are such a token, and how many it read. One that is shorter than any known was cut, or is
// of a newer kind: it counts from six tenths of the length on, if it has a digit.
func (p *prefix) match(b []byte, final bool) (n, read int, open bool) {
	k := min(len(b), len(p.text))
	head := string(b[:k])
	if p.fold {
		head = strings.ToLower(head)
	}
	if head != p.text[:k] {
		return 0, k, false
	}
	if k < len(p.text) {
		return 0, k, !final
	}
	for n = k; n < len(b) && n < maxValue && p.alphabet[b[n]]; n++ {
	}
	if n == len(b) && n < maxValue && !final {
		return 0, n, true
	}
	if p.least < 20 && n < len(b) && (classes[b[n]]&(slash|sign) != 0 || b[n] == '=') { // base64
		return 0, n, false
	}
	if shapeOf(b[:n]).hex { // a digest that begins like it by accident: a random token has letters beyond f
		return 0, n, false
	}
	rest := shapeOf(b[k:n])
	known := len(p.text) >= minInner && p.text != "secret_"
	switch {
	case n >= p.least && (known || !words(rest) && (rest.others == 0 || meant(longest(b[k:n])))), n >= p.least && p.least < 20 && uniform(b[k:n]):
		return n, n, false
	case n*10 >= p.least*6 && rest.digits > 1 && (rest.n >= 12 && rest.random() && (known || meant(longest(b[k:n]))) || known && n*10 >= p.least*9):
		return n, n, false
	}
	return 0, n, false
}
