package redact

import (
	"bytes"
	"slices"
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
