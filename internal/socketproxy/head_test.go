package socketproxy

import (
	"bufio"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"bailey"
)

func parsed(t testing.TB, all ...string) (list []bailey.Route) {
	t.Helper()
	for _, s := range all {
		r, err := bailey.ParseRoute(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// TestAllows checks that a route matches only if method, path and every parameter match completely.
func TestAllows(t *testing.T) {
	for route, c := range map[string]struct{ yes, no []string }{
		"GET /a/{x}/b":      {[]string{"/a/1/b", "/v1/a/1/b", "/v1.41/a/1/b", "/v4.3.1/a/{x}/b"[:7] + "/a/c/b"}, []string{"/a/b", "/a/1/2/b", "/a/1", "/a/1/b/c", "/v/a/1/b", "/v1.2.3.4/a/1/b", "/v12345/a/1/b", "/w1/a/1/b", "/v1./a/1/b", "/a/1/b?x", "/a/1/B"}},
		"GET /a/{x...}/b":   {[]string{"/a/1/b", "/a/1/2/b", "/a/b/b", "/a/b/b/b"}, []string{"/a/b", "/a/1/2", "/a/1/b/c"}},
		"GET /{x...}":       {[]string{"/a", "/a/b"}, nil},
		"GET /a?x&y":        {[]string{"/a", "/a?x=1", "/a?y=&x=%00"[:7], "/a?x"}, []string{"/a?z=1", "/a?x=1&z=1", "/a?X=1"}},
		"GET /a?f=0&f=no&x": {[]string{"/a?f=0", "/a?f=no&x=1"}, []string{"/a", "/a?x=1", "/a?f=1", "/a?f=", "/a?f"}},
		"GET /a?f=":         {[]string{"/a?f=", "/a?f"}, []string{"/a", "/a?f=1"}},
	} {
		list := parsed(t, route)
		for want, all := range map[bool][]string{true: c.yes, false: c.no} {
			for _, target := range all {
				r, err := parseHead([]byte(get2(target)))
				if err != nil {
					t.Errorf("%s: %v", target, err)
				} else if got := isAllowed(list, r); got != want {
					t.Errorf("%s allows %s: %v", route, target, got)
				}
			}
		}
	}
	if r, _ := parseHead([]byte(get2("/a"))); isAllowed(nil, r) || isAllowed([]bailey.Route{{}}, r) || isAllowed(parsed(t, "GET /a"), request{}) {
		t.Error("nothing allows something")
	}
}

func get2(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n" }

// FuzzRequest checks that net/http and parse both read a forwarded request as parse read the original. An allowed path
// must not contain empty, "." or ".." segments.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(get2("/v1.41/containers/json?all=1&filters=%7B%7D")))
	f.Add([]byte(get2("/images/a%2Fb:1@sha256:0/json")))
	if text, err := os.ReadFile("testdata/attacks.json"); err == nil {
		for line := range strings.Lines(string(text)) {
			if _, rest, ok := strings.Cut(line, `"say": "`); ok {
				say, _, _ := strings.Cut(rest, `", "`)
				f.Add([]byte(strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\u0000`, "\x00", `\"`, `"`).Replace(say)))
			}
		}
	}
	list := parsed(f, "GET /containers/json?all", "GET /containers/{id}/stats?stream=0", "HEAD /_ping", "GET /images/{name...}/json?x")
	f.Fuzz(func(t *testing.T, head []byte) {
		r, err := parseHead(head)
		if err != nil {
			return
		}
		wire := r.wireText()
		again, err := parseHead([]byte(wire))
		if err != nil || again.wireText() != wire {
			t.Fatalf("%q becomes %q, %v", wire, again.wireText(), err)
		}
		in := bufio.NewReader(strings.NewReader(wire))
		other, err := http.ReadRequest(in)
		if err != nil || in.Buffered() > 0 || other.ContentLength != 0 || len(other.TransferEncoding) > 0 {
			t.Fatalf("%q: %v", wire, err)
		}
		query, err := url.ParseQuery(other.URL.RawQuery)
		if err != nil || other.Method != r.method || other.URL.Path != "/"+strings.Join(r.path, "/") || other.URL.RawPath != "" || len(query) != len(r.query) {
			t.Fatalf("%q is read as %s %q %v", wire, other.Method, other.URL.Path, query)
		}
		for name, value := range r.query {
			if len(query[name]) != 1 || query.Get(name) != value {
				t.Fatalf("%s is %q, and was %q", name, query[name], value)
			}
		}
		if clean := "/" + strings.Join(r.path, "/"); strings.Contains(clean, "//") || strings.Contains(clean+"/", "/./") || strings.Contains(clean+"/", "/../") {
			t.Fatalf("%q", clean)
		}
		if isAllowed(list, r) {
			_, stream := r.query["stream"]
			if method := r.method; method != "GET" && method != "HEAD" || stream && r.query["stream"] != "0" || strings.HasSuffix(r.path[len(r.path)-1], "stats") && !stream {
				t.Fatalf("%s is allowed", r)
			}
		}
	})
}
