package redact

import (
	"bytes"
	"slices"
	"strings"
)

// tokenLike reports whether val could be a token of at least n bytes: it has no words, and it is neither a path nor a
// short number.
func tokenLike(val []byte, n int) bool {
	if val = bytes.TrimRight(val, "="); len(val) < n || bytes.IndexByte(val, ' ') >= 0 {
		return false
	}
	s := shapeOf(val)
	switch i := bytes.IndexByte(val, ':'); {
	case s.digits+s.others == s.n:
		return s.others == 0 && (s.digits >= 15 || s.digits >= 12 && n <= 8)
	case i >= 0:
		return isTokenPair(val, i)
	case s.digits == 0:
		return s.isRandom() || s.n >= 16 && s.uppers*3 >= s.n && s.lowers > 1 && s.others == 0 || s.n >= 32 &&
			s.turns > 8 && s.others*8 <= s.n && !s.isCamelCase()
	case s.uppers == 0 && s.lowers < 3 && s.n < 12:
		return false
	}
	return s.turns*6 >= s.n || s.n >= 20 || s.digits > 2
}

// isTokenPair decides on two texts joined by a colon. If the first is a number, the second must look like the key of a
// Telegram bot: 35 characters that begin with A, or that are random.
func isTokenPair(val []byte, i int) bool {
	left, right := val[:i], val[i+1:]
	if s := shapeOf(left); s.digits == s.n {
		return s.n >= 5 && len(right) == 35 && (right[0] == 'A' || shapeOf(right).isMixedRandom())
	}
	l, r := shapeOf(left), shapeOf(right)
	hex := l.hex && r.hex && l.n >= 8 && r.n >= 8
	return hex || l.n >= 6 && r.n >= 8 && r.isRandom() && (l.isRandom() || l.n >= 20 || r.n >= 20)
}

// isHeaderCredential reports whether val may be the text after Bearer or Basic.
func isHeaderCredential(val []byte) bool {
	s := shapeOf(bytes.TrimRight(val, "="))
	return s.n >= 12 && s.digits > 0 && s.turns*6 >= s.n || s.n >= 16 && s.isRandom()
}

// isCredential reports whether val stands after Bearer or another scheme in an Authorization header. That place says what
// it is, so it need not look random.
func (q *candidate) isCredential(f *finder, val []byte) bool {
	before := bytes.TrimRight(lineBefore(q.b, f.last.start), " \t'\"`:=")
	const header = "authorization"
	return len(val) >= 4 && len(before) >= len(header) && bytes.EqualFold(before[len(before)-len(header):], []byte(header)) &&
		bytes.IndexByte([]byte("$<{[%("), val[0]) < 0 &&
		(!isPlaceholder(val) || isRepeatedChar(val) && bytes.IndexByte([]byte("xX*."), val[0]) < 0) &&
		!bytes.ContainsAny(val, "({")
}

// isWebhookURL reports whether val is a URL whose path has a long random part.
func isWebhookURL(val []byte) bool {
	return slices.ContainsFunc(bytes.Split(val, []byte("/")), func(p []byte) bool {
		s := shapeOf(p)
		return s.n >= 24 && s.isRandom() && bytes.IndexByte(p, '.') < 0
	})
}

// isPlaceholder reports whether val is a placeholder for a secret.
func isPlaceholder(val []byte) bool {
	if len(val) <= 14 {
		m := parseName(val)
		if placeholderWords.has(m.text[:m.n]) {
			return true
		}
	}
	switch val[0] {
	case '<':
		return true
	case '[':
		return bytes.HasPrefix(val, []byte(mark)) || bytes.Contains(val, []byte("]{")) // a regular expression
	case '$', '%', '@':
		if val[0] == '$' && bytes.Contains(val, []byte("->")) || isFormatVerbs(val) {
			return true
		}
		if isVariable(val) || len(val) > 1 && (val[1] == '(' || val[1] == '{') {
			return true
		}
	case '{':
		if len(val) > 1 && (val[1] == '{' || val[1] == '%') || val[len(val)-1] == '}' && shapeOf(val).digits == 0 {
			return true
		}
	}
	if i := bytes.IndexByte(val, '{'); i >= 0 && i+1 < len(val) && (val[i+1] == '{' || i > 0 && val[i-1] == '$') {
		return true
	}
	return isRepeatedChar(val) || announcesPlaceholder(val)
}

