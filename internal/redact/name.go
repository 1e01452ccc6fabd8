package redact

import (
	"bytes"
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// parsedName is a name in lower case without the characters that join its parts. Parts are separated by joints or camel
// case.
type parsedName struct {
	text  [maxName]byte
	n     int
	ends  [maxParts]uint8
	parts int
}

const maxParts = 12

// parseName parses the name b. If b is too long, it parses only its last bytes.
func parseName(b []byte) (m parsedName) {
	b = b[max(0, len(b)-maxName):]
	from := 0
	end := func() {
		if m.n > from && m.parts < maxParts {
			m.ends[m.parts] = uint8(m.n)
			m.parts++
			from = m.n
		}
	}
	for i, c := range b {
		k := classes[c]
		switch {
		case k&alnum_ == 0:
			end()
			continue
		case i > 0 && k&upper != 0 && classes[b[i-1]]&upper == 0:
			end()
		case i > 0 && k&upper != 0 && i+1 < len(b) && classes[b[i+1]]&lower != 0: // APIToken
			end()
		}
		m.text[m.n] = c | 0x20
		m.n++
	}
	end()
	if m.parts == maxParts {
		m.ends[maxParts-1] = uint8(m.n)
	}
	return m
}

func (m *parsedName) equalsText(s string) bool { return string(m.text[:m.n]) == s }

func (m *parsedName) partStart(i int) int {
	if i <= 0 {
		return 0
	}
	return int(m.ends[i-1])
}

// partAt returns the i-th part, or nil.
func (m *parsedName) partAt(i int) []byte {
	if i < 0 || i >= m.parts {
		return nil
	}
	return m.text[m.partStart(i):m.ends[i]]
}

// partBeginsAt reports whether a part begins at i.
func (m *parsedName) partBeginsAt(i int) bool {
	for p := range m.parts {
		if m.partStart(p) == i {
			return true
		}
	}
	return false
}

// partEndingAt returns the part that ends at i.
func (m *parsedName) partEndingAt(i int) []byte {
	for p := range m.parts {
		if int(m.ends[p]) == i {
			return m.partAt(p)
		}
	}
	return nil
}

// isService reports whether up to three consecutive parts are the name of a service.
func (t *tables) isService(m *parsedName) bool {
	for i := range m.parts {
		for j := i; j < m.parts && j < i+3; j++ {
			if t.services[string(m.text[m.partStart(i):m.ends[j]])] {
				return true
			}
		}
	}
	return false
}

// digestWords has parts of names whose values are random but not secret.
var digestWords = vocabulary{text: `sum sums sha sha1 sha224 sha256 sha384 sha512 md5 h1 hash hashes digest digests checksum chksum integrity etag rev revision srcrev

	commit version ver build fingerprint thumbprint id ids uuid guid uid accessor public pub pubkey origin chars alphabet nonce trace span request
	crc blake2 image layer tree blob object parent index block tx transaction path file dir url uri href src name label title ref branch tag
	cert certificate csr signature sig modulus serial address etags cid nar sri`}

// isHarmless reports whether a part of the name marks its value as a digest or an identifier, or the whole name is one
// letter and one digit: h1, t1.
func (m *parsedName) isHarmless() bool {
	if m.n == 2 && classes[m.text[1]]&digit != 0 {
		return true
	}
	for p := range m.parts {
		if digestWords.has(m.partAt(p)) {
			return true
		}
	}
	return false
}

// flattenName returns b in lower case without the characters that join its parts.
func flattenName(b []byte) string {
	m := parseName(b)
	return string(m.text[:m.n])
}

// valueKind is the kind of value that a word expects after it.
type valueKind uint8

const (
	nothing     valueKind = iota
	forSecret             // password=…: any value
	forToken              // token=…: a value that could be a token
	forKey                // key=…: a value that can only be a token
	forID                 // client_id=… of a service: a random value
	forScheme             // Bearer …: a possible token, with no separator
	forArgument           // bindpw …, --password …: any value that follows
	forLogin              // -u …: name:password
	forAuth               // Authorization: …: a scheme, or a token
)

//go:embed data/own-endings.txt
var endingText string

// nameEndings returns the endings of names of secrets, with the kind of value that such a name expects.
func nameEndings() map[string]valueKind {
	kinds := map[string]valueKind{"secret": forSecret, "token": forToken, "key": forKey, "scheme": forScheme,
		"argument": forArgument, "auth": forAuth, "nothing": nothing}
	endings := map[string]valueKind{}
	for row := range strings.Lines(stripComments(endingText)) {
		if words := strings.Fields(row); len(words) > 0 {
			for _, w := range words[1:] {
				endings[w] = kinds[words[0]]
			}
		}
	}
	return endings
}

// ending is one of endings.
type ending struct {
	text string
	ask  valueKind
}

// byTail groups endings by their last three letters, the longest first, so that it takes precedence.
func byTail() map[uint32][]ending {
	m := map[uint32][]ending{}
	for e, a := range nameEndings() {
		n := len(e)
		k := foldThree(e[n-3], e[n-2], e[n-1])
		m[k] = append(m[k], ending{e, a})
	}
	for _, list := range m {
		slices.SortFunc(list, func(a, b ending) int { return len(b.text) - len(a.text) })
	}
	return m
}

// harmless has words that, before key or session, show that it is not a secret.
var harmless = vocabulary{text: `public pub bucket schema sequence foreign primary partition sort cache host idx hot row map dict object natural

	routing group range index unique composite sharding shard registry translation i18n message label event config hash lookup
	search column field property shortcut host known ssh api_name kms mon tur don hoc joc whis hot keyboard pass_key enter escape
	shift control ctrl alt arrow metric tag topic dedup idempotency correlation request trace span resume`}

// vocabulary is a set of words that is built on first use and not at program start.
type vocabulary struct {
	text string
	once sync.Once
	set  map[string]bool
}

func (v *vocabulary) has(word []byte) bool {
	v.once.Do(func() { v.set = wordSet(v.text) })
	return v.set[string(word)]
}

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

// betweenWords has the words that may stand between the name of a variable and its value, or between the name of a
// secret and the secret.
var (
	betweenWords = vocabulary{text: "string str is was be equals const char text by"}
	typeWords    = vocabulary{text: "string str char text"} // after the name and a colon
)

// maxName limits names of secrets, in bytes.
const maxName = 80

// endingFilter tells from the last four or three bytes whether a word can end in one of endings.
type endingFilter struct{ four, three [1 << tailBits / 64]uint64 }

const tailBits = 12

// tailSlots hashes the last four bytes and the last three, with letters folded.
func tailSlots(b []byte) (four, three uint32) {
	n := len(b)
	v := uint32(b[n-1]) | uint32(b[n-2])<<8 | uint32(b[n-3])<<16
	if n > 3 {
		v |= uint32(b[n-4]) << 24
	}
	v |= 0x20202020
	return v * 0x9E3779B1 >> (32 - tailBits), (v << 8) * 0x9E3779B1 >> (32 - tailBits)
}

func newTails() *endingFilter {
	t := &endingFilter{}
	add := func(e string) {
		four, three := tailSlots([]byte(e))
		if len(e) < 4 {
			t.three[three/64] |= 1 << (three % 64)
		} else {
			t.four[four/64] |= 1 << (four % 64)
		}
	}
	for e := range nameEndings() {
		add(e)
	}
	for _, e := range []string{"pass", "pat", "_pw", "-pw", ".pw", "identified"} {
		add(e)
	}
	return t
}

func (t *endingFilter) mayEndName(b []byte) bool {
	if len(b) < 3 {
		return false
	}
	four, three := tailSlots(b)
	return (t.four[four/64]>>(four%64)|t.three[three/64]>>(three%64))&1 != 0
}

// bundler is the prefix of the names of Bundler's credentials for gem servers.
var bundler = []byte("BUNDLE_")

// valueKindAfter returns the kind of value that the word in b expects next.
func (t *tables) valueKindAfter(b []byte) valueKind {
	whole := len(b)
	n := whole
	for n > 0 && classes[b[n-1]]&(digit|joint|dot) != 0 { // token2, password_1
		n--
	}
	b = b[:n]
	if n < 2 || n > maxName {
		return nothing
	}
	if b[0] == '-' && n == 2 {
		if whole > n {
			return nothing
		}
		return letterOption(b[1]).ask
	}
	if !t.tails.mayEndName(b) && !idEnding(b) && b[0] != '-' && !(b[0] == 'B' && bytes.HasPrefix(b, bundler)) {
		return nothing
	}
	if bytes.IndexByte(b, '/') >= 0 { // a closing tag, a path
		return nothing
	}
	return t.valueKindOf(b)
}

// idEnding reports whether the last part of a name is id.
func idEnding(b []byte) bool {
	n := len(b)
	return n > 3 && b[n-1]|0x20 == 'd' && b[n-2]|0x20 == 'i' && (b[n-2] == 'I' || classes[b[n-3]]&joint != 0)
}

func (t *tables) valueKindOf(b []byte) valueKind {
	m := parseName(b)
	if b[0] == '-' && (m.equalsText("user") || m.equalsText("proxyuser")) {
		return forLogin
	}
	if m.n < 3 {
		return nothing
	}
	for _, e := range t.endings[foldThree(m.text[m.n-3], m.text[m.n-2], m.text[m.n-1])] {
		if !bytes.HasSuffix(m.text[:m.n], []byte(e.text)) {
			continue
		}
		if a := m.qualifyEnding(e.ask, len(e.text)); a != nothing || len(e.text) == m.n {
			return a
		}
	}
	last := string(m.partAt(m.parts - 1))
	switch {
	case m.equalsText("identified"): // identified by …
		return forSecret
	case bytes.HasPrefix(b, bundler):
		return forToken
	case last == "pass", last == "pw":
		return forSecret
	case last == "pat":
		return forKey
	case last == "id" && t.isService(&m):
		return forID
	}
	return nothing
}

// qualifyEnding checks the text before an ending of n bytes.
func (m *parsedName) qualifyEnding(a valueKind, n int) valueKind {
	rest, ending := m.text[:m.n-n], string(m.text[m.n-n:m.n])
	whole := m.partBeginsAt(len(rest))
	switch {
	case ending == "key" && apiKey(rest):
		return forToken
	case ending == "token" && bytes.HasSuffix(rest, []byte("publickey")): // of a .NET assembly
		return nothing
	case (ending == "key" || ending == "session" && !isHostPrefix(rest)) && len(rest) > 0 &&
		(harmless.has(rest) || harmless.has(m.partEndingAt(len(rest)))):
		return nothing
	case len(ending) <= 4 && !whole && ending != "pwd": // monkey, author, aside
		return nothing
	case a >= forScheme && !whole || a == forScheme && len(rest) > 0:
		return nothing
	}
	return a
}

// isHostPrefix reports whether the name is __Host-session, a cookie.
func isHostPrefix(rest []byte) bool { return string(rest) == "host" }

// apiKey reports whether the text before "key" makes it an access key. No separator is needed before it.
func apiKey(rest []byte) bool {
	for _, s := range []string{"api", "token", "secret", "access", "private", "auth"} {
		if bytes.HasSuffix(rest, []byte(s)) {
			return true
		}
	}
	return false
}
