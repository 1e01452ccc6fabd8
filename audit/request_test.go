package audit

import (
	"bytes"
	"strings"
	"testing"
)

// TestRequestHasOneEncoding checks that a witness accepts only a request that it can write again byte for byte.
func TestRequestHasOneEncoding(t *testing.T) {
	hash := "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
	for text, proof := range map[string]int{
		"old 0\n\nnote": 0,
		"old 0\n\n":     0,
		"old 7\n" + hash + "\n" + hash + "\n\na\n\nb": 2,
		"":                                   -1,
		"old 0":                              -1,
		"old 0\n":                            -1,
		"old 00\n\nnote":                     -1,
		"old +1\n\nnote":                     -1,
		"old -1\n\nnote":                     -1,
		"old 18446744073709551616\n\nnote":   -1,
		"OLD 1\n\nnote":                      -1,
		"old 1\r\n\r\nnote":                  -1,
		"old 1\nAQE=\n\nnote":                -1,
		"old 1\n" + hash[:42] + "F=\n\nnote": -1, // unused bits are set
		"old 1\n" + strings.Repeat(hash+"\n", 64) + "\nnote": -1,
		"old 0\n\n" + strings.Repeat("x", MaxRequest):        -1,
	} {
		r, err := ParseRequest([]byte(text))
		if (err == nil) != (proof >= 0) || err == nil && (len(r.Proof) != proof || string(r.Text()) != text) {
			t.Errorf("%.60q: %+v %v", text, r, err)
		}
	}
}

// FuzzParseRequest checks that a witness accepts only a request that Text writes the same way.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte("old 3\nAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n\na\n1\nb\n\n— a b\n"))
	f.Add([]byte("old 0\n\n\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := ParseRequest(text); err == nil && !bytes.Equal(r.Text(), text) {
			t.Errorf("%q reads as %q", text, r.Text())
		}
	})
}
