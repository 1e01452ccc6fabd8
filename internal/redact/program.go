package redact

import (
	"bytes"
	"strings"
)

// isProgramText reports whether val is program text that refers to a value and is not the value itself.
func (q *candidate) isProgramText(val []byte, quoted bool) bool {
	if quoted {
		return bytes.HasPrefix(val, []byte("/")) && !shapeOf(val).isRandom() && bytes.Count(val, []byte("/")) > 1 ||
			q.sep.eq == 0 && !q.sep.valued && q.echoesName(val)
	}
	s := shapeOf(val)
	if bytes.ContainsAny(val, "([{") || (val[0] == '&' || val[0] == '*') && (!s.isRandom() || isIdentifier(val[1:])) {
		return true
	}
	if val[0] == '/' && !s.isRandom() {
		return true
	}
	if bytes.Count(val, []byte(":")) > 1 && s.digits == 0 && isIdentifierPath(val) { // fields of a line: name:passwd:uid
		return true
	}
	if bytes.IndexByte(val, '.') > 0 || bytes.Contains(val, []byte("::")) || bytes.Contains(val, []byte("->")) {
		return isIdentifierPath(val) &&
			(!s.isRandom() || s.isCamelCase() || q.echoesName(val[bytes.LastIndexAny(val, ".:>")+1:]))
	}
	if q.sep.eq > 0 && !q.sep.space { // of a shell
		return false
	}
	return s.digits == 0 && s.others == bytes.Count(val, []byte("_")) && !s.isRandom() ||
		bytes.HasSuffix(val, []byte("_t")) ||
		q.ask != forSecret && isIdentifier(val) || q.echoesName(val)
}

// echoesName reports whether a value ends in the same word as its name, in camel case or snake case: private_key:
// RSAPrivateKey.
func (q *candidate) echoesName(val []byte) bool {
	if len(val) == 0 || len(val) > maxName || val[len(val)-1]|0x20 != q.name[len(q.name)-1]|0x20 ||
		bytes.IndexByte(val, ' ') >= 0 {
		return false
	}
	n, v := parseName(q.name), parseName(val)
	if n.parts == 0 || v.parts < 2 {
		return false
	}
	last := n.partAt(n.parts - 1)
	return len(last) > 2 && bytes.Equal(v.partAt(v.parts-1), last) && isIdentifier(val)
}

// isIdentifierPath reports whether val consists of names joined by dots, colons and arrows, each beginning with a letter.
func isIdentifierPath(val []byte) bool {
	for _, part := range bytes.FieldsFunc(val, func(r rune) bool { return strings.ContainsRune(".:->", r) }) {
		if classes[part[0]]&letter == 0 && part[0] != '_' {
			return false
		}
	}
	return true
}

// isIdentifier reports whether val is a program identifier: words in camel case or joined by underscores, and few digits.
// A word must have three letters, with vowels. Of random texts of letters and digits, two percent look like that at 16
// characters, half a percent at 24. The function is therefore used only if a value has no quotes or is short.
func isIdentifier(val []byte) bool {
	words, letters, digits, joins := 0, 0, 0, 0
	for i := 0; i < len(val); {
		switch k := classes[val[i]]; {
		case k&letter != 0:
			n := wordEnd(val, i)
			capitals := n-i > 1 && classes[val[n-1]]&upper != 0
			short := capitals && n-i <= 5 && (i == 0 || val[i-1] == '_' || n == len(val) || val[n] == '_')
			if n-i >= 3 && (short || isPronounceable(val[i:n])) {
				words, letters = words+1, letters+n-i
			}
			if i == 0 || val[i-1] == '_' || !capitals && k&upper != 0 && n-i > 1 {
				joins++
			}
			i = n
			continue
		case k&digit != 0:
			digits++
		case val[i] != '_':
			return false
		}
		i++
	}
	return words > 0 && joins > 1 && letters*5 >= len(val)*3 && letters*3 >= words*10 && digits*4 <= len(val) &&
		shapeOf(val).turns*2 <= len(val)
}

// wordEnd returns the end of the word of letters that begins at i: a capital and lower case, or all of one case.
func wordEnd(val []byte, i int) int {
	if classes[val[i]]&lower != 0 {
		return runEnd(val, i, lower)
	}
	n := runEnd(val, i, upper)
	switch {
	case n == i+1:
		return runEnd(val, n, lower)
	case n < len(val) && classes[val[n]]&lower != 0:
		n-- // the capital of the next word
	}
	return n
}

// isPronounceable reports whether letters could be a word: at least a quarter are vowels, and at most three other letters are in
// a row.
func isPronounceable(w []byte) bool {
	vowels, row := 0, 0
	for _, c := range w {
		row++
		if bytes.IndexByte([]byte("aeiouy"), c|0x20) >= 0 {
			vowels, row = vowels+1, 0
		}
		if row > 3 {
			return false
		}
	}
	return vowels*4 >= len(w) && vowels*4 <= len(w)*3
}

// isConstant reports whether val is a number in a program, for example 0x115 or 1.302103, or the identifier of a Windows
// user.
func isConstant(val []byte) bool {
	if bytes.HasPrefix(val, []byte("S-1-")) {
		return runEnd(val, 4, digit|joint) == len(val)
	}
	if len(val) > 2 && len(val) <= 18 && val[0] == '0' && val[1]|0x20 == 'x' {
		return shapeOf(val[2:]).hex
	}
	return len(val) > 2 && runEnd(val, 0, digit|dot) == len(val) && bytes.IndexByte(val, '.') > 0
}
