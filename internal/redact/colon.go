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

// colon decides on a word that is followed by a colon. It returns zero if it finds nothing.
func (f *finder) colon(b []byte, i, j int, kinds class, final bool, add func(span)) (end int, open bool) {
	rest := b[j:]
	if len(rest) < 3 && !final && strings.HasPrefix("://", string(rest)) {
		return 0, true
	}
	if len(rest) < 2 || classes[rest[1]]&(gap|quote) != 0 {
		return 0, false
	}
	if bytes.HasPrefix(rest, []byte("://")) {
		return f.url(b, i, j, final, add)
	}
	if string(b[i:j]) == "jdbc" {
		return f.jdbc(b, i, j, final, add)
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
	if s, open := telegram(b, i, j, kinds, final); open || s.end > 0 {
		if s.end > 0 {
			add(span{s.start, s.end, APIKey})
		}
		return s.end, open
	}
	if kinds&letter != 0 && i >= 6 && b[i-1] == ':' {
		if s, open := starred(b, i, j, final); open || s.end > 0 {
			if s.end > 0 {
				add(span{s.start, s.end, Password})
			}
			return s.end, open
		}
	}
	if s, open := pgpass(b, i, j, final); open || s.end > 0 {
		if s.end > 0 {
			add(span{s.start, s.end, Password})
		}
		return s.end, open
	}
	if s, open := dsn(b, i, j, final); open || s.end > 0 {
		if s.end > 0 {
			add(span{s.start, s.end, Password})
		}
		return s.end, open
	}
	return 0, false
}

// telegram finds the token of a Telegram bot: its number, a colon, and 35 characters that begin with AA. In a URL the
// number follows "bot".
func telegram(b []byte, i, j int, kinds class, final bool) (extent, bool) {
	for n := 8; n <= 10 && kinds&slash != 0 && j-n-len("bot") >= i && classes[b[j-1]]&digit != 0; n++ {
		if at := j - n - len("bot"); string(b[at:at+len("bot")]) == "bot" && runEnd(b[:j], j-n, digit) == j {
			i, kinds = j-n, digit
		}
	}
	if kinds&^digit != 0 || j-i < 8 || j-i > 10 || j+1 < len(b) && b[j+1] != 'A' {
		return extent{}, false
	}
	end := j + 1
	for end < len(b) && end-j <= 36 && classes[b[end]]&(alnum_|joint) != 0 {
		end++
	}
	if end == len(b) && end-j <= 36 && !final {
		return extent{}, true
	}
	return extent{i, end}.when(end-j == 36 && b[j+2] == 'A'), false
}

// settings finds a connection string of Azure: it begins with an endpoint or host name and must contain a key.
func (f *finder) settings(b []byte, i, j int, final bool) (end int, open bool) {
	if w := string(b[i:j]); w != "Endpoint" && w != "HostName" || f.where.over(i) {
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
	if bytes.Contains(text, []byte(";SharedAccessKey=")) || bytes.Contains(text, []byte(";Secret=")) || bytes.Contains(text, []byte(";AccessKey=")) {
		return end, false
	}
	f.where.none(i, end)
	return 0, false
}

// dsn finds user:password@tcp(host), the format of Go's driver for MySQL.
func dsn(b []byte, i, j int, final bool) (extent, bool) {
	if i > 0 && classes[b[i-1]]&(gap|quote) == 0 && b[i-1] != '=' {
		return extent{}, false
	}
	end := j + 1
	for end < len(b) && end-j < maxLogin && classes[b[end]]&(gap|quote|slash) == 0 && b[end] != '@' {
		end++
	}
	if end == len(b) {
		return extent{}, !final
	}
	if b[end] != '@' || end == j+1 {
		return extent{}, false
	}
	for _, net := range []string{"@tcp(", "@unix(", "@("} {
		k := min(len(b)-end, len(net))
		if string(b[end:end+k]) != net[:k] {
			continue
		}
		if k < len(net) && !final {
			return extent{}, true
		}
		if k == len(net) && !placeholder(b[j+1:end]) {
			return extent{j + 1, end}, false
		}
	}
	return extent{}, false
}

// starred finds the last field of *:*:*:user:password, in which only the user is a word.
func starred(b []byte, i, j int, final bool) (extent, bool) {
	line := lineBefore(b, i)
	if line[0] != '*' || bytes.Count(line, []byte(":")) != 3 || bytes.ContainsAny(line, " \t") {
		return extent{}, false
	}
	end := j + 1
	for end < len(b) && end-j < maxLogin && classes[b[end]]&gap == 0 {
		end++
	}
	if end == len(b) && end-j < maxLogin && !final {
		return extent{}, true
	}
	text := b[j+1 : end]
	return extent{j + 1, end}.when(len(text) >= 4 && !placeholder(text) && unsplit(text)), false
}

// pgpass finds the last field of host:port:database:user:password on a line of its own.
func pgpass(b []byte, i, j int, final bool) (extent, bool) {
	if i > 0 && classes[b[i-1]]&line == 0 || b[j+1] != '*' && classes[b[j+1]]&digit == 0 {
		return extent{}, false
	}
	field, at := 1, j+1
	for k := j + 1; ; k++ {
		if k-i > maxFields {
			return extent{}, false
		}
		if k == len(b) && !final {
			return extent{}, true
		}
		if k == len(b) || classes[b[k]]&gap != 0 {
			if text := b[at:k]; field == 4 && len(text) >= 4 && !placeholder(text) && unsplit(text) {
				return extent{at, k}, false
			}
			return extent{}, false
		}
		if b[k] == ':' && field < 4 {
			if !pgField(field, b[at:k]) {
				return extent{}, false
			}
			field, at = field+1, k+1
		}
	}
}

// unsplit reports whether a text is a last field and not one of many, for example of a fingerprint. A colon in it
// should have a backslash before it.
func unsplit(text []byte) bool {
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
