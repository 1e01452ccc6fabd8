//go:build linux

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
