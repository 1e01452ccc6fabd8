package redact

import (
	"bytes"
	"slices"
	"strings"
)

// judge returns the secret part of the value.
func (q *question) judge(f *finder, end int) (extent, Category) {
	val := q.b[q.v:end]
	if len(val) == 0 || placeholder(val) || constant(val) || string(val) == string(q.name) {
		return extent{}, ""
	}
	quoted := q.sep.opened != 0 && q.closed
	if q.sep.inElement() {
		return q.element(end)
	}
	if q.refused(f, val, quoted) {
		return extent{}, ""
	}
	all, weak := extent{q.v, end}, !q.sep.operated() && !quoted
	switch q.ask {
	case forLogin:
		return q.login(end, quoted)
	case forToken, forKey:
		if weak && f.command(q) { // wandb login …
			return all.when(tokenLike(val, 20)), Token
		}
	case forArgument:
		return q.argument(f, all)
	case forScheme:
		code := q.sep.opened != 0 || bytes.ContainsAny(val, "([{") || bytes.Contains(val, []byte("://"))
		return all.when(weak && !code && credential(val)), AuthHeader
	case forAuth:
		return all.when(!weak && tokenLike(last(val), 8) && !q.code(val, quoted)), AuthHeader
	}
	if bytes.Contains(val, []byte("://")) {
		return all.when(q.ask != forKey && webhook(val)), Webhook
	}
	if q.phrase() && mnemonic(val) {
		return all, Token
	}
	if bytes.IndexByte(val, ' ') >= 0 && q.phrased(val, quoted) {
		return all, category(q.ask)
	}
	if bytes.IndexByte(val, ' ') >= 0 { // a service's own scheme, and a token
		return all.when(bytes.Count(val, []byte(" ")) == 1 && tokenLike(last(val), 16)), Token
	}
	if q.ask == forSecret {
		return all.when(q.password(val, quoted, weak)), Password
	}
	if p := q.pair(end); p.end > 0 && !weak && (q.ask == forToken || q.ask == forKey) && !q.code(val, quoted) {
		return p, Password
	}
	return all.when(!q.code(val, quoted) && q.token(val, weak)), Token
}

// refused reports whether the name and the separator show that the value is not a secret.
func (q *question) refused(f *finder, val []byte, quoted bool) bool {
	weak := !q.sep.operated()
	switch {
	case q.sep.comma && !q.listed(val) && !f.argued(q.b):
	case q.sep.escaped && q.sep.opened == 0: // passwd:\s of a regular expression
	case q.ask == forSecret && weak && quoted && !shapeOf(val).random() && !chosen(val):
	case q.ask < forScheme && weak && !quoted && !q.plainName() && !q.dashed() && !f.set(q.b) && !f.command(q):
	case string(q.name) == "PASS" && q.sep.eq == 0: // of a test
	case len(q.name) == len("key") && f.harmless(q.b):
	// arn:…:secret:name
	case q.sep.colons == 1 && !q.sep.space && q.sep.opened == 0 && len(q.name) < maxName && f.last.start > 0 && q.b[f.last.start-1] == ':':
	case val[0] == '{' && !quoted && shapeOf(val).digits == 0:
	case q.ask == forToken && q.sep.eq == 0 && strings.HasSuffix(flat(q.name), "signature"):
	default:
		return false
	}
	return true
}

// token reports whether a value after a name such as token, key or id is secret.
func (q *question) token(val []byte, weak bool) bool {
	if val[0] == '\\' || len(val) > len(q.name) && bytes.EqualFold(val[:len(q.name)], q.name) && identifier(val) {
		return false
	}
	switch q.ask {
	case forToken:
		if s := shapeOf(val); !weak && s.n >= 6 && s.n < 8 && clientSecret(q.name) {
			return s.turns > 1 && s.digits > 0 && s.others == 0
		}
		return tokenLike(val, 8+4*b2i(weak)) && (!weak || shapeOf(val).random() || len(val) >= 36)
	case forKey:
		return q.sep.operated() && tokenLike(val, 12) && one(val)
	case forID:
		return !weak && (uuid(val) || tokenLike(val, 14))
	}
	return false
}

// clientSecret reports whether a name is unambiguous, so that its value may be as short as a password.
func clientSecret(b []byte) bool {
	m := parse(b)
	return m.parts > 1 && string(m.part(m.parts-1)) == "secret" && slices.Contains([]string{"client", "app", "shared"}, string(m.part(m.parts-2)))
}

// listed reports whether, of two strings joined by a comma, the second is the value of the first: the name must have
// several parts, and the value must not be a word. In a list of names, both are of one kind.
func (q *question) listed(val []byte) bool {
	m := parse(q.name)
	return m.parts > 1 && !identifier(val) && (shapeOf(val).digits > 0 || shapeOf(val).random())
}

// one reports whether a value is in one piece.
func one(val []byte) bool {
	s := shapeOf(val)
	return s.random() || s.n >= 32 && s.others == 0 && s.digits > 0
}

// plainName reports whether a person would write the name directly before the value.
func (q *question) plainName() bool {
	name := flat(q.name)
	return slices.ContainsFunc([]string{"token", "secret", "password", "passwd", "passphrase", "apikey"}, func(n string) bool { return strings.HasSuffix(name, n) })
}

func last(val []byte) []byte { return val[bytes.LastIndexByte(val, ' ')+1:] }

