package redact

import (
	"bytes"
	"slices"
)

// isSecretPhrase reports whether a value of several words is secret: it must be quoted after a separator and must not be a
// text for users. In doubt it is secret.
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

// extendYAMLLine returns the end of a YAML password that continues after a space. If it has no quotes, it extends to a comment or
// the end of the line, provided that no other name follows.
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

// isOpeningQuote reports whether the quote opens the value. In "password: " + x, it closes a string that began before the
// name.
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