// announcesPlaceholder reports whether val is a word such as "your" or "example" that announces a placeholder.
func announcesPlaceholder(val []byte) bool {
	switch val[0] | 0x20 {
	case 'y', 'e', 'p', 'o', 'r':
		m := parseName(val[:min(len(val), 24)])
		for _, s := range []string{"your", "example", "placeholder", "redacted", "processenv", "osenviron"} {
			if bytes.HasPrefix(m.text[:m.n], []byte(s)) {
				return true
			}
		}
	}
	return false
}

var placeholderWords = vocabulary{text: `null none nil true false undefined yes no password passwd token secret string changeme xxx yyy prompt required optional

	default empty enabled disabled redacted hidden masked define defined undef passwort kennwort contrasena wachtwoord motdepasse senha`}

// isFormatVerbs reports whether val consists of format verbs, for example %s:%s.
func isFormatVerbs(val []byte) bool {
	for i := 0; i+1 < len(val); i += 3 {
		if val[i] != '%' || bytes.IndexByte([]byte("sdvqx"), val[i+1]) < 0 || i+2 < len(val) &&
			classes[val[i+2]]&alnum_ != 0 {
			return false
		}
	}
	return val[0] == '%' && len(val)%3 > 0
}

// isVariable reports whether val is a variable: $NAME, $1, $NAME/file, %NAME% or @NAME@.
func isVariable(val []byte) bool {
	if len(val) < 2 || val[0] != '$' && val[0] != '%' && val[0] != '@' {
		return false
	}
	if i := runEnd(val, 1, alnum_|joint); val[0] == '$' && i > 1 && i < len(val) && val[i] == '/' &&
		classes[val[1]]&letter != 0 {
		return true // $DIR/file
	}
	s := shapeOf(val[1:])
	return s.digits == 0 && s.others <= bytes.Count(val[1:], []byte("_"))+1 || val[0] == '$' && s.digits > 0 &&
		s.lowers+s.uppers == 0 ||
		val[0] == '$' && s.digits == 0 && bytes.Contains(val, []byte(":$"))
}

// isRepeatedChar reports whether val repeats a single character.
func isRepeatedChar(val []byte) bool {
	return len(bytes.Trim(val, string(val[0]))) == 0
}

// isProgramText reports whether val is program text that refers to a value and is not the value itself.
func (q *candidate) isProgramText(val []byte, quoted bool) bool {
	if quoted {
		return bytes.HasPrefix(val, []byte("/")) && !shapeOf(val).isRandom() && bytes.Count(val, []byte("/")) > 1 ||
			q.sep.eq == 0 && !q.sep.valued && q.echoesName(val)
	}
	s := shapeOf(val)
	if bytes.ContainsAny(val, "([{") || (val[0] == '&' || val[0] == '*') && (!s.isRandom() || isIdentifier(val[1:])) {
		return true
	}
	if val[0] == '/' && !s.isRandom() {
		return true
	}
	if bytes.Count(val, []byte(":")) > 1 && s.digits == 0 && isIdentifierPath(val) { // fields of a line: name:passwd:uid
		return true
	}
	if bytes.IndexByte(val, '.') > 0 || bytes.Contains(val, []byte("::")) || bytes.Contains(val, []byte("->")) {
		return isIdentifierPath(val) &&
			(!s.isRandom() || s.isCamelCase() || q.echoesName(val[bytes.LastIndexAny(val, ".:>")+1:]))
	}
	if q.sep.eq > 0 && !q.sep.space { // of a shell
		return false
	}
	return s.digits == 0 && s.others == bytes.Count(val, []byte("_")) && !s.isRandom() ||
		bytes.HasSuffix(val, []byte("_t")) ||
		q.ask != forSecret && isIdentifier(val) || q.echoesName(val)
}

// echoesName reports whether a value ends in the same word as its name, in camel case or snake case: private_key:
// RSAPrivateKey.
func (q *candidate) echoesName(val []byte) bool {
	if len(val) == 0 || len(val) > maxName || val[len(val)-1]|0x20 != q.name[len(q.name)-1]|0x20 ||
		bytes.IndexByte(val, ' ') >= 0 {
		return false
	}
	n, v := parseName(q.name), parseName(val)
	if n.parts == 0 || v.parts < 2 {
		return false
	}
	last := n.partAt(n.parts - 1)
	return len(last) > 2 && bytes.Equal(v.partAt(v.parts-1), last) && isIdentifier(val)
}