// password reports whether a value after a name such as password is secret.
func (q *question) password(val []byte, quoted, weak bool) bool {
	s := shapeOf(val)
	switch {
	case s.others == s.n && (!quoted || bytes.Contains(val, []byte("**"))):
		return false
	case weak && netrc(q.b, q.v):
		return true
	case q.code(val, quoted) || len(val) < 4 || !quoted && s.humps() && s.others == 0 && bytes.HasSuffix(q.name, []byte("Key")):
		return false
	case weak && quoted:
		return s.random() || chosen(val)
	case weak && val[0] == '-':
		return false
	case weak && q.dashed(), weak && q.env(): // --password …
		return s.n >= 6 && (s.digits > 0 && s.lowers+s.uppers > 0 || s.others > 1 || s.random())
	case weak: // password is …
		return s.n >= 8 && s.random() || q.sep.n > 2 && cisco(val)
	case quoted:
		return s.digits > 0 || s.others > 0 || s.n >= 6
	case q.sep.eq > 0 && !q.sep.space:
		return s.n >= 5 || s.digits > 0 && s.lowers+s.uppers > 0
	}
	return s.digits > 0 && (s.lowers+s.uppers > 0 || s.digits == s.n && s.n >= 6 && q.sep.eq == 0) || s.others > 1 || s.random() ||
		s.n >= 12 && len(val)%4 == 0 && val[len(val)-1] == '=' // base64
}

// chosen reports whether a person may have chosen the value as a password.
func chosen(val []byte) bool {
	s := shapeOf(val)
	return s.n >= 6 && s.digits > 0 && s.lowers > 0 && bytes.IndexByte(val, ' ') < 0 && !identifier(val)
}

// cisco reports whether a value is a router password in reversible form: hex digits in pairs.
func cisco(val []byte) bool {
	s := shapeOf(val)
	return s.hex && s.n >= 8 && s.n%2 == 0 && s.digits > 1 && s.lowers == 0
}

// env reports whether the name is that of an environment variable.
func (q *question) env() bool {
	s := shapeOf(q.name)
	return s.lowers == 0 && s.others > 0
}

// before returns the word before the last one. If the last one is longer than a name, it returns nothing, because the
// text before it may be gone.
func (f *finder) before(b []byte) name {
	if f.last.end-f.last.start > maxName {
		return name{}
	}
	return wordBefore(b, f.last.start)
}

// set reports whether the last word follows a command or directive that assigns it the next word: setenv, ENV, set.
func (f *finder) set(b []byte) bool {
	m := f.before(b)
	return m.is("setenv") || m.is("env") || m.is("set")
}

// command reports whether the last word is the login command of a service.
func (f *finder) command(q *question) bool {
	m := f.before(q.b)
	return (string(q.name) == "login" || string(q.name) == "auth") && m.parts > 0 && f.t.service(&m)
}

// argued reports whether the last word is the quoted first argument of a call: put("password", "…").
func (f *finder) argued(b []byte) bool {
	i := f.last.start
	return i > 1 && f.last.end-i <= maxName && classes[b[i-1]]&quote != 0 && b[i-2] == '('
}

// harmless reports whether the word before the last shows that the value is not secret, such as cache in "cache key".
func (f *finder) harmless(b []byte) bool {
	m := f.before(b)
	return m.parts > 0 && harmless.has(m.part(m.parts-1))
}

// phrase reports whether the value of this name consists of many words.
func (q *question) phrase() bool {
	if c := q.name[len(q.name)-1] | 0x20; c != 'c' && c != 'e' && c != 'd' {
		return false
	}
	name := flat(q.name)
	return strings.HasSuffix(name, "mnemonic") || strings.HasSuffix(name, "phrase") || strings.HasSuffix(name, "seed")
}

// mnemonic reports whether val is a list of words that represent a key (BIP 39): twelve or more.
func mnemonic(val []byte) bool {
	words := bytes.Fields(val)
	return len(words) >= 12 && len(words) <= 24 && !slices.ContainsFunc(words, func(w []byte) bool {
		return len(w) < 3 || len(w) > 8 || runEnd(w, 0, lower) != len(w)
	})
}

// netrc reports whether the login of a .netrc file precedes i on the same line or the one before. There, password needs
// no separator.
func netrc(b []byte, i int) bool {
	line := lineBefore(b, i)
	if start := i - len(line); start > 0 && len(bytes.Fields(line)) == 1 {
		line = lineBefore(b, start-1)
		return bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("login "))
	}
	return bytes.Contains(line, []byte("login ")) && (bytes.Contains(line, []byte("machine ")) || bytes.HasPrefix(line, []byte("default ")))
}

// element decides on each word of an XML element.
func (q *question) element(end int) (extent, Category) {
	val := q.b[q.v:end]
	attr := q.ask == forSecret && q.sep.quoted && q.sep.n == 2 // <Setting Name="Password">
	if !q.tag && !attr || val[0] == '(' || val[0] == '@' || attr && shapeOf(val).digits == 0 || end < len(q.b) && q.b[end] != '<' && classes[q.b[end]]&line == 0 {
		return extent{}, ""
	}
	trimmed := bytes.TrimRight(val, " \t")
	words := bytes.Fields(trimmed)
	category := Token
	if q.ask == forSecret {
		category = Password
	}
	if len(words) == 1 {
		val = words[0]
		ok := q.ask == forSecret && len(val) >= 4 && !q.code(val, true) || (q.ask == forToken || q.ask == forKey) && tokenLike(val, 10)
		return extent{q.v, q.v + len(trimmed)}.when(ok), category
	}
	if q.ask == forSecret && q.tag && end < len(q.b) && q.b[end] == '<' && q.exact() && framed(trimmed) && !sentence(trimmed) && !fetched(trimmed) {
		return extent{q.v, q.v + len(trimmed)}, category
	}
	for _, w := range words {
		if w = bytes.Trim(w, "{}"); len(w) >= 16 && tokenLike(w, 16) && q.ask != forKey {
			return extent{q.v, q.v + len(trimmed)}, category
		}
	}
	return extent{}, ""
}
