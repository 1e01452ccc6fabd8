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

// builtIn returns the tables of the detectors. They are built when the first text is searched, in about a millisecond,
// and not at program start.
var builtIn = sync.OnceValue(newTables)

// tables is the data of the detectors.
type tables struct {
	tails    *endingFilter
	services map[string]bool
	endings  map[uint32][]ending
	prefixes map[uint32][]prefix // by the first three bytes, in lower case
	starts   bitmap              // prefixes of three bytes
	fours    bitmap              // the first four bytes of longer ones
	inner    bitmap              // the same for those that may occur inside a word
}

// prefix is the prefix of a kind of token.
type prefix struct {
	text     string
	fold     bool // letters of either case
	least    int  // bytes of the shortest known token
	alphabet *[256]bool
	category Category
}

func newTables() *tables {
	t := &tables{tails: newTails(), services: wordSet(stripComments(serviceText) + stripComments(ownServiceText)),
		prefixes: map[uint32][]prefix{}, endings: byTail()}
	alphabets := map[string]*[256]bool{}
	for _, row := range strings.Split(stripComments(prefixText)+stripComments(ownPrefixText), "\n") {
		f := strings.Fields(row)
		if len(f) != 5 {
			continue
		}
		a, ok := alphabets[f[2]]
		if !ok {
			a = tokenAlphabet(f[2])
			alphabets[f[2]] = a
		}
		least, _ := strconv.Atoi(f[1])
		t.addPrefix(prefix{text: f[0], fold: f[3] == "i", least: least, alphabet: a, category: categoryOf(f[4])})
	}
	return t
}

// stripComments returns the text of a file without its comments.
func stripComments(text string) string {
	var b strings.Builder
	for _, l := range strings.Split(text, "\n") {
		if !strings.HasPrefix(l, "#") {
			b.WriteString(l + "\n")
		}
	}
	return b.String()
}

func tokenAlphabet(extras string) *[256]bool {
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

// categoryOf returns the category for the name of a rule.
func categoryOf(rule string) Category {
	for _, c := range []struct {
		start    string
		category Category
	}{
		{"aws-", CloudKey}, {"gcp-", CloudKey}, {"google-", CloudKey}, {"azure-", CloudKey}, {"alibaba-", CloudKey},
		{"bedrock", CloudKey},
		{"age-", PrivateKey}, {"slack-webhook", Webhook}, {"slack-cookie", Cookie}, {"gitlab-session", Cookie},
		{"django", Password},
	} {
		if strings.HasPrefix(rule, c.start) {
			return c.category
		}
	}
	return APIKey
}

func (t *tables) addPrefix(p prefix) {
	k := foldThree(p.text[0], p.text[1], p.text[2])
	t.prefixes[k] = append(t.prefixes[k], p)
	if len(p.text) < 4 {
		t.starts.set(k)
		return
	}
	four := k | uint32(p.text[3]|0x20)<<24
	t.fours.set(four)
	if p.mayBeInner() {
		t.inner.set(four)
	}
}

func foldThree(a, b, c byte) uint32 { return uint32(a|0x20) | uint32(b|0x20)<<8 | uint32(c|0x20)<<16 }

// bitmap answers in a nanosecond. It may give a false positive.
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

// minInner is the minimum length of a prefix that may occur anywhere in a word. A shorter one would be found by chance.
const minInner = 5

func (p *prefix) mayBeInner() bool {
	return len(p.text) >= minInner && strings.ContainsAny(p.text, "_-./+~%")
}

// findToken finds the longest token of a known kind that begins at i, in a word that begins at start. It also returns
// how many bytes it read.
func (t *tables) findToken(b []byte, start, i int, final bool) (end int, category Category, read int, open bool) {
	k := foldThree(b[i], b[i+1], b[i+2])
	fresh := i == start || classes[b[i-1]]&slash != 0
	for _, p := range t.prefixes[k] {
		if !fresh && !p.mayBeInner() {
			continue
		}
		e, n, wait := p.matchToken(b[i:], final)
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

// isRandomPart reports whether a part of a token is long and random enough.
func isRandomPart(part []byte) bool {
	s := shapeOf(part)
	return s.n >= 12 && (s.isRandom() || s.hex || s.lowers == 0 && s.digits > 0)
}

// isPlainKey reports whether what follows sk- or key- is too long, or has too many digits, for words such as those of
// key-value and sk-toggleable.
func isPlainKey(rest []byte) bool {
	part := longestPart(rest)
	if len(part) == 0 {
		return false
	}
	s := shapeOf(part)
	return s.n >= 20 || s.n >= 12 && (s.digits > 0 || isRepeatedChar(part)) || s.n >= 8 && s.digits > 1 && s.lowers+s.uppers > 1
}

// longestPart returns the longest part of a text between its joints.
func longestPart(text []byte) (part []byte) {
	for len(text) > 0 {
		n := max(1, runEnd(text, 0, alnum_))
		if n > len(part) {
			part = text[:n]
		}
		text = text[n:]
	}
	return part
}

// looksLikeWords reports whether a text consists of words joined by underscores or camel case, or repeats x: text that
// follows a short prefix by chance.
func looksLikeWords(s shape) bool {
	return s.lowers > 0 && !s.isRandom() && !s.hex && (s.others > 0 || s.digits == 0) || s.uppers == s.n && s.n < 12
}

// matchToken returns the length of the token at the start of b, and how many bytes it read. A token that is shorter
// than all known ones may have been cut or be of a newer kind. It counts if it has at least two digits and six tenths
// of the known length.
func (p *prefix) matchToken(b []byte, final bool) (n, read int, open bool) {
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
	if shapeOf(b[:n]).hex { // a digest with this prefix by chance: a random token has letters beyond f
		return 0, n, false
	}
	rest := shapeOf(b[k:n])
	known := len(p.text) >= minInner && p.text != "secret_"
	switch {
	case (p.text == "sk-" || p.text == "key-") && isPlainKey(b[k:n]):
		return n, n, false
	case n >= p.least && (known || !looksLikeWords(rest) && (rest.others == 0 || isRandomPart(longestPart(b[k:n])))),
		n >= p.least && p.least < 20 && isRepeatedChar(b[k:n]):
		return n, n, false
	case n*10 >= p.least*6 && rest.digits > 1 &&
		(rest.n >= 12 && rest.isRandom() && (known || isRandomPart(longestPart(b[k:n]))) || known && n*10 >= p.least*9):
		return n, n, false
	}
	return 0, n, false
}

// Keywords returns the prefixes and names of the detectors, as a keyword matcher would need them.
func Keywords() []string {
	var all []string
	t := builtIn()
	for _, rows := range t.prefixes {
		for _, p := range rows {
			all = append(all, strings.ToLower(p.text))
		}
	}
	for e := range nameEndings() {
		all = append(all, e)
	}
	for s := range t.services {
		all = append(all, s)
	}
	return all
}
