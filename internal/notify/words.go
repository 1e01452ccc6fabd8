package notify

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plainLine returns s as one line of visible characters with a limited number of bytes. A character that is invisible,
// moves the cursor or changes the writing direction is replaced by its number, as in the text of a question (package
// canon).
func plainLine(s string, most int) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		piece := s[:n]
		switch {
		case r == utf8.RuneError && n == 1:
			piece = fmt.Sprintf(`\x{%02x}`, s[0])
		case !isVisible(r):
			piece = fmt.Sprintf(`\u{%x}`, r)
		}
		if b.Len()+len(piece)+len("…") > most {
			b.WriteString("…")
			break
		}
		b.WriteString(piece)
		s = s[n:]
	}
	return b.String()
}

func isVisible(r rune) bool {
	return r == ' ' || unicode.IsGraphic(r) &&
		!unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) &&
		r != '\u2800'
}

// plainWord returns s without characters that a chat could take for markup, a mention or a link.
func plainWord(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return '?'
	}, plainLine(s, 100))
}
