//go:build linux

package terminal

import (
	"strings"
	"testing"
)

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
