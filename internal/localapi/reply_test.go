package localapi

import (
	"strings"
	"testing"

	"bailey"
)

// TestTellWalls checks that the caller is told if its call ran in a lesser cage or without one, and not if the call did
// not run. No quoted text may control the terminal.
func TestTellWalls(t *testing.T) {
	lesser, none := &bailey.Cage{Kind: "landlock", Lesser: "no namespaces\x1b[2J"}, &bailey.Cage{Kind: bailey.Uncaged}
	for name, c := range map[string]struct {
		reply Reply
		want  string
	}{
		"full":     {Reply{Executed: true, Cage: &bailey.Cage{Kind: "full"}}, ""},
		"lesser":   {Reply{Executed: true, Cage: lesser}, "bailey: it ran in the jail landlock, not in the full one: no namespaces\\x1b[2J\n"},
		"none":     {Reply{Executed: true, Cage: none}, "bailey: it ran without a jail: only policy restricted it\n"},
		"not run":  {Reply{Cage: lesser}, ""},
		"nor this": {Reply{Cage: none}, ""},
		"refused":  {Reply{Executed: true, Refused: []string{"a.test:443\n"}}, "bailey: connection refused: a.test:443\\n\n"},
	} {
		var b strings.Builder
		if c.reply.TellWalls(&b); b.String() != c.want {
			t.Errorf("%s: %q, want %q", name, b.String(), c.want)
		}
	}
}
