package policy

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Limits of the parser's input. The parser recurses once per bracket, and a Go program cannot recover from stack
// overflow. The largest real rules are lists of names, some hundred bytes in brackets.
const (
	maxSource = 16 << 20 // bytes of one file
	maxRule   = 64 << 10 // bytes of one rule
	maxDepth  = 32       // nested brackets
)

// scanRules scans a file once, as Cedar's scanner does, before any part of it is parsed. It returns the offset behind
// the semicolon of each rule. If the file is unfit, it returns the offset and a description of the error.
func scanRules(t []byte) (ends []int, at int, bad string) {
	if at, bad := checkCharacters(t); bad != "" {
		return nil, at, bad
	}
	depth, start := 0, -1
	for i := 0; i < len(t); {
		n := spaceLen(t[i:])
		if n > 0 {
			i += n
			continue
		}
		if start < 0 {
			start = i
		}
		switch t[i] {
		case '"':
			i += stringLen(t[i:])
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

// checkCharacters refuses characters that a reader of the file would not see: control characters, and invisible or
// direction-changing characters that make a rule look different from its meaning (CVE-2021-42574).
func checkCharacters(t []byte) (at int, bad string) {
	if len(t) > maxSource {
		return 0, fmt.Sprintf("the file is larger than %d bytes", maxSource)
	}
	for i := 0; i < len(t); {
		r, n := utf8.DecodeRune(t[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return i, "invalid UTF-8"
		case IsHiddenRune(r):
			return i, fmt.Sprintf("invisible character %U: write it as an escape or leave it out", r)
		}
		i += n
	}
	return 0, ""
}

// IsHiddenRune reports whether a reader of a file would not see a character. White space is visible.
func IsHiddenRune(r rune) bool {
	if r == '\t' || r == '\n' || r == '\r' {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// ReplaceHidden replaces characters in a message that would control a terminal or that a reader would not see.
func ReplaceHidden(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || IsHiddenRune(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// spaceLen returns the length of the white space or comment at the start of t.
func spaceLen(t []byte) int {
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

// stringLen returns the length of the string literal at the start of t, or that of t if the literal does not end.
func stringLen(t []byte) int {
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

// lineNumber returns the line number of an offset, counted from 1.
func lineNumber(t []byte, at int) int { return 1 + bytes.Count(t[:at], []byte("\n")) }

// lazyRegexp compiles a pattern on first use; otherwise every start of the program would pay for it.
func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
