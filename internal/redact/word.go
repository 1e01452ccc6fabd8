package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// handleWord processes the word that begins at i. It returns false if it must wait for more bytes.
func (f *finder) handleWord(b []byte, i int, final bool, add func(span)) bool {
	j, kinds := i, class(0)
	if f.open > i {
		j, kinds = f.open, f.kinds
	}
	for limit := min(len(b), i+maxWord); j < limit; j++ {
		k := classes[b[j]]
		if k&word == 0 {
			break
		}
		kinds |= k
	}
	f.open, f.kinds = j, kinds
	if j == len(b) && j-i < maxWord && !final {
		return false
	}
	if kinds&alnum_ == 0 && (f.ask == nothing || f.sep.opened == 0) { // a dash, a dot
		if f.sep.separatesValue() { // a comment
			f.ask = nothing
		}
		f.sep.n += uint16(j - i)
		f.next, f.open = j, 0
		return true
	}
	if f.ask != nothing && f.isValueNext() && !f.isPassingWord(b, i, j) {
		end, open := f.decideValue(b, i, final, add)
		if open {
			return false
		}
		if end > i {
			f.next, f.open = end, 0
			return true
		}
	}
	end, open := f.findInWord(b, i, j, kinds, final, add)
	if open {
		return false
	}
	f.next, f.open = end, 0
	if end < j {
		f.open = j // avoids a second measurement of the rest of the word
	}
	return true
}

// isPlainWord reports whether a short word expects no value and no sign after it can start a find. Most words are like
// that.
func (f *finder) isPlainWord(b []byte, i, j int, kinds class) bool {
	if b[j] == ':' && kinds == digit && j-i == 2 && isClockTime(b, i) {
		return true
	}
	if b[j] == ':' && (j+1 == len(b) || classes[b[j+1]]&(gap|quote) == 0) || b[j] == '=' || b[i] == '-' ||
		kinds&alnum_ == 0 {
		return false
	}
	if kinds == digit {
		return true
	}
	if j-i >= 7 && kinds&(digit|dot) == digit|dot {
		return false
	}
	n := j
	for n > i && classes[b[n-1]]&(digit|joint|dot) != 0 {
		n--
	}
	return !f.t.tails.mayEndName(b[i:n]) && !idEnding(b[i:n])
}

// isClockTime reports whether the text is a time of day (hours and minutes, with or without seconds) or the rest of
// one. No address begins like that.
func isClockTime(b []byte, i int) bool {
	if i > 0 && b[i-1] == ':' {
		return true
	}
	for _, n := range []int{5, 8} {
		if i+n >= len(b) || classes[b[i+n-1]]&classes[b[i+n-2]]&digit == 0 {
			return false
		}
		if b[i+n] != ':' {
			return !hexDigit(b[i+n])
		}
	}
	return false
}

// isLoneColon reports whether no address can begin at a colon.
func isLoneColon(b []byte, i int) bool {
	return i > 0 && classes[b[i-1]]&word != 0 || i+1 < len(b) && b[i+1] != ':' && (i == 0 || b[i-1] != ':')
}

// findInWord decides on a word, and on the value that it expects next.
func (f *finder) findInWord(b []byte, i, j int, kinds class, final bool, add func(span)) (int, bool) {
	end, open := f.decideWord(b, i, j, kinds, final, add)
	if !open && j-i >= 7 && kinds&digit != 0 &&
		(kinds&dot != 0 || kinds&joint != 0 && bytes.Contains(b[i:min(j, i+maxName)], []byte("ip-"))) {
		ipv4(b, i, j, add)
	}
	return end, open
}

// decideWord is look without addresses.
func (f *finder) decideWord(b []byte, i, j int, kinds class, final bool, add func(span)) (int, bool) {
	if j < len(b) && b[j] == ':' {
		if end, open := f.findAtColon(b, i, j, kinds, final, add); open || end > 0 {
			return f.finishWord(i, j, end, open)
		}
	}
	if j-i >= minLong {
		if end, open := f.findInLongWord(b, i, j, kinds, final, add); open || end > 0 {
			return f.finishWord(i, j, end, open)
		}
	}
	if f.isPassingWord(b, i, j) {
		f.skipPassing(b[i:j])
		return j, false
	}
	if kinds&joint != 0 {
		f.trackArmour(b[i:j])
	}
	if kinds&letter == 0 {
		f.ask, f.last, f.sep = nothing, byteRange{i, j}, separator{}
		return j, false
	}
	f.ask = f.t.valueKindAfter(b[i:j])
	if f.scheme {
		f.ask, f.scheme = forScheme, false
	}
	if j < len(b) && b[j] == '=' {
		if end, open := f.findAzureSettings(b, i, j, final); open || end > 0 {
			if end > 0 {
				add(span{i, end, Connection})
			}
			return end, open
		}
	}
	if j-i > 2 && b[i] == '-' && b[i+1] == 'p' && isAttachedPassword(b, i, j) {
		add(span{i + 2, j, Password})
		f.ask = nothing
	}
	f.last, f.sep = byteRange{i, j}, separator{}
	return j, false
}

