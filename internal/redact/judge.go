package redact

import (
	"bytes"
	"slices"
	"strings"
)

// judgeValue returns the secret part of the value.
func (q *candidate) judgeValue(f *finder, end int) (byteRange, Category) {
	val := q.b[q.v:end]
	if q.ask == forScheme && q.isCredential(f, val) {
		return byteRange{q.v, end}, AuthHeader
	}
	if len(val) == 0 || isPlaceholder(val) || isConstant(val) || string(val) == string(q.name) {
		return byteRange{}, ""
	}
	quoted := q.sep.opened != 0 && q.closed
	if q.sep.inElement() {
		return q.judgeElement(end)
	}
	if q.isRuledOut(f, val, quoted) {
		return byteRange{}, ""
	}
	all, weak := byteRange{q.v, end}, !q.sep.separatesValue() && !quoted
	switch q.ask {
	case forLogin:
		return q.judgeLogin(end, quoted)
	case forToken, forKey:
		if weak && f.isLoginCommand(q) { // wandb login …
			return all.onlyIf(tokenLike(val, 20)), Token
		}
	case forArgument:
		return q.judgeArgument(f, all)
	case forScheme:
		code := q.sep.opened != 0 || bytes.ContainsAny(val, "([{") || bytes.Contains(val, []byte("://"))
		return all.onlyIf(weak && !code && isHeaderCredential(val)), AuthHeader
	case forAuth:
		return all.onlyIf(!weak && tokenLike(lastWord(val), 8) && !q.isProgramText(val, quoted)), AuthHeader
	}
	if bytes.Contains(val, []byte("://")) {
		return all.onlyIf(q.ask != forKey && isWebhookURL(val)), Webhook
	}
	if q.expectsPhrase() && isMnemonic(val) {
		return all, Token
	}
	if bytes.IndexByte(val, ' ') >= 0 && q.isSecretPhrase(val, quoted) {
		return all, categoryForKind(q.ask)
	}
	if bytes.IndexByte(val, ' ') >= 0 { // a service's own scheme, and a token
		return all.onlyIf(bytes.Count(val, []byte(" ")) == 1 && tokenLike(lastWord(val), 16)), Token
	}
	if q.ask == forSecret {
		return all.onlyIf(q.isSecretPassword(val, quoted, weak)), Password
	}
	if p := q.passwordOfPair(end); p.end > 0 && !weak && (q.ask == forToken || q.ask == forKey) &&
		!q.isProgramText(val, quoted) {
		return p, Password
	}
	return all.onlyIf(!q.isProgramText(val, quoted) && q.isSecretToken(val, weak)), Token
}

// isRuledOut reports whether the name and the separator show that the value is not a secret.
func (q *candidate) isRuledOut(f *finder, val []byte, quoted bool) bool {
	weak := !q.sep.separatesValue()
	switch {
	case q.sep.comma && !q.isValueInList(val) && !f.isQuotedArgument(q.b):
	case q.sep.escaped && q.sep.opened == 0: // passwd:\s of a regular expression
	case q.ask == forSecret && weak && quoted && !shapeOf(val).isRandom() && !isChosenPassword(val):
	case q.ask < forScheme && weak && !quoted && !q.plainName() && !q.isOption() && !f.followsSetCommand(q.b) &&
		!f.isLoginCommand(q):
	case string(q.name) == "PASS" && q.sep.eq == 0: // of a test
	case len(q.name) == len("key") && f.followsHarmlessWord(q.b):
	// arn:…:secret:name
	case q.sep.colons == 1 && !q.sep.space && q.sep.opened == 0 && len(q.name) < maxName && f.last.start > 0 &&
		q.b[f.last.start-1] == ':':
	case val[0] == '{' && !quoted && shapeOf(val).digits == 0:
	case q.ask == forToken && q.sep.eq == 0 && strings.HasSuffix(flattenName(q.name), "signature"):
	default:
		return false
	}
	return true
}

// isSecretToken reports whether a value after a name such as token, key or id is secret.
func (q *candidate) isSecretToken(val []byte, weak bool) bool {
	if val[0] == '\\' || len(val) > len(q.name) && bytes.EqualFold(val[:len(q.name)], q.name) && isIdentifier(val) {
		return false
	}
	switch q.ask {
	case forToken:
		if s := shapeOf(val); !weak && s.n >= 6 && s.n < 8 && clientSecret(q.name) {
			return s.turns > 1 && s.digits > 0 && s.others == 0
		}
		return tokenLike(val, 8+4*b2i(weak)) && (!weak || shapeOf(val).isRandom() || len(val) >= 36)
	case forKey:
		return q.sep.separatesValue() && tokenLike(val, 12) && isOnePiece(val)
	case forID:
		return !weak && (isUUID(val) || tokenLike(val, 14))
	}
	return false
}