// isIdentifierPath reports whether val consists of names joined by dots, colons and arrows, each beginning with a
// letter.
func isIdentifierPath(val []byte) bool {
	for _, part := range bytes.FieldsFunc(val, func(r rune) bool { return strings.ContainsRune(".:->", r) }) {
		if classes[part[0]]&letter == 0 && part[0] != '_' {
			return false
		}
	}
	return true
}

// isIdentifier reports whether val is a program identifier: words in camel case or joined by underscores, and few
// digits. A word must have three letters, with vowels. Of random texts of letters and digits, two percent look like
// that at 16 characters, half a percent at 24. The function is therefore used only if a value has no quotes or is
// short.
func isIdentifier(val []byte) bool {
	words, letters, digits, joins := 0, 0, 0, 0
	for i := 0; i < len(val); {
		switch k := classes[val[i]]; {
		case k&letter != 0:
			n := wordEnd(val, i)
			capitals := n-i > 1 && classes[val[n-1]]&upper != 0
			short := capitals && n-i <= 5 && (i == 0 || val[i-1] == '_' || n == len(val) || val[n] == '_')
			if n-i >= 3 && (short || isPronounceable(val[i:n])) {
				words, letters = words+1, letters+n-i
			}
			if i == 0 || val[i-1] == '_' || !capitals && k&upper != 0 && n-i > 1 {
				joins++
			}
			i = n
			continue
		case k&digit != 0:
			digits++
		case val[i] != '_':
			return false
		}
		i++
	}
	return words > 0 && joins > 1 && letters*5 >= len(val)*3 && letters*3 >= words*10 && digits*4 <= len(val) &&
		shapeOf(val).turns*2 <= len(val)
}

// wordEnd returns the end of the word of letters that begins at i: a capital and lower case, or all of one case.
func wordEnd(val []byte, i int) int {
	if classes[val[i]]&lower != 0 {
		return runEnd(val, i, lower)
	}
	n := runEnd(val, i, upper)
	switch {
	case n == i+1:
		return runEnd(val, n, lower)
	case n < len(val) && classes[val[n]]&lower != 0:
		n-- // the capital of the next word
	}
	return n
}

// isPronounceable reports whether letters could be a word: at least a quarter are vowels, and at most three other
// letters are in a row.
func isPronounceable(w []byte) bool {
	vowels, row := 0, 0
	for _, c := range w {
		row++
		if bytes.IndexByte([]byte("aeiouy"), c|0x20) >= 0 {
			vowels, row = vowels+1, 0
		}
		if row > 3 {
			return false
		}
	}
	return vowels*4 >= len(w) && vowels*4 <= len(w)*3
}

// isConstant reports whether val is a number in a program, for example 0x115 or 1.302103, or the identifier of a
// Windows user.
func isConstant(val []byte) bool {
	if bytes.HasPrefix(val, []byte("S-1-")) {
		return runEnd(val, 4, digit|joint) == len(val)
	}
	if len(val) > 2 && len(val) <= 18 && val[0] == '0' && val[1]|0x20 == 'x' {
		return shapeOf(val[2:]).hex
	}
	return len(val) > 2 && runEnd(val, 0, digit|dot) == len(val) && bytes.IndexByte(val, '.') > 0
}

// isSecretPhrase reports whether a value of several words is secret: it must be quoted after a separator and must not
// be a text for users. In doubt it is secret.
func (q *candidate) isSecretPhrase(val []byte, quoted bool) bool {
	signed := q.sep.eq+q.sep.colons > 0 && !q.sep.comma && !q.sep.pipe && !q.sep.typed
	if !signed || !quoted || !q.isOpeningQuote() || !hasWordEdges(val) || isSentence(val) || isSubstituted(val) {
		return false
	}
	switch odd := slices.ContainsFunc(bytes.Fields(val), isOddWord); {
	case q.ask == forSecret:
		return q.isEnvName() || q.isExactName() || q.sep.eq > 0 || odd
	case q.ask == forToken:
		return q.isExactName() && (odd || flattenName(q.name) == "secret") || q.sep.eq > 0 && q.isEnvName()
	}
	return false
}

