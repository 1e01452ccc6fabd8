package egress

import (
	"net/url"
	"testing"
)

// TestBelow checks that a secret for some paths goes to requests at or below them, spelled plainly, and to no other.
func TestBelow(t *testing.T) {
	s := &secret{Injection: Injection{Paths: []string{"github.com:443/a/b.git"}}}
	for address, want := range map[string]bool{
		"https://github.com/a/b.git":                         true,
		"https://github.com/a/b.git/info/refs?service=git-x": true,
		"https://github.com/a/b.git/../c.git/info/refs":      false,
		"https://github.com/a/b.git/./info/refs":             false,
		"https://github.com/a/b.git/..":                      false,
		"https://github.com/a/b.git//info":                   false,
		"https://github.com/a/b.git/%2e%2e/c.git":            false,
		"https://github.com/a/b.git%2f..%2fc.git":            false,
		"https://github.com/a/b.gitx/info/refs":              false,
		"https://github.com/a/c.git/info/refs":               false,
		"https://github.com/":                                false,
		"https://github.com":                                 false,
		"https://github.com/x/a/b.git":                       false,
		"https://github.com/A/b.git":                         false,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.isBelow("github.com:443", u); got != want {
			t.Errorf("%s: %v", address, got)
		}
		if s.isBelow("github.com:8443", u) || s.isBelow("evil.example:443", u) {
			t.Errorf("%s: elsewhere", address)
		}
		if !(&secret{}).isBelow("github.com:443", u) {
			t.Errorf("%s: without a limit", address)
		}
	}
}
