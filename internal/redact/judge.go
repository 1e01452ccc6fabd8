package redact

import (
	"bytes"
	"slices"
	"strings"
)

// judge returns what of the value is secret.
func (q *question) judge(f *finder, end int) (extent, Category) {
	val := q.b[q.v:end]
	if len(val) == 0 || placeholder(val) || string(val) == string(q.name) {
		return extent{}, ""
	}
	quoted := q.sep.opened != 0 && q.closed
	if q.sep.inElement() {
		return q.element(end)
	}
	if q.refused(val, quoted) {
		return extent{}, ""
	}
	all, weak := extent{q.v, end}, !q.sep.operated() && !quoted
	switch q.ask {
	case forLogin:
		return q.login(end, quoted)
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
	if bytes.IndexByte(val, ' ') >= 0 { // a scheme of its own, and a token
		return all.when(bytes.Count(val, []byte(" ")) == 1 && tokenLike(last(val), 16)), Token
	}
	if q.ask == forSecret {
		return all.when(q.password(val, quoted, weak)), Password
	}
	return all.when(!q.code(val, quoted) && q.token(val, weak)), Token
}

// refused holds for a value whose name and signs make it none.
func (q *question) refused(val []byte, quoted bool) bool {
	weak := !q.sep.operated()
	switch {
	case q.sep.comma && !q.listed(val):
	case q.ask == forSecret && weak && quoted && !shapeOf(val).random():
	case q.ask < forScheme && weak && !quoted && !q.plainName():
	case val[0] == '{' && !quoted && shapeOf(val).digits == 0:
	case q.ask == forToken && q.sep.eq == 0 && strings.HasSuffix(flat(q.name), "signature"):
	default:
		return false
	}
	return true
}

// token holds for a value after a name like token, key or id.
func (q *question) token(val []byte, weak bool) bool {
	switch q.ask {
	case forToken:
		return tokenLike(val, 8+4*b2i(weak)) && (!weak || shapeOf(val).random() || len(val) >= 40)
	case forKey:
		return q.sep.operated() && tokenLike(val, 12) && one(val)
	case forID:
		return !weak && (uuid(val) || tokenLike(val, 14))
	}
	return false
}

// listed holds for the second of two strings joined by a comma that is the value of the first: the name has
// more than one part, and the value no word in it. Lists of names have both of one kind.
func (q *question) listed(val []byte) bool {
	m := parse(q.name)
	return m.parts > 1 && (shapeOf(val).digits > 0 || shapeOf(val).random())
}

// one holds for a value in one piece.
func one(val []byte) bool {
	s := shapeOf(val)
	return s.random() || s.n >= 32 && s.others == 0 && s.digits > 0
}

// plainName holds for names that a person would put right before the value.
func (q *question) plainName() bool {
	name := flat(q.name)
	return slices.ContainsFunc([]string{"token", "secret", "password", "passwd", "passphrase", "apikey"}, func(n string) bool { return strings.HasSuffix(name, n) })
}

func last(val []byte) []byte { return val[bytes.LastIndexByte(val, ' ')+1:] }

// password holds for a value after a name like password.
func (q *question) password(val []byte, quoted, weak bool) bool {
	s := shapeOf(val)
	switch {
	case s.others == s.n && (!quoted || bytes.Contains(val, []byte("**"))):
		return false
	case weak && netrc(lineBefore(q.b, q.v)):
		return true
	case q.code(val, quoted) || len(val) < 4 || !quoted && s.humps() && s.others == 0 && bytes.HasSuffix(q.name, []byte("Key")):
		return false
	case weak: // password is …
		return s.n >= 8 && s.random()
	case quoted:
		return s.digits > 0 || s.others > 0 || s.n >= 6
	case q.sep.eq > 0 && !q.sep.space:
		return s.n >= 5 || s.digits > 0 && s.lowers+s.uppers > 0
	}
	return s.digits > 0 && s.lowers+s.uppers > 0 || s.others > 1 || s.random()
}

// netrc holds for a line of a .netrc file: there password needs no sign.
func netrc(line []byte) bool {
	return bytes.Contains(line, []byte("login ")) && bytes.Contains(line, []byte("machine "))
}

// code holds for what is written in a program and names a value instead of being one.
func (q *question) code(val []byte, quoted bool) bool {
	if quoted {
		return bytes.HasPrefix(val, []byte("/")) && !shapeOf(val).random() && bytes.Count(val, []byte("/")) > 1
	}
	if bytes.ContainsAny(val, "([{") || bytes.HasPrefix(val, []byte("&")) || bytes.HasPrefix(val, []byte("*")) {
		return true
	}
	s := shapeOf(val)
	if val[0] == '/' && !s.random() {
		return true
	}
	if bytes.IndexByte(val, '.') > 0 || bytes.Contains(val, []byte("::")) || bytes.Contains(val, []byte("->")) {
		return identifiers(val) && (!s.random() || s.humps())
	}
	env := q.sep.eq > 0 && !q.sep.space
	return !env && s.digits == 0 && s.others == bytes.Count(val, []byte("_")) && !s.random()
}

// identifiers holds for names joined by dots, colons and arrows, each beginning with a letter.
func identifiers(val []byte) bool {
	for _, part := range bytes.FieldsFunc(val, func(r rune) bool { return strings.ContainsRune(".:->", r) }) {
		if classes[part[0]]&letter == 0 && part[0] != '_' {
			return false
		}
	}
	return true
}

// element decides on each word of an XML element.
func (q *question) element(end int) (extent, Category) {
	val := q.b[q.v:end]
	if !q.tag || val[0] == '(' || end < len(q.b) && q.b[end] != '<' && classes[q.b[end]]&line == 0 {
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
	for _, w := range words {
		if w = bytes.Trim(w, "{}"); len(w) >= 16 && tokenLike(w, 16) && q.ask != forKey {
			return extent{q.v, q.v + len(trimmed)}, category
		}
	}
	return extent{}, ""
}

// login decides on name:password of a command's -u or --user.
func (q *question) login(end int, quoted bool) (extent, Category) {
	val := bytes.TrimRight(q.b[q.v:end], "\"'`")
	i := bytes.IndexByte(val, ':')
	if i < 0 || len(val)-i < 6 || placeholder(val[i+1:]) || bytes.ContainsAny(val[i+1:], " {") {
		return extent{}, ""
	}
	if s := shapeOf(val[i+1:]); s.digits == 0 && s.others == 0 && !s.random() {
		return extent{}, ""
	}
	if quoted && !q.sep.operated() { // the argument as a whole
		return extent{q.v, end}, Password
	}
	return extent{q.v + i + 1, end}, Password
}

// argument decides on what follows an option or a directive.
func (q *question) argument(f *finder, all extent) (extent, Category) {
	val := q.b[all.start:all.end]
	s := shapeOf(val)
	if string(q.name) == "-p" {
		before := lineBefore(q.b, f.last.start)
		command := slices.ContainsFunc([]string{"login", "sshpass", "mysql", "mongo", "ftp"}, func(c string) bool { return bytes.Contains(before, []byte(c)) })
		return all.when(command && s.n >= 6 && s.digits > 0 && s.digits < s.n), Password
	}
	return all.when(s.n >= 6 && (s.digits > 0 || s.others > 0 || s.random())), Password
}
