package onboard

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// cleanLines splits a text into lines without hidden content: it removes terminal sequences, overstriking (as nroff writes
// bold) and invisible characters, and expands tabs.
func cleanLines(text string) []string {
	text = text[:min(len(text), MaxText)]
	var lines []string
	for row := range strings.Lines(text) {
		if len(lines) == maxLines {
			break
		}
		lines = append(lines, strings.TrimRight(expandTabs(stripSequences(row[:min(len(row), maxLine)])), " "))
	}
	return lines
}

// stripSequences removes ECMA-48 control sequences, and the character before each backspace.
func stripSequences(row string) string {
	var b []rune
	for i := 0; i < len(row); {
		c, n := utf8.DecodeRuneInString(row[i:])
		switch {
		case c == '\b':
			b = b[:max(0, len(b)-1)]
		case c == 0x1b && i+1 < len(row) && row[i+1] == '[':
			for n = 2; i+n < len(row) && (row[i+n] < 0x40 || row[i+n] > 0x7e); n++ {
			}
			n = min(n+1, len(row)-i)
		case c == utf8.RuneError && n <= 1:
		default:
			b = append(b, c)
		}
		i += n
	}
	return string(b)
}

// expandTabs replaces a tab with the spaces that a terminal shows, and removes other control characters.
func expandTabs(row string) string {
	var b strings.Builder
	column := 0
	for _, c := range row {
		switch {
		case c == '\t':
			n := 8 - column%8
			b.WriteString("        "[:n])
			column += n
		case isHidden(c):
		default:
			b.WriteRune(c)
			column++
		}
	}
	return b.String()
}

// isHidden reports whether a manifest must not contain c.
func isHidden(c rune) bool {
	return unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) || c == utf8.RuneError
}

// flattenText returns foreign text on one line, with white space folded, cut to the given number of bytes.
func flattenText(s string, most int) string {
	s = strings.Join(strings.Fields(strings.Map(func(c rune) rune {
		if isHidden(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, ""))), " ")
	if len(s) <= most {
		return s
	}
	cut := most - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.TrimRight(s[:cut], " ") + "…"
}

func lineIndent(l string) int { return len(l) - len(strings.TrimLeft(l, " ")) }
