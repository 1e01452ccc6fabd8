package tui

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// seen returns text on one line in which every character is visible and none acts on a terminal. It escapes characters
// that are controls, have a direction, have no width or are unassigned. A combining mark stays if it follows a letter,
// at most two for each letter. Backslashes before an escape, or before text that looks like one, are doubled, so that
// different texts never look the same.
func seen(s string) string {
	var b strings.Builder
	marks, slashes := 2, 0
	escape := func(r rune) {
		b.WriteString(strings.Repeat(`\`, slashes))
		fmt.Fprintf(&b, `\u{%x}`, r)
		marks = 2
	}
	for i, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me) && marks < 2 && !invisible(r):
			marks++
			b.WriteRune(r)
		case r != ' ' && (!unicode.IsGraphic(r) || invisible(r) || unicode.In(r, unicode.Mn, unicode.Me)) || r == unicode.ReplacementChar:
			escape(r)
		default:
			if strings.HasPrefix(s[i:], "u{") {
				b.WriteString(strings.Repeat(`\`, slashes))
			}
			marks = 2
			if unicode.IsLetter(r) {
				marks = 0
			}
			b.WriteRune(r)
		}
		if slashes++; r != '\\' {
			slashes = 0
		}
	}
	return b.String()
}

// invisible reports characters that are graphic by category but cannot be seen, or look like a common space.
func invisible(r rune) bool {
	return unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == '\u2800'
}

// block returns the lines of a text. A line of printable ASCII, as in every signed text, stays unchanged; others are
// escaped by seen.
func block(s string) (lines []string) {
	for line := range strings.Lines(s) {
		if line = strings.TrimSuffix(line, "\n"); strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
			line = seen(line)
		}
		lines = append(lines, line)
	}
	return lines
}

// width returns the number of cells of a line.
func width(s string) int { return ansi.StringWidth(s) }

// cut shortens a line, styled or not, to w cells.
func cut(s string, w int) string {
	if w <= 0 {
		return ""
	}
	return ansi.Truncate(s, w, "…")
}

// pad extends a line with spaces, or shortens it, to w cells.
func pad(s string, w int) string {
	s = cut(s, w)
	return s + strings.Repeat(" ", max(0, w-width(s)))
}

// fold breaks a plain line into pieces of at most w cells, so that all of it is visible.
func fold(s string, w int) []string {
	if w < 2 {
		return []string{s} // nothing fits; it is cut when it is shown
	}
	return strings.Split(ansi.Hardwrap(s, w, true), "\n")
}

// prose breaks text of Bailey itself between words if possible.
func prose(s string, w int) []string {
	if w < 8 {
		return fold(s, w)
	}
	return strings.Split(ansi.Wrap(s, w, ""), "\n")
}
