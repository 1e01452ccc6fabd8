package redact

import (
	"bytes"
	"slices"
)

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

// isAttachedPassword reports whether the word is -pPASSWORD of a command with that syntax: MySQL's, or 7z if it contains a digit.
func isAttachedPassword(b []byte, i, j int) bool {
	if i > 0 && classes[b[i-1]]&(gap|quote) == 0 { // for example an escaped dash in roff
		return false
	}
	line := lineBefore(b, i)
	return bytes.Contains(line, []byte("mysql")) || bytes.Contains(line, []byte("mariadb")) ||
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
