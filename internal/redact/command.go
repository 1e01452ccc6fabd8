package redact

import (
	"bytes"
	"slices"
)

// option is one of a single letter: what it takes, and the commands that take a password or a token there.
type option struct {
	ask      ask
	commands []string
}

// flags are options of one letter. Which command takes them decides what they mean.
var flags = map[byte]option{
	'u': {forLogin, nil},
	'U': {forLogin, nil}, // user%password of Samba
	'p': {forArgument, []string{"login", "sshpass", "mysql", "mariadb", "mongo", "ftp", "useradd", "usermod", "twine", "tsql"}},
	'P': {forArgument, []string{"sqlcmd", "bcp", "isql", "osql", "zip", "mosquitto", "ipmitool"}},
	'a': {forArgument, []string{"redis-cli", "valkey-cli"}},
	'w': {forArgument, []string{"ldap"}},
	't': {forArgument, []string{"codecov", "doctl"}},
	'k': {forArgument, []string{"nuget"}},
}

// argument decides on what follows an option or a directive.
func (q *question) argument(f *finder, all extent) (extent, Category) {
	val := q.b[all.start:all.end]
	s := shapeOf(val)
	if len(q.name) == 2 && q.name[0] == '-' {
		before := lineBefore(q.b, f.last.start) // two bytes before the value and what stands between
		command := slices.ContainsFunc(flags[q.name[1]].commands, func(c string) bool { return bytes.Contains(before, []byte(c)) })
		return all.when(command && s.n >= 6 && s.digits > 0 && s.digits < s.n && val[0] != '-' && val[0] != '/'), Password
	}
	if string(q.name) == "community" && !bytes.Contains(lineBefore(q.b, f.last.start), []byte("snmp")) {
		return extent{}, ""
	}
	return all.when(s.n >= 6 && (s.digits > 0 || s.others > 0 || s.random() || s.uppers > 1 && s.lowers > 1)), Password
}

// attached holds for -pPASSWORD of a command that takes it so: MySQL's, or 7z with a digit in it.
func attached(b []byte, i, j int) bool {
	if i > 0 && classes[b[i-1]]&(gap|quote) == 0 { // an escaped dash of roff
		return false
	}
	line := lineBefore(b, i)
	return bytes.Contains(line, []byte("mysql")) || bytes.Contains(line, []byte("mariadb")) ||
		bytes.Contains(line, []byte("7z")) && shapeOf(b[i+2:j]).digits > 0
}

// login decides on name:password of a command's -u or --user.
func (q *question) login(end int, quoted bool) (extent, Category) {
	val := bytes.TrimRight(q.b[q.v:end], "\"'`")
	i := bytes.IndexByte(val, ':')
	if q.name[len(q.name)-1] == 'U' {
		i = bytes.IndexByte(val, '%')
	}
	if i < 0 || len(val)-i < 6 || val[i+1] == ':' || placeholder(val[i+1:]) || bytes.ContainsAny(val[i+1:], " {") {
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

// dashed holds for a name that is an option of a command.
func (q *question) dashed() bool { return len(q.name) > 2 && q.name[0] == '-' }

// pair returns what stands behind the colon of admin:…, the value of a name like credentials.
func (q *question) pair(end int) extent {
	val := q.b[q.v:end]
	i := bytes.IndexByte(val, ':')
	if i < 2 || i > 32 || len(val)-i < 7 || runEnd(val, 0, alnum_|joint|dot) != i {
		return extent{}
	}
	user, s := shapeOf(val[:i]), shapeOf(val[i+1:])
	return extent{q.v + i + 1, end}.when(user.n <= 20 && user.lowers > user.digits && !user.hex && !user.random() && s.digits > 0 && s.lowers+s.uppers > 0 && !placeholder(val[i+1:]) && bytes.IndexByte(val[i+1:], ':') < 0)
}
