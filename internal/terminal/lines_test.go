package terminal

import (
	"strings"
	"testing"
)

// TestDifferenceHidesNothing checks that a long line is shown up to its end.
func TestDifferenceHidesNothing(t *testing.T) {
	long := "permit (principal, action, resource)" + strings.Repeat(" ", 5000) + `unless { "the end" == "" };`
	shown := Diff("forbid (principal, action, resource);\n", long+"\n")
	if !strings.Contains(shown, `unless { "the end" == "" };`) {
		t.Errorf("%.400s", shown)
	}
	if s := Diff("", "a\u00a0b\u2003c\u3164d\ufe0fe\u2800f\u034fg ü\n"); s != "  + a\\u00a0b\\u2003c\\u3164d\\ufe0fe\\u2800f\\u034fg ü\n" {
		t.Errorf("%q", s)
	}
	for line := range strings.Lines(shown) {
		if len([]rune(line)) > 310 {
			t.Errorf("a line of %d characters", len([]rune(line)))
		}
	}
}

func TestDifference(t *testing.T) {
	for _, c := range []struct{ old, now, want string }{
		{"", "", ""}, {"a\n", "a\n", ""}, {"", "a\n", "  + a\n"}, {"a\nb\n", "b\n", "  - a\n"}, {"a\nb\nc\n", "a\nx\nc\n", "  - b\n  + x\n"},
		{"a\na\n", "a\n", "  - a\n"}, {"", "\x1b[2J\u202ex\n", "  + \\u001b[2J\\u202ex\n"}, {"", strings.Repeat("é", 601), "  + " + strings.Repeat("é", 300) + "\n  +…" + strings.Repeat("é", 300) + "\n  +…é\n"},
	} {
		if got := Diff(c.old, c.now); got != c.want {
			t.Errorf("%q to %q: %.200q, want %q", c.old, c.now, got, c.want)
		}
	}
}

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