// finishWord finishes a word that was decided. If the word must wait, it is examined again later, in the same context.
func (f *finder) finishWord(i, j, end int, open bool) (int, bool) {
	if !open {
		f.ask, f.sep, f.last = nothing, separator{}, byteRange{i, j}
	}
	return end, open
}

// isPassingWord reports whether a word may stand between a name and its value, as in
//
//	var token string = "…"
//	<add key="Password" value="…">
//	- name: PASSWORD
//	  value: …
//	password: string = "…"
//	password: &anchor …
func (f *finder) isPassingWord(b []byte, i, j int) bool {
	s, w := &f.sep, b[i:j]
	if f.ask == nothing || f.ask >= forScheme || s.pipe || s.element {
		return false
	}
	if (len(w) > 2 || s.amp) && s.colons == 1 && s.eq == 0 && s.lines == 0 {
		return s.opened == 0 &&
			(s.amp && (b[i-1] == '&' || b[i-1] == '\'') || len(w) <= 6 && typeWords.has(bytes.ToLower(w)))
	}
	if len(w) <= 2 && s.opened == 0 && s.separatesValue() && j < len(b) && classes[b[j]]&quote != 0 { // b"…", r'…'
		return true
	}
	if len(w) > 6 || s.eq+s.colons > 0 {
		return false
	}
	low := string(bytes.ToLower(w))
	return low == "value" || s.lines == 0 && !s.comma &&
		(betweenWords.has([]byte(low)) || s.call == '(' && low == "return") ||
		f.ask == forSecret && len(w) == 1 && classes[w[0]]&digit != 0 && s.n == 1 // Cisco: password 7 …
}

// skipPassing skips a word for which passing is true.
func (f *finder) skipPassing(w []byte) {
	f.sep.n += uint16(len(w))
	switch {
	case f.sep.colons > 0 && (len(w) > 2 || f.sep.amp):
		f.sep.typed = true
	case len(w) == len("value") && string(bytes.ToLower(w)) == "value":
		f.sep = separator{valued: true}
	}
}

// lineBefore returns the part of the line before i, at most lineLook bytes.
func lineBefore(b []byte, i int) []byte {
	from := max(0, i-lineLook)
	if n := bytes.LastIndexByte(b[from:i], '\n'); n >= 0 {
		from += n + 1
	}
	return b[from:i]
}

// findInLongWord decides on a word of ten bytes or more: it searches for tokens by prefix, tokens by format, and
// encoded text. It returns zero if it finds nothing.
func (f *finder) findInLongWord(b []byte, i, j int, kinds class, final bool, add func(span)) (int, bool) {
	if end, open := f.findByPrefix(b, i, j, kinds, final, add); open || end > 0 {
		return end, open
	}
	if kinds&digit == 0 && j-i < 24 {
		return 0, false
	}
	if kinds&dot != 0 && (isDiscordToken(b[i:j]) || isTerraformToken(b[i:j])) {
		add(span{i, j, APIKey})
		return j, false
	}
	if end := f.findJWT(b, i, j, kinds, add); end > 0 {
		return end, false
	}
	if j-i < 16 {
		return 0, false
	}
	if end, open := f.findInBase64(b, i, j, kinds, final, add); open || end > 0 {
		return end, open
	}
	if s, category := f.findRandomWord(b, i, j, kinds); s.end > 0 {
		end := s.end
		for end < len(b) && b[end] == '=' && end-s.end < 2 {
			end++
		}
		if end == len(b) && !final {
			return 0, true
		}
		add(span{s.start, end, category})
		return max(j, end), false
	}
	return 0, false
}