// clientSecret reports whether a name is unambiguous, so that its value may be as short as a password.
func clientSecret(b []byte) bool {
	m := parseName(b)
	return m.parts > 1 && string(m.partAt(m.parts-1)) == "secret" &&
		slices.Contains([]string{"client", "app", "shared"}, string(m.partAt(m.parts-2)))
}

// isValueInList reports whether, of two strings joined by a comma, the second is the value of the first: the name must
// have several parts, and the value must not be a word. In a list of names, both are of one kind.
func (q *candidate) isValueInList(val []byte) bool {
	m := parseName(q.name)
	return m.parts > 1 && !isIdentifier(val) && (shapeOf(val).digits > 0 || shapeOf(val).isRandom())
}

// isOnePiece reports whether a value is in one piece.
func isOnePiece(val []byte) bool {
	s := shapeOf(val)
	return s.isRandom() || s.n >= 32 && s.others == 0 && s.digits > 0
}

// plainName reports whether a person would write the name directly before the value.
func (q *candidate) plainName() bool {
	name := flattenName(q.name)
	return slices.ContainsFunc([]string{"token", "secret", "password", "passwd", "passphrase", "apikey"},
		func(n string) bool { return strings.HasSuffix(name, n) })
}

func lastWord(val []byte) []byte { return val[bytes.LastIndexByte(val, ' ')+1:] }

// isSecretPassword reports whether a value after a name such as password is secret.
func (q *candidate) isSecretPassword(val []byte, quoted, weak bool) bool {
	s := shapeOf(val)
	switch {
	case s.others == s.n && (!quoted || bytes.Contains(val, []byte("**"))):
		return false
	case weak && followsNetrcLogin(q.b, q.v):
		return true
	case q.isProgramText(val, quoted) || len(val) < 4 || !quoted && s.isCamelCase() && s.others == 0 &&
		bytes.HasSuffix(q.name, []byte("Key")):
		return false
	case weak && quoted:
		return s.isRandom() || isChosenPassword(val)
	case weak && val[0] == '-':
		return false
	case weak && q.isOption(), weak && q.isEnvName(): // --password …
		return s.n >= 6 && (s.digits > 0 && s.lowers+s.uppers > 0 || s.others > 1 || s.isRandom())
	case weak: // password is …
		return s.n >= 8 && s.isRandom() || q.sep.n > 2 && isCiscoPassword(val)
	case quoted:
		return s.digits > 0 || s.others > 0 || s.n >= 6
	case q.sep.eq > 0 && !q.sep.space:
		return s.n >= 5 || s.digits > 0 && s.lowers+s.uppers > 0
	}
	return s.digits > 0 && (s.lowers+s.uppers > 0 || s.digits == s.n && s.n >= 6 && q.sep.eq == 0) || s.others > 1 ||
		s.isRandom() ||
		s.n >= 12 && len(val)%4 == 0 && val[len(val)-1] == '=' // base64
}

// isChosenPassword reports whether a person may have chosen the value as a password.
func isChosenPassword(val []byte) bool {
	s := shapeOf(val)
	return s.n >= 6 && s.digits > 0 && s.lowers > 0 && bytes.IndexByte(val, ' ') < 0 && !isIdentifier(val)
}

// isCiscoPassword reports whether a value is a router password in reversible form: hex digits in pairs.
func isCiscoPassword(val []byte) bool {
	s := shapeOf(val)
	return s.hex && s.n >= 8 && s.n%2 == 0 && s.digits > 1 && s.lowers == 0
}

// isEnvName reports whether the name is that of an environment variable.
func (q *candidate) isEnvName() bool {
	s := shapeOf(q.name)
	return s.lowers == 0 && s.others > 0
}

// wordBeforeLast returns the word before the last one. If the last one is longer than a name, it returns nothing,
// because the text before it may be gone.
func (f *finder) wordBeforeLast(b []byte) parsedName {
	if f.last.end-f.last.start > maxName {
		return parsedName{}
	}
	return wordBefore(b, f.last.start)
}

