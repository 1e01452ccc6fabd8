package terminal

import (
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
