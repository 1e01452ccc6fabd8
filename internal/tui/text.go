package tui

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// escapeText returns text on one line in which every character is visible and none acts on a terminal. It escapes characters
// that are controls, have a direction, have no width or are unassigned. A combining mark stays if it follows a letter,
// at most two for each letter. Backslashes before an escape, or before text that looks like one, are doubled, so that
// different texts never look the same.
func escapeText(s string) string {
	var b strings.Builder
	marks, slashes := 2, 0
	escape := func(r rune) {
		b.WriteString(strings.Repeat(`\`, slashes))
		fmt.Fprintf(&b, `\u{%x}`, r)
		marks = 2
	}
	for i, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me) && marks < 2 && !isInvisible(r):
			marks++
			b.WriteRune(r)
		case r != ' ' && (!unicode.IsGraphic(r) || isInvisible(r) || unicode.In(r, unicode.Mn, unicode.Me)) ||
			r == unicode.ReplacementChar:
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

// isInvisible reports characters that are graphic by category but cannot be seen, or look like a common space.
func isInvisible(r rune) bool {
	return unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
		r == '\u2800'
}

// escapeLines returns the lines of a text. A line of printable ASCII, as in every signed text, stays unchanged; others are
// escaped by seen.
func escapeLines(s string) (lines []string) {
	for line := range strings.Lines(s) {
		if line = strings.TrimSuffix(line, "\n"); strings.ContainsFunc(line,
			func(r rune) bool { return r < ' ' || r > '~' }) {
			line = escapeText(line)
		}
		lines = append(lines, line)
	}
	return lines
}

// cellWidth returns the number of cells of a line.
func cellWidth(s string) int { return ansi.StringWidth(s) }

// truncateLine shortens a line, styled or not, to w cells.
func truncateLine(s string, w int) string {
	if w <= 0 {
		return ""
	}
	return ansi.Truncate(s, w, "…")
}

// padToWidth extends a line with spaces, or shortens it, to w cells.
func padToWidth(s string, w int) string {
	s = truncateLine(s, w)
	return s + strings.Repeat(" ", max(0, w-cellWidth(s)))
}

// wrapHard breaks a plain line into pieces of at most w cells, so that all of it is visible.
func wrapHard(s string, w int) []string {
	if w < 2 {
		return []string{s} // nothing fits; it is cut when it is shown
	}
	return strings.Split(ansi.Hardwrap(s, w, true), "\n")
}

// wrapWords breaks text of Bailey itself between words if possible.
func wrapWords(s string, w int) []string {
	if w < 8 {
		return wrapHard(s, w)
	}
	return strings.Split(ansi.Wrap(s, w, ""), "\n")
}

// textStyler adds text attributes, and colours if they are wanted (https://no-color.org).
type textStyler bool

func (textStyler) applySGR(code, s string) string {
	if s == "" {
		return ""
	}
	return "\x1b[" + code + "m" + s + "\x1b[m"
}

func (i textStyler) bold(s string) string    { return i.applySGR("1", s) }
func (i textStyler) reverse(s string) string { return i.applySGR("7", s) }

func (i textStyler) colorOrStyle(code, otherwise, s string) string {
	if i {
		return i.applySGR(code, s)
	}
	if otherwise == "" {
		return s
	}
	return i.applySGR(otherwise, s)
}

func (i textStyler) faint(s string) string       { return i.colorOrStyle("90", "", s) }
func (i textStyler) labelText(s string) string   { return i.colorOrStyle("36", "", s) }
func (i textStyler) errorText(s string) string   { return i.colorOrStyle("1;31", "1", s) }
func (i textStyler) warningText(s string) string { return i.colorOrStyle("33", "", s) }
func (i textStyler) successText(s string) string { return i.colorOrStyle("32", "", s) }