// extendYAMLLine returns the end of a YAML password that continues after a space. If it has no quotes, it extends to a
// comment or the end of the line, provided that no other name follows.
func (q *candidate) extendYAMLLine(f *finder, end int, final bool) (int, bool) {
	if q.ask != forSecret || q.sep.colons != 1 || q.sep.eq > 0 || q.sep.opened != 0 || !q.sep.space ||
		end == len(q.b) || q.b[end] != ' ' {
		return end, false
	}
	if f.last.start < 0 || f.last.end-f.last.start > maxName {
		return end, false
	}
	before := lineBefore(q.b, f.last.start)
	if len(before) == lineLook || len(bytes.Trim(before, " -")) > 0 {
		return end, false
	}
	stop := end
	for stop < len(q.b) && stop-end < maxLogin && classes[q.b[stop]]&line == 0 {
		stop++
	}
	if stop-end == maxLogin || stop == len(q.b) && !final {
		return end, stop-end < maxLogin
	}
	rest, _, _ := bytes.Cut(q.b[end:stop], []byte(" #"))
	rest = bytes.TrimRight(rest, " \t")
	if len(rest) == 0 || bytes.Contains(rest, []byte(": ")) || bytes.ContainsAny(rest, "=\"'`<|\\(") ||
		isSentence(rest[1:]) {
		return end, false
	}
	return end + len(rest), false
}

// isSubstituted reports whether a shell or a template gets the value from elsewhere.
func isSubstituted(val []byte) bool {
	return val[0] == '`' || bytes.Contains(val, []byte("$(")) || bytes.Contains(val, []byte("${")) ||
		bytes.Contains(val, []byte("{{"))
}

// isExactName reports whether the whole name is that of a secret.
func (q *candidate) isExactName() bool {
	return slices.Contains([]string{"password", "passwd", "pass", "passphrase", "secret", "pwd", "token"},
		flattenName(q.name))
}

// isOpeningQuote reports whether the quote opens the value. In "password: " + x, it closes a string that began before
// the name.
func (q *candidate) isOpeningQuote() bool {
	if q.sep.quoted {
		return true
	}
	line := lineBefore(q.b, max(0, q.v-1))
	return len(line) >= lineLook || bytes.Count(line, []byte{q.sep.opened})%2 == 0
}

// hasWordEdges reports whether the value has words from its first byte to its last, as between two matching quotes.
func hasWordEdges(val []byte) bool {
	first, last := val[0], val[len(val)-1]
	return classes[first]&blank == 0 && classes[last]&blank == 0 &&
		bytes.IndexByte([]byte(",;)+.&|]}:=<"), first) < 0 && bytes.IndexByte([]byte(",(+="), last) < 0
}

// labelWords has words of texts about secrets in several languages; joining has words that passphrases do not need.
var (
	labelWords = vocabulary{text: `password passwords passwort passwortes passphrase kennwort passe contrasena contrasea senha wachtwoord login username user account
		your you please enter invalid must forgot forgotten incorrect wrong required optional reset confirm repeat retype characters chars tests checks
		passed failed match matches token tokens secret secrets key keys value ihr bitte su votre uw`}
	joiningWords = vocabulary{text: "the a an of in is are to for and or not with be been was that this which it at by on if from has have no"}
)

// isSentence reports whether the value is a sentence or a label for users.
func isSentence(val []byte) bool {
	words := bytes.Fields(val)
	letters, beyond, joins, about := 0, 0, 0, false
	for _, w := range words {
		if isScrambled(w) {
			return false
		}
		s := shapeOf(w)
		letters += s.uppers + s.lowers
		for _, c := range w {
			if c >= 0x80 {
				beyond++
			}
		}
		low := flattenName(w[:min(len(w), maxName)])
		about = about || labelWords.has([]byte(low))
		joins += b2i(joiningWords.has([]byte(low)))
	}
	capital := classes[val[0]]&upper != 0
	ends := bytes.IndexByte([]byte(".?:!"), val[len(val)-1]) >= 0 || bytes.HasSuffix(val, []byte("…"))
	return about || beyond > letters || capital && (joins > 0 || ends) && shapeOf(val).digits == 0
}

// isOddWord reports whether a word has at least eight bytes with digits and a letter, or is scrambled.
func isOddWord(w []byte) bool {
	s := shapeOf(w)
	return isScrambled(w) || s.n >= 8 && s.digits > 1 && s.lowers+s.uppers > 0
}

// isScrambled reports whether digits or signs are inside a word, as in no ordinary text.
func isScrambled(w []byte) bool {
	w = bytes.Trim(w, ".,;:!?()[]\"'")
	for i := 1; i+1 < len(w); i++ {
		k := classes[w[i]]
		if k&digit == 0 && bytes.IndexByte([]byte("@$!#&*^"), w[i]) < 0 {
			continue
		}
		if classes[w[i-1]]&letter != 0 &&
			bytes.ContainsFunc(w[i+1:], func(r rune) bool { return r|0x20 >= 'a' && r|0x20 <= 'z' }) {
			return true
		}
	}
	return false
}
