package policy

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Bounds on what the parser is given: it recurses once per bracket, and a Go program that runs out of
// stack cannot be caught. The largest real rules are lists of names, some hundred bytes of brackets deep.
const (
	maxSource = 16 << 20 // bytes of one file
	maxRule   = 64 << 10 // bytes of one rule
	maxDepth  = 32       // brackets within brackets
)

// survey walks a file once, the way Cedar's scanner does, before any of it is parsed. It returns the
// offsets behind each rule's semicolon, and the offset and words of what makes the file unfit.
func survey(t []byte) (ends []int, at int, bad string) {
	if at, bad := legible(t); bad != "" {
		return nil, at, bad
	}
	depth, start := 0, -1
	for i := 0; i < len(t); {
		n := skip(t[i:])
		if n > 0 {
			i += n
			continue
		}
		if start < 0 {
			start = i
		}
		switch t[i] {
		case '"':
			i += quoted(t[i:])
			continue
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		i++
		if depth > maxDepth {
			return nil, start, fmt.Sprintf("a rule nests deeper than %d brackets: split it", maxDepth)
		}
		if i-start > maxRule {
			return nil, start, fmt.Sprintf("a rule is longer than %d bytes: split it", maxRule)
		}
		if t[i-1] == ';' {
			ends, depth, start = append(ends, i), 0, -1
		}
	}
	return ends, 0, ""
}

// legible refuses what a reader of the file would not see: controls, and invisible or direction-changing
// characters that make a rule read differently from what it says (CVE-2021-42574).
func legible(t []byte) (at int, bad string) {
	if len(t) > maxSource {
		return 0, fmt.Sprintf("the file is larger than %d bytes", maxSource)
	}
	for i := 0; i < len(t); {
		r, n := utf8.DecodeRune(t[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return i, "invalid UTF-8"
		case hidden(r):
			return i, fmt.Sprintf("invisible character %U: write it as an escape or leave it out", r)
		}
		i += n
	}
	return 0, ""
}

func hidden(r rune) bool {
	if r == '\t' || r == '\n' || r == '\r' {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// skip returns the length of the white space or comment t begins with.
func skip(t []byte) int {
	end := -1
	switch {
	case t[0] == ' ' || t[0] == '\t' || t[0] == '\n' || t[0] == '\r':
		return 1
	case bytes.HasPrefix(t, []byte("//")):
		end = bytes.IndexByte(t, '\n')
	case bytes.HasPrefix(t, []byte("/*")):
		if end = bytes.Index(t[2:], []byte("*/")); end >= 0 {
			end += 4
		}
	default:
		return 0
	}
	if end < 0 {
		return len(t)
	}
	return end
}

// quoted returns the length of the string literal t begins with, or of all of t when it does not end.
func quoted(t []byte) int {
	for i := 1; i < len(t); i++ {
		switch t[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(t)
}

// line returns the line an offset stands in, counted from 1.
func line(t []byte, at int) int { return 1 + bytes.Count(t[:at], []byte("\n")) }