// followsSetCommand reports whether the last word follows a command or directive that assigns it the next word: setenv,
// ENV, set.
func (f *finder) followsSetCommand(b []byte) bool {
	m := f.wordBeforeLast(b)
	return m.equalsText("setenv") || m.equalsText("env") || m.equalsText("set")
}

// isLoginCommand reports whether the last word is the login command of a service.
func (f *finder) isLoginCommand(q *candidate) bool {
	m := f.wordBeforeLast(q.b)
	return (string(q.name) == "login" || string(q.name) == "auth") && m.parts > 0 && f.t.isService(&m)
}

// isQuotedArgument reports whether the last word is the quoted first argument of a call: put("password", "…").
func (f *finder) isQuotedArgument(b []byte) bool {
	i := f.last.start
	return i > 1 && f.last.end-i <= maxName && classes[b[i-1]]&quote != 0 && b[i-2] == '('
}

// followsHarmlessWord reports whether the word before the last shows that the value is not secret, such as cache in
// "cache key".
func (f *finder) followsHarmlessWord(b []byte) bool {
	m := f.wordBeforeLast(b)
	return m.parts > 0 && harmless.has(m.partAt(m.parts-1))
}

// expectsPhrase reports whether the value of this name consists of many words.
func (q *candidate) expectsPhrase() bool {
	if c := q.name[len(q.name)-1] | 0x20; c != 'c' && c != 'e' && c != 'd' {
		return false
	}
	name := flattenName(q.name)
	return strings.HasSuffix(name, "mnemonic") || strings.HasSuffix(name, "phrase") || strings.HasSuffix(name, "seed")
}

// isMnemonic reports whether val is a list of words that represent a key (BIP 39): twelve or more.
func isMnemonic(val []byte) bool {
	words := bytes.Fields(val)
	return len(words) >= 12 && len(words) <= 24 && !slices.ContainsFunc(words, func(w []byte) bool {
		return len(w) < 3 || len(w) > 8 || runEnd(w, 0, lower) != len(w)
	})
}

// followsNetrcLogin reports whether the login of a .netrc file precedes i on the same line or the one before. There,
// password needs no separator.
func followsNetrcLogin(b []byte, i int) bool {
	line := lineBefore(b, i)
	if start := i - len(line); start > 0 && len(bytes.Fields(line)) == 1 {
		line = lineBefore(b, start-1)
		return bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("login "))
	}
	return bytes.Contains(line, []byte("login ")) &&
		(bytes.Contains(line, []byte("machine ")) || bytes.HasPrefix(line, []byte("default ")))
}

// judgeElement decides on each word of an XML element.
func (q *candidate) judgeElement(end int) (byteRange, Category) {
	val := q.b[q.v:end]
	attr := q.ask == forSecret && q.sep.quoted && q.sep.n == 2 // <Setting Name="Password">
	if !q.tag && !attr || val[0] == '(' || val[0] == '@' || attr && shapeOf(val).digits == 0 || end < len(q.b) &&
		q.b[end] != '<' && classes[q.b[end]]&line == 0 {
		return byteRange{}, ""
	}
	trimmed := bytes.TrimRight(val, " \t")
	words := bytes.Fields(trimmed)
	category := Token
	if q.ask == forSecret {
		category = Password
	}
	if len(words) == 1 {
		val = words[0]
		ok := q.ask == forSecret && len(val) >= 4 && !q.isProgramText(val, true) ||
			(q.ask == forToken || q.ask == forKey) && tokenLike(val, 10)
		return byteRange{q.v, q.v + len(trimmed)}.onlyIf(ok), category
	}
	if q.ask == forSecret && q.tag && end < len(q.b) && q.b[end] == '<' && q.isExactName() && hasWordEdges(trimmed) &&
		!isSentence(trimmed) && !isSubstituted(trimmed) {
		return byteRange{q.v, q.v + len(trimmed)}, category
	}
	for _, w := range words {
		if w = bytes.Trim(w, "{}"); len(w) >= 16 && tokenLike(w, 16) && q.ask != forKey {
			return byteRange{q.v, q.v + len(trimmed)}, category
		}
	}
	return byteRange{}, ""
}

// option is a one-letter option: the kind of value that it takes, and the commands for which that is a password or a
// token.
type option struct {
	ask      valueKind
	commands []string
}

