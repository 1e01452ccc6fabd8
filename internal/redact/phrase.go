package redact

import (
	"bytes"
	"slices"
)

// phrased reports whether a value of several words is secret: it must be quoted after a separator and must not be a
// text for users. In doubt it is secret.
func (q *question) phrased(val []byte, quoted bool) bool {
	signed := q.sep.eq+q.sep.colons > 0 && !q.sep.comma && !q.sep.pipe && !q.sep.typed
	if !signed || !quoted || !q.opening() || !framed(val) || sentence(val) || fetched(val) {
		return false
	}
	switch odd := slices.ContainsFunc(bytes.Fields(val), odd); {
	case q.ask == forSecret:
		return q.env() || q.exact() || q.sep.eq > 0 || odd
	case q.ask == forToken:
		return q.exact() && (odd || flat(q.name) == "secret") || q.sep.eq > 0 && q.env()
	}
	return false
}

// line returns the end of a YAML password that continues after a space. If it has no quotes, it extends to a comment or
// the end of the line, provided that no other name follows.
func (q *question) line(f *finder, end int, final bool) (int, bool) {
	if q.ask != forSecret || q.sep.colons != 1 || q.sep.eq > 0 || q.sep.opened != 0 || !q.sep.space || end == len(q.b) || q.b[end] != ' ' {
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
	if len(rest) == 0 || bytes.Contains(rest, []byte(": ")) || bytes.ContainsAny(rest, "=\"'`<|\\(") || sentence(rest[1:]) {
		return end, false
	}
	return end + len(rest), false
}

// fetched reports whether a shell or a template gets the value from elsewhere.
func fetched(val []byte) bool {
	return val[0] == '`' || bytes.Contains(val, []byte("$(")) || bytes.Contains(val, []byte("${")) || bytes.Contains(val, []byte("{{"))
}

// exact reports whether the whole name is that of a secret.
func (q *question) exact() bool {
	return slices.Contains([]string{"password", "passwd", "pass", "passphrase", "secret", "pwd", "token"}, flat(q.name))
}

// opening reports whether the quote opens the value. In "password: " + x, it closes a string that began before the
// name.
func (q *question) opening() bool {
	if q.sep.quoted {
		return true
	}
	line := lineBefore(q.b, max(0, q.v-1))
	return len(line) >= lineLook || bytes.Count(line, []byte{q.sep.opened})%2 == 0
}

// framed reports whether the value has words from its first byte to its last, as between two matching quotes.
func framed(val []byte) bool {
	first, last := val[0], val[len(val)-1]
	return classes[first]&blank == 0 && classes[last]&blank == 0 && bytes.IndexByte([]byte(",;)+.&|]}:=<"), first) < 0 && bytes.IndexByte([]byte(",(+="), last) < 0
}

// shown has words of texts about secrets in several languages; joining has words that passphrases do not need.
var (
	shown = vocabulary{text: `password passwords passwort passwortes passphrase kennwort passe contrasena contrasea senha wachtwoord login username user account
		your you please enter invalid must forgot forgotten incorrect wrong required optional reset confirm repeat retype characters chars tests checks
		passed failed match matches token tokens secret secrets key keys value ihr bitte su votre uw`}
	joining = vocabulary{text: "the a an of in is are to for and or not with be been was that this which it at by on if from has have no"}
)

// sentence reports whether the value is a sentence or a label for users.
func sentence(val []byte) bool {
	words := bytes.Fields(val)
	letters, beyond, joins, about := 0, 0, 0, false
	for _, w := range words {
		if scrambled(w) {
			return false
		}
		s := shapeOf(w)
		letters += s.uppers + s.lowers
		for _, c := range w {
			if c >= 0x80 {
				beyond++
			}
		}
		low := flat(w[:min(len(w), maxName)])
		about = about || shown.has([]byte(low))
		joins += b2i(joining.has([]byte(low)))
	}
	capital := classes[val[0]]&upper != 0
	ends := bytes.IndexByte([]byte(".?:!"), val[len(val)-1]) >= 0 || bytes.HasSuffix(val, []byte("…"))
	return about || beyond > letters || capital && (joins > 0 || ends) && shapeOf(val).digits == 0
}

// odd reports whether a word has at least eight bytes with digits and a letter, or is scrambled.
func odd(w []byte) bool {
	s := shapeOf(w)
	return scrambled(w) || s.n >= 8 && s.digits > 1 && s.lowers+s.uppers > 0
}

// scrambled reports whether digits or signs are inside a word, as in no ordinary text.
func scrambled(w []byte) bool {
	w = bytes.Trim(w, ".,;:!?()[]\"'")
	for i := 1; i+1 < len(w); i++ {
		k := classes[w[i]]
		if k&digit == 0 && bytes.IndexByte([]byte("@$!#&*^"), w[i]) < 0 {
			continue
		}
		if classes[w[i-1]]&letter != 0 && bytes.ContainsFunc(w[i+1:], func(r rune) bool { return r|0x20 >= 'a' && r|0x20 <= 'z' }) {
			return true
		}
	}
	return false
}
