package terminal

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CutAt returns s, cut to most bytes and an ellipsis if it is longer.
func CutAt(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// Indent returns raw indented by two spaces, or unchanged if it is not valid JSON. The result is not escaped for a
// terminal.
func Indent(raw json.RawMessage) string {
	b, err := json.MarshalIndent(raw, "", "  ")
	if err != nil {
		return string(raw)
	}
	return string(b)
}

// IndentValue returns v as indented JSON that is safe for a terminal, or the text of the error if v has no JSON form.
func IndentValue(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return JSON(Indent(b))
}

// Diff shows the changed lines between two texts, without their common beginning and end.
func Diff(old, now string) string {
	a, b := SplitLines(old), SplitLines(now)
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var out strings.Builder
	for _, l := range a {
		WriteLine(&out, '-', l)
	}
	for _, l := range b {
		WriteLine(&out, '+', l)
	}
	return out.String()
}

// SplitLines returns the lines of s without their line ends, or nil if s is empty.
func SplitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// lineWidth is the maximum number of characters that are printed in one line of a terminal.
const lineWidth = 300

// WriteLine shows an added or removed line in full, a long one in pieces: a person must not confirm text without seeing it.
func WriteLine(out *strings.Builder, sign byte, line string) {
	rest := []rune(escapeLine(line))
	for mark := " "; ; mark = "…" {
		n := min(len(rest), lineWidth)
		fmt.Fprintf(out, "  %c%s%s\n", sign, mark, string(rest[:n]))
		if rest = rest[n:]; len(rest) == 0 {
			return
		}
	}
}

// CutLine returns a line that is safe to print on a terminal, cut to lineWidth.
func CutLine(line string) string {
	if r := []rune(escapeLine(line)); len(r) > lineWidth {
		return string(r[:lineWidth]) + "…"
	}
	return escapeLine(line)
}

// escapeLine returns a line in which characters that move the cursor or are invisible are escaped.
func escapeLine(line string) string {
	var out strings.Builder
	for _, r := range line {
		if r == '\t' || r == ' ' || unicode.IsGraphic(r) && !isBlank(r) {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, "\\u%04x", r)
		}
	}
	return out.String()
}

// isBlank reports whether r is a graphic character that is invisible or looks like an ordinary space.
func isBlank(r rune) bool {
	return r != ' ' && unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == '\u2800'
}

// Indented returns the lines of s, each escaped for a terminal and after two spaces.
func Indented(s string) string {
	var b strings.Builder
	for _, l := range SplitLines(s) {
		b.WriteString("  " + escapeLine(l) + "\n")
	}
	return b.String()
}

// TableCell returns a text for a table: escaped, and cut so that one row does not widen the column.
func TableCell(s string) string {
	const most = 64
	s = Shown(s)
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
