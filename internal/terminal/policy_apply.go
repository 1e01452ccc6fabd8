package terminal

import (
	"strings"
)

func Indented(s string) string {
	var b strings.Builder
	for _, l := range SplitLines(s) {
		b.WriteString("  " + escapeLine(l) + "\n")
	}
	return b.String()
}
