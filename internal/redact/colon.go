package redact

import (
	"bytes"
	"strings"
)

const (
	maxAuthority = 1 << 10 // bytes of user, password, host and port of a URL
	maxLogin     = 128     // bytes of a password before @tcp(
	maxFields    = 512     // bytes of a line of .pgpass
)

// findAtColon decides on a word that is followed by a colon. It returns zero if it finds nothing.
func (f *finder) findAtColon(b []byte, i, j int, kinds class, final bool, add func(span)) (end int, open bool) {
	rest := b[j:]
	if len(rest) < 3 && !final && strings.HasPrefix("://", string(rest)) {
		return 0, true
	}
	if len(rest) < 2 || classes[rest[1]]&(gap|quote) != 0 {
		return 0, false
	}
	if bytes.HasPrefix(rest, []byte("://")) {
		return f.findInURL(b, i, j, final, add)
	}
	if string(b[i:j]) == "jdbc" {
		return f.findJDBC(b, i, j, final, add)
	}
	if j-i <= 4 && kinds&^(digit|letter) == 0 && shapeOf(b[i:j]).hex {
		if end, open := ipv6(b, i, final); open || end > 0 {
			if end > 0 {
				add(span{i, end, IPv6})
			}
			return end, open
		}
	}
	if rest[1] == ':' || rest[1] == '=' {
		return 0, false
	}
	if s, open := findTelegramToken(b, i, j, kinds, final); open || s.end > 0 {
		if s.end > 0 {
			add(span{s.start, s.end, APIKey})
		}
		return s.end, open
	}
	s, open := byteRange{}, false
	if kinds&letter != 0 && i >= 6 && b[i-1] == ':' {
		s, open = findStarredPgpass(b, i, j, final)
	}
	if !open && s.end == 0 {
		s, open = findPgpass(b, i, j, final)
	}
	if !open && s.end == 0 {
		s, open = findMySQLDSN(b, i, j, final)
	}
	if s.end > 0 {
		add(span{s.start, s.end, Password})
	}
	return s.end, open
}

// findTelegramToken finds the token of a Telegram bot: its number, a colon, and 35 characters that begin with AA. In a
// URL the number follows "bot".
func findTelegramToken(b []byte, i, j int, kinds class, final bool) (byteRange, bool) {
	for n := 8; n <= 10 && kinds&slash != 0 && j-n-len("bot") >= i && classes[b[j-1]]&digit != 0; n++ {
		if at := j - n - len("bot"); string(b[at:at+len("bot")]) == "bot" && runEnd(b[:j], j-n, digit) == j {
			i, kinds = j-n, digit
		}
	}
	if kinds&^digit != 0 || j-i < 8 || j-i > 10 || j+1 < len(b) && b[j+1] != 'A' {
		return byteRange{}, false
	}
	end := j + 1
	for end < len(b) && end-j <= 36 && classes[b[end]]&(alnum_|joint) != 0 {
		end++
	}
	if end == len(b) && end-j <= 36 && !final {
		return byteRange{}, true
	}
	return byteRange{i, end}.onlyIf(end-j == 36 && b[j+2] == 'A'), false
}

// findAzureSettings finds a connection string of Azure: it begins with an endpoint or host name and must contain a key.
func (f *finder) findAzureSettings(b []byte, i, j int, final bool) (end int, open bool) {
	if w := string(b[i:j]); w != "Endpoint" && w != "HostName" || f.where.isExhausted(i) {
		return 0, false
	}
	if end, open = urlEnd(b, j, maxAuthority, "", final); open {
		return 0, true
	}
	for end < len(b) && b[end] == ';' && end-i < maxAuthority {
		if end, open = urlEnd(b, end+1, maxAuthority, "", final); open {
			return 0, true
		}
	}
	text := b[i:end]
	if bytes.Contains(text, []byte(";SharedAccessKey=")) || bytes.Contains(text, []byte(";Secret=")) ||
		bytes.Contains(text, []byte(";AccessKey=")) {
		return end, false
	}
	f.where.noteMiss(i, end)
	return 0, false
}

// findMySQLDSN finds user:password@tcp(host), the format of Go's driver for MySQL.
func findMySQLDSN(b []byte, i, j int, final bool) (byteRange, bool) {
	if i > 0 && classes[b[i-1]]&(gap|quote) == 0 && b[i-1] != '=' {
		return byteRange{}, false
	}
	end := j + 1
	for end < len(b) && end-j < maxLogin && classes[b[end]]&(gap|quote|slash) == 0 && b[end] != '@' {
		end++
	}
	if end == len(b) {
		return byteRange{}, !final
	}
	if b[end] != '@' || end == j+1 {
		return byteRange{}, false
	}
	for _, net := range []string{"@tcp(", "@unix(", "@("} {
		k := min(len(b)-end, len(net))
		if string(b[end:end+k]) != net[:k] {
			continue
		}
		if k < len(net) && !final {
			return byteRange{}, true
		}
		if k == len(net) && !isPlaceholder(b[j+1:end]) {
			return byteRange{j + 1, end}, false
		}
	}
	return byteRange{}, false
}

// findStarredPgpass finds the last field of *:*:*:user:password, in which only the user is a word.
func findStarredPgpass(b []byte, i, j int, final bool) (byteRange, bool) {
	line := lineBefore(b, i)
	if line[0] != '*' || bytes.Count(line, []byte(":")) != 3 || bytes.ContainsAny(line, " \t") {
		return byteRange{}, false
	}
	end := j + 1
	for end < len(b) && end-j < maxLogin && classes[b[end]]&gap == 0 {
		end++
	}
	if end == len(b) && end-j < maxLogin && !final {
		return byteRange{}, true
	}
	text := b[j+1 : end]
	return byteRange{j + 1, end}.onlyIf(len(text) >= 4 && !isPlaceholder(text) && isLastField(text)), false
}

// findPgpass finds the last field of host:port:database:user:password on a line of its own.
func findPgpass(b []byte, i, j int, final bool) (byteRange, bool) {
	if i > 0 && classes[b[i-1]]&line == 0 || b[j+1] != '*' && classes[b[j+1]]&digit == 0 {
		return byteRange{}, false
	}
	field, at := 1, j+1
	for k := j + 1; ; k++ {
		if k-i > maxFields {
			return byteRange{}, false
		}
		if k == len(b) && !final {
			return byteRange{}, true
		}
		if k == len(b) || classes[b[k]]&gap != 0 {
			if text := b[at:k]; field == 4 && len(text) >= 4 && !isPlaceholder(text) && isLastField(text) {
				return byteRange{at, k}, false
			}
			return byteRange{}, false
		}
		if b[k] == ':' && field < 4 {
			if !pgField(field, b[at:k]) {
				return byteRange{}, false
			}
			field, at = field+1, k+1
		}
	}
}

// isLastField reports whether a text is a last field and not one of many, for example of a fingerprint. A colon in it
// should have a backslash before it.
func isLastField(text []byte) bool {
	return bytes.Count(text, []byte(":"))-bytes.Count(text, []byte("\\:")) < 3
}

// pgField validates port, database and user.
func pgField(n int, text []byte) bool {
	if string(text) == "*" {
		return true
	}
	s := shapeOf(text)
	switch n {
	case 1:
		return s.n > 0 && s.n <= 5 && s.digits == s.n
	case 2:
		return s.n > 0 && s.lowers+s.uppers > 0
	}
	return s.n > 0 && classes[text[0]]&letter != 0 && s.others <= s.n/2
}