// findByPrefix finds tokens by their prefix: at the start of the word, after a slash in it, and anywhere if the prefix
// is long enough not to occur by chance.
func (f *finder) findByPrefix(b []byte, i, j int, kinds class, final bool, add func(span)) (int, bool) {
	if kinds&(digit|upper|joint) == 0 {
		return 0, false
	}
	k := foldThree(b[i], b[i+1], b[i+2]) << 8
	fresh := true
	stop := j - 9
	if kinds&^alnum_ == 0 { // every prefix that may be inside a word has other characters than letters and digits
		stop = i + 1
	}
	for p, tries := i, 0; p < stop && tries < maxTries; p++ {
		k = k>>8 | uint32(b[p+3]|0x20)<<24
		was := fresh
		fresh = classes[b[p]]&slash != 0
		if was && !f.t.fours.has(k) && !f.t.starts.has(k<<8>>8) || !was && !f.t.inner.has(k) {
			continue
		}
		end, category, read, open := f.t.findToken(b, i, p, final)
		if open {
			return 0, true
		}
		if end == 0 && read > 64 {
			tries++
		}
		if end > 0 {
			end = goesOn(b, end, j)
			add(span{p, end, category})
			if end-p >= maxValue {
				f.tail = category
			}
			return end, false
		}
	}
	return f.findTwilioID(b, i, j, add), false
}

// goesOn returns the end of a token that is longer than its kind, up to the end of the word.
func goesOn(b []byte, end, j int) int {
	for end+1 < j && classes[b[end]]&(joint|dot) != 0 && classes[b[end+1]]&alnum_ != 0 {
		end = runEnd(b[:j], end+1, alnum_|joint)
	}
	return end
}

// findTwilioID finds account and key ids: two letters and 32 hex digits.
func (f *finder) findTwilioID(b []byte, i, j int, add func(span)) int {
	if j-i != 34 || b[i] != 'A' && b[i] != 'S' || b[i+1] != 'C' && b[i+1] != 'K' {
		return 0
	}
	if s := shapeOf(b[i+2 : j]); s.n == s.digits+s.lowers && (s.hex || isRepeatedChar(b[i+2:j])) {
		add(span{i, j, APIKey})
		return j
	}
	return 0
}

// isDiscordToken reports whether a word is the token of a Discord bot: the base64 of its number, a time, a code.
func isDiscordToken(w []byte) bool {
	if len(w) < 55 || len(w) > 80 || w[0] < 'M' || w[0] > 'O' {
		return false
	}
	p := bytes.Split(w, []byte("."))
	if len(p) != 3 || len(p[0]) < 22 || len(p[0]) > 28 || len(p[1]) != 6 || len(p[2]) < 27 || len(p[2]) > 40 {
		return false
	}
	return shapeOf(p[0]).isMixedRandom()
}

// isTerraformToken reports whether a word is a token of HCP Terraform.
func isTerraformToken(w []byte) bool {
	return len(w) >= 60 && bytes.Index(w, []byte(".atlasv1.")) == 14
}

// categoryForKind returns the category of a value that was found by its name.
func categoryForKind(a valueKind) Category {
	if a == forSecret {
		return Password
	}
	return Token
}

// findJWT finds JSON web tokens (RFC 7519): parts of base64url joined by dots, the first of which is a JSON object.
func (f *finder) findJWT(b []byte, i, j int, kinds class, add func(span)) int {
	if kinds&dot == 0 || kinds&upper == 0 {
		return 0
	}
	at := bytes.Index(b[i:j], []byte("eyJ"))
	if at < 0 || at > 0 && classes[b[i+at-1]]&alnum_ != 0 {
		return 0
	}
	head, rest, dotted := bytes.Cut(b[i+at:j], []byte("."))
	if !dotted || len(rest) < 8 || !isJSONObject(head) {
		return 0
	}
	add(span{i + at, j, JWT})
	if j-i >= maxWord {
		f.tail = JWT
	}
	return j
}

// isJSONObject reports whether text is the base64url of a JSON object or of the beginning of one.
func isJSONObject(text []byte) bool {
	raw, _ := base64.RawURLEncoding.DecodeString(string(bytes.TrimRight(text, "=")))
	if json.Valid(raw) {
		return true
	}
	return bytes.HasPrefix(raw, []byte(`{"`)) && isPrintable(raw)
}

// isPrintable reports whether raw is text: only printable ASCII and white space, or UTF-8 that is mostly that.
func isPrintable(raw []byte) bool {
	odd := 0
	for _, c := range raw {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' && c != 0x1b && c != 0 {
			return false
		}
		if c >= 0x7f {
			odd++
		}
	}
	return odd*10 <= len(raw)
}

