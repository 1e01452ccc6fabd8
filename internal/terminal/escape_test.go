package terminal

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestAttackEscapes checks that the output of a tool cannot control the terminal, even if it arrives in pieces.
func TestAttackEscapes(t *testing.T) {
	for text, want := range map[string]string{
		"plain\tü €\n":                        "plain\tü €\n",
		"\x1b]0;title\x07\x1b[2J":             `\x1b]0;title\a\x1b[2J`,
		"\x1b]52;c;ZXZpbA==\x1b\\":            `\x1b]52;c;ZXZpbA==\x1b\`,
		"ok\rno":                              `ok\rno`,
		"a\u202eb\u200bc\u2028d":              `a\u202eb\u200bc\u2028d`,
		"\u009b2J \x9b2J \xc3( \xff \xe2\x82": `\u009b2J \x9b2J \xc3( \xff \xe2\x82`,
		"\ufffd":                              `\ufffd`,
	} {
		for size := 1; size <= len(text); size++ {
			var b strings.Builder
			e := &Escaped{W: &b}
			for i := 0; i < len(text); i += size {
				if n, err := e.Write([]byte(text[i:min(i+size, len(text))])); n == 0 || err != nil {
					t.Fatal(n, err)
				}
			}
			e.Close()
			if b.String() != want {
				t.Errorf("%q in pieces of %d: %q, want %q", text, size, b.String(), want)
			}
		}
	}
}

func FuzzEscaped(f *testing.F) {
	f.Add([]byte("\x1b[2J\xe2\x82"), 1)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		if size < 1 {
			return
		}
		var b strings.Builder
		e := &Escaped{W: &b}
		for rest := text; len(rest) > 0; {
			n := min(size, len(rest))
			e.Write(rest[:n])
			rest = rest[n:]
		}
		e.Close()
		for _, r := range b.String() {
			if r != '\n' && r != '\t' && Strange(r) {
				t.Fatalf("%q gives %q", text, b.String())
			}
		}
		if utf8.Valid(text) && !strings.ContainsFunc(string(text), func(r rune) bool { return r != '\n' && r != '\t' && Strange(r) }) && b.String() != string(text) {
			t.Fatalf("%q became %q", text, b.String())
		}
	})
}
