package terminal

import (
	"strings"
	"testing"
)

// TestShown checks that no text from a caller can move the cursor, start a line or hide.
func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"git.status":            "git.status",
		"häuser/日本":             "häuser/日本",
		"a\nb\r\t":              `a\nb\r\t`,
		"zz\x1b[2K\x1b[1A\a":    `zz\x1b[2K\x1b[1A\a`,
		"\u009b2K":              `\u009b2K`,
		"abc\u202etxt":          `abc\u202etxt`,
		"zero\u200bwidth\ufeff": `zero\u200bwidth\ufeff`,
		"bad \xff":              `bad \ufffd`,
	} {
		if got := Shown(in); got != want {
			t.Errorf("shown(%q) = %q, want %q", in, got, want)
		}
	}
	if got := TableCell(strings.Repeat("x", 500)); len([]rune(got)) != 64 {
		t.Errorf("a cell of %d characters", len([]rune(got)))
	}
}
