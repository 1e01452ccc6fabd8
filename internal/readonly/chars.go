package readonly

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// blank lists characters that display as nothing but belong to no category of format characters. Unicode names them
// fillers, variation selectors and the Braille blank.
const blank = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u2800\u3164\uffa0\ufffc"

// checkCharacters refuses a line that a person, a log or a second parser could read differently from the shell: control
// characters, line ends, invisible and bidirectional characters (CVE-2021-42574), and text that is not UTF-8.
func checkCharacters(line string) *refusal {
	if len(line) > MaxLine {
		return newRefusal("Split the line.", "the line has %d bytes, more than %d", len(line), MaxLine)
	}
	brackets := 0
	for i := 0; i < len(line); {
		c, size := rune(line[i]), 1
		if c >= utf8.RuneSelf {
			c, size = utf8.DecodeRuneInString(line[i:])
		}
		switch {
		case c == '(' || c == '{' || c == '[' || c == '`':
			brackets++
		case c == '\n' || c == '\r':
			return newRefusal("Send one line for each call, or join commands with ;",
				"the line contains a line break at byte %d", i)
		case c < ' ' && c != '\t' || c == 0x7f:
			return newRefusal("Remove the character.", "the line contains the control character U+%04X at byte %d", c,
				i)
		case c >= utf8.RuneSelf && isHidden(c, size):
			return newRefusal("Remove the character.",
				"the line contains the invisible or control character U+%04X at byte %d", c, i)
		}
		i += size
	}
	if brackets > maxNesting {
		return newRefusal("Split the line.", "the line contains more than %d brackets", maxNesting)
	}
	return nil
}

// isHidden reports whether c, which is not ASCII, is a control, format, separator, private or blank character, or a byte
// that is not UTF-8.
func isHidden(c rune, size int) bool {
	return c == utf8.RuneError && size == 1 || unicode.In(c, unicode.C, unicode.Z, unicode.Variation_Selector) ||
		c >= 0xe0000 || strings.ContainsRune(blank, c)
}
