package tui

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// seen is a text of which everything can be seen and nothing acts on a terminal: one line, with what is a control, has a
// direction or no width, or stands for nothing, escaped. A mark that belongs over a letter stays where it has one, and
// two on a letter are as many as there may be. Backslashes before an escape, or before what reads like one, are doubled:
// what differs is not shown alike.
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

// invisible tells of characters that are graphic by their category and that nobody sees, or takes for a common blank.
func invisible(r rune) bool {
	return unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == '\u2800'
}

// block is a text of several lines: those of printable ASCII as they are, which is every one that is signed, others seen.
func block(s string) (lines []string) {
	for line := range strings.Lines(s) {
		if line = strings.TrimSuffix(line, "\n"); strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
			line = seen(line)
		}
		lines = append(lines, line)
	}
	return lines
}

// width is how many cells a line takes.
func width(s string) int { return ansi.StringWidth(s) }

// cut shortens a line, styled or not, to so many cells.
func cut(s string, w int) string {
	if w <= 0 {
		return ""
	}
	return ansi.Truncate(s, w, "…")
}

// pad fills a line with blanks, or shortens it, to so many cells.
func pad(s string, w int) string {
	s = cut(s, w)
	return s + strings.Repeat(" ", max(0, w-width(s)))
}

// fold breaks a plain line into pieces of at most w cells, so that all of it is shown.
func fold(s string, w int) []string {
	if w < 2 {
		return []string{s} // nothing fits: it is cut where it is shown
	}
	return strings.Split(ansi.Hardwrap(s, w, true), "\n")
}

// prose breaks words of our own between them where it can.
func prose(s string, w int) []string {
	if w < 8 {
		return fold(s, w)
	}
	return strings.Split(ansi.Wrap(s, w, ""), "\n")
}
