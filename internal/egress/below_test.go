package egress

import (
	"net/http"
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

// TestInjectBelow checks that the proxy replaces the placeholder below the path of the secret, and refuses the request
// elsewhere.
func TestInjectBelow(t *testing.T) {
	w := newWorld(t)
	heard := w.told("api.example.com", public)
	in := secretOf("api.example.com:443")
	in.Paths = []string{"api.example.com:443/a/b"}
	y := w.start(Config{Allow: allow("api.example.com:443"), Inject: []Injection{in}})
	for path, ok := range map[string]bool{"/a/b/refs": true, "/a/c/refs": false, "/": false} {
		r, _ := http.NewRequest("GET", "https://api.example.com"+path, nil)
		r.Header.Set("Authorization", "Bearer "+held)
		res, err := y.client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if !ok {
			if res.StatusCode != http.StatusForbidden || len(heard) > 0 {
				t.Errorf("%s: %s", path, res.Status)
			}
		} else if got := (<-heard).Header.Get("Authorization"); got != "Bearer s3cr3t value" {
			t.Errorf("%s: the host got %q", path, got)
		}
	}
	if got := w.seen(KindMisused); len(got) != 2 {
		t.Errorf("events %+v", got)
	}
}