// keyID is the length of an AWS key id; the key itself is twice as long.
const keyID = 20

// findRandomWord decides on a word that looks random by the text before it: the name of a service, an unspecific name,
// or none.
func (f *finder) findRandomWord(b []byte, i, j int, kinds class) (byteRange, Category) {
	if kinds&digit == 0 {
		return byteRange{}, ""
	}
	for b[j-1] == '.' {
		j--
	}
	w := b[i:j]
	// base64 text without a find; a symbol of D, Rust or C++
	if i < f.blob || len(w) > 1 && w[0] == '_' && bytes.IndexByte([]byte("DRZ"), w[1]) >= 0 {
		return byteRange{}, ""
	}
	named, signed := f.namingWord(b, i), f.sep.operator || f.sep.opened != 0
	if named == nil && len(w) < 31 {
		return byteRange{}, ""
	}
	s := shapeOf(w)
	// the key that belongs to the id
	if s.n == 40 && len(named) == keyID && (string(named[:4]) == "AKIA" || string(named[:4]) == "ASIA") {
		return byteRange{i, j}.onlyIf(f.sep.n <= 8 && s.isRandom()), CloudKey
	}
	switch {
	case s.n == 66 && !s.hex && w[0] == '0' && w[1] == 'x' && shapeOf(w[2:]).hex: // a key of secp256k1
		return byteRange{i, j}, Token
	case s.hex && s.n >= 24 || s.n >= 16 && s.isRandom() || isUUID(w):
	default:
		return byteRange{}, ""
	}
	if s.n < 24 && isIdentifier(w) {
		return byteRange{}, ""
	}
	if t := tailOf(w); t >= 28 && !s.hex && s.isMixedRandom() && hasRandomTail(w, t) {
		return byteRange{i, j}, APIKey
	}
	if named == nil {
		return byteRange{}, ""
	}
	m := parseName(named)
	if !signed && !f.t.services[string(m.text[:m.n])] || m.isHarmless() || len(named) >= 16 &&
		shapeOf(named).isRandom() {
		return byteRange{}, ""
	}
	if f.t.isService(&m) || !s.hex && f.followsLoneWord(b, &m) && plainToken(w) && bytes.IndexByte(w, '/') < 0 ||
		s.isMixedRandom() && !s.hex && s.n >= 32 && plainToken(w) {
		return byteRange{i, j}, Token
	}
	return byteRange{}, ""
}

// followsLoneWord reports whether the value is quoted and follows a single lower-case word at the start of its line.
func (f *finder) followsLoneWord(b []byte, m *parsedName) bool {
	if f.sep.opened == 0 || f.sep.n != 2 || f.sep.operator || m.parts != 1 || m.n < 3 ||
		m.n != f.last.end-f.last.start {
		return false
	}
	return len(bytes.TrimSpace(lineBefore(b, f.last.start))) == 0
}

// namingWord returns the word that names the one at i. It must be near and on the same line.
func (f *finder) namingWord(b []byte, i int) []byte {
	if n := f.last.end - f.last.start; n <= 0 || n > maxName || f.last.end > i || i-f.last.end > maxName ||
		f.sep.n > 8 || f.sep.lines > 0 {
		return nil
	}
	return f.last.nameBytes(b)
}

// plainToken reports whether a word is one piece of base64, or of base64url with few joints, and neither a path nor a
// version.
func plainToken(w []byte) bool {
	s := shapeOf(w)
	return s.others*8 <= s.n && !bytes.ContainsAny(w, ".%") && w[0] != '/' && !bytes.Contains(w, []byte("//"))
}

// tailOf returns the length of the last part of a word.
func tailOf(w []byte) int { return len(w) - 1 - bytes.LastIndexAny(w, "_-./+~%") }

// hasRandomTail reports whether a word is a short lower-case name, a joint and a random tail of t bytes.
func hasRandomTail(w []byte, t int) bool {
	head := w[:len(w)-t]
	if len(head) < 3 || len(head) > 24 || head[len(head)-1] != '_' && head[len(head)-1] != '-' {
		return false
	}
	s := shapeOf(head)
	tail := shapeOf(w[len(w)-t:])
	return s.uppers == 0 && s.digits < 3 && tail.isMixedRandom() && tail.digits > 2 &&
		!strings.HasPrefix(string(head), "sha") && !strings.HasPrefix(string(head), "md5")
}