// letterOption returns the meaning of a one-letter option. The command decides whether it applies.
func letterOption(c byte) option {
	switch c {
	case 'u', 'U': // U: user%password of Samba
		return option{ask: forLogin}
	case 'p':
		return option{forArgument,
			[]string{"login", "sshpass", "mysql", "mariadb", "mongo", "ftp", "useradd", "usermod", "twine", "tsql"}}
	case 'P':
		return option{forArgument, []string{"sqlcmd", "bcp", "isql", "osql", "zip", "mosquitto", "ipmitool"}}
	case 'a':
		return option{forArgument, []string{"redis-cli", "valkey-cli"}}
	case 'w':
		return option{forArgument, []string{"ldap"}}
	case 't':
		return option{forArgument, []string{"codecov", "doctl"}}
	case 'k':
		return option{forArgument, []string{"nuget"}}
	}
	return option{}
}

// judgeArgument decides on the text after an option or a directive.
func (q *candidate) judgeArgument(f *finder, all byteRange) (byteRange, Category) {
	val := q.b[all.start:all.end]
	s := shapeOf(val)
	if len(q.name) == 2 && q.name[0] == '-' {
		before := lineBefore(q.b, f.last.start) // f.last is the two-byte option before the value
		command := slices.ContainsFunc(letterOption(q.name[1]).commands,
			func(c string) bool { return bytes.Contains(before, []byte(c)) })
		return all.onlyIf(command && s.n >= 6 && s.digits > 0 && s.digits < s.n && val[0] != '-' &&
			val[0] != '/'), Password
	}
	if string(q.name) == "community" && !bytes.Contains(lineBefore(q.b, f.last.start), []byte("snmp")) {
		return byteRange{}, ""
	}
	return all.onlyIf(s.n >= 6 &&
		(s.digits > 0 || s.others > 0 || s.isRandom() || s.uppers > 1 && s.lowers > 1)), Password
}

// isAttachedPassword reports whether the word is -pPASSWORD of a command with that syntax: MySQL's, sshpass, or 7z if it
// contains a digit.
func isAttachedPassword(b []byte, i, j int) bool {
	if i > 0 && classes[b[i-1]]&(gap|quote) == 0 { // for example an escaped dash in roff
		return false
	}
	if bytes.IndexByte([]byte("$<{["), b[i+2]) >= 0 || announcesPlaceholder(b[i+2:j]) {
		return false
	}
	line := lineBefore(b, i)
	return bytes.Contains(line, []byte("mysql")) || bytes.Contains(line, []byte("mariadb")) ||
		bytes.Contains(line, []byte("sshpass ")) ||
		bytes.Contains(line, []byte("7z")) && shapeOf(b[i+2:j]).digits > 0
}

// judgeLogin decides on name:password after the option -u or --user of a command.
func (q *candidate) judgeLogin(end int, quoted bool) (byteRange, Category) {
	val := bytes.TrimRight(q.b[q.v:end], "\"'`")
	i := bytes.IndexByte(val, ':')
	if q.name[len(q.name)-1] == 'U' {
		i = bytes.IndexByte(val, '%')
	}
	if i < 0 || len(val)-i < 6 || val[i+1] == ':' || isPlaceholder(val[i+1:]) || bytes.IndexByte(val[i+1:], '{') >= 0 ||
		bytes.IndexByte(val[:i+2], ' ') >= 0 || bytes.IndexByte(val[i+1:], ' ') >= 0 && !q.closed {
		return byteRange{}, ""
	}
	if s := shapeOf(val[i+1:]); s.digits == 0 && s.others == 0 && !s.isRandom() {
		return byteRange{}, ""
	}
	if quoted && !q.sep.separatesValue() { // the whole argument
		return byteRange{q.v, end}, Password
	}
	return byteRange{q.v + i + 1, end}, Password
}

// isOption reports whether the name is an option of a command.
func (q *candidate) isOption() bool { return len(q.name) > 2 && q.name[0] == '-' }

// passwordOfPair returns the text after the colon of admin:…, the value of a name such as credentials.
func (q *candidate) passwordOfPair(end int) byteRange {
	val := q.b[q.v:end]
	i := bytes.IndexByte(val, ':')
	if i < 2 || i > 32 || len(val)-i < 7 || runEnd(val, 0, alnum_|joint|dot) != i {
		return byteRange{}
	}
	user, s := shapeOf(val[:i]), shapeOf(val[i+1:])
	return byteRange{q.v + i + 1, end}.onlyIf(user.n <= 20 && user.lowers > user.digits && !user.hex &&
		!user.isRandom() && s.digits > 0 && s.lowers+s.uppers > 0 && !isPlaceholder(val[i+1:]) &&
		bytes.IndexByte(val[i+1:], ':') < 0)
}
