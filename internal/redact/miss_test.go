package redact

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestMisses checks that an altered spelling of a token stays unchanged, is counted and is reported with its line,
// however the text is split.
func TestMisses(t *testing.T) {
	table := answered(t)
	for in, want := range map[string]string{
		"":                                             "0 []",
		"[REDACTED_PASSWORD_1] x":                      "0 []",
		`a \[REDACTED_PASSWORD_1] b`:                   "0 []", // is restored
		"\n\n[redacted_password_1]":                    "1 [{3 [redacted_password_1] false}]",
		"[Redacted_Password_1]":                        "1 [{1 [Redacted_Password_1] false}]",
		`- [REDACTED\_PASSWORD\_1] b`:                  `1 [{1 [REDACTED\_PASSWORD\_1] false}]`,
		`^\[REDACTED_PASSWORD_1\]$`:                    `1 [{1 \[REDACTED_PASSWORD_1\] false}]`,
		`[REDACTED_PASSWORD_1\]`:                       `1 [{1 [REDACTED_PASSWORD_1\] false}]`,
		"?q=%5BREDACTED_IPV4_1%5D&":                    "1 [{1 %5BREDACTED_IPV4_1%5D false}]",
		"%5bredacted%5Fipv4%5f1%5d":                    "1 [{1 %5bredacted%5Fipv4%5f1%5d false}]",
		"[REDACTED_JWT_7]":                             "1 [{1 [REDACTED_JWT_7] true}]",
		"[REDACTED_PASSWORD_X]":                        "1 [{1 [REDACTED_PASSWORD_X] true}]",
		"[redacted_jwt_7]":                             "0 []", // of no session
		"[REDACTED__PASSWORD_1]":                       "0 []", // an escape
		"REDACTED_PASSWORD_1 (redacted)":               "0 []",
		"[redacted] [REDACTED_] [REDACTED_1_1]":        "0 []",
		"[REDACTED_PASSWORD_] [REDACTED_X]":            "0 []",
		"[REDACTED_PASSWORD_1":                         "0 []",
		"[REDACTED_PASS WORD_1] [redacted_é_1]":        "0 []",
		"[REDACTED_[redacted_password_1]":              "1 [{1 [redacted_password_1] false}]",
		"[REDACTED_" + strings.Repeat("A", 80) + "_1]": "0 []",
		strings.Repeat("[redacted_ipv4_1]\n", 3) + strings.Repeat("[REDACTED_B_1]\n", 4): "7 [{1 [redacted_ipv4_1] false} {2 [redacted_ipv4_1] false} {3 [redacted_ipv4_1] false} {4 [REDACTED_B_1] true} {5 [REDACTED_B_1] true}]",
	} {
		for _, cuts := range [][]byte{{0}, {1, 2}, {30}, {255}} {
			out, r := restoreInPieces(t, table, in, cuts)
			if got := fmt.Sprint(r.Left(), " ", r.Missed()); got != want {
				t.Errorf("%q, cuts %v: %s\nwant %s", in, cuts, got, want)
			}
			if out != table.Restore(in) {
				t.Errorf("%q became %q", in, out)
			}
		}
	}
}

// TestMissIsBounded checks that a reported spelling is at most as long as a token, that at most maxMisses are kept, and
// that the text held back stays bounded.
func TestMissIsBounded(t *testing.T) {
	table := NewTable()
	category := strings.Repeat("A_", 16)
	token := table.tokenFor(category, []byte("secret"))
	r := table.Restorer(io.Discard)
	for range 1000 {
		io.WriteString(r, strings.ReplaceAll(token, "_", "%5F")+strings.Repeat("r", 1000)+"\n")
		if len(r.misses.held) > maxSpelling+maxOpener {
			t.Fatalf("%d bytes are held", len(r.misses.held))
		}
	}
	r.Close()
	if m := r.Missed(); r.Left() != 1000 || len(m) != maxMisses || len(m[4].Text) != maxToken || m[4].Line != 5 {
		t.Errorf("%d, %v", r.Left(), m)
	}
}
