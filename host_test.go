package bailey

import (
	"errors"
	"testing"
)

func TestParseEndpoint(t *testing.T) {
	for in, want := range map[string]string{
		"Example.COM.:443": "example.com:443", "*.a.Example:8443": "*.a.example:8443", "192.0.2.1:22": "192.0.2.1:22", "[fd12::1]:22": "[fd12::1]:22",
		"localhost:1": "localhost:1", "xn--bcher-kva.example:65535": "xn--bcher-kva.example:65535",
	} {
		if e, err := ParseEndpoint(in); err != nil || e.String() != want || e.Words() != want {
			t.Errorf("%s: %s, %v", in, e, err)
		}
	}
	for _, in := range []string{"", ":", "a", "a:", ":1", "a:0", "a:01", "a:+1", "a:65536", "a:1:2", "a b:1", "a\x00:1", "u@a:1", "a%2e:1", "*:1", "*.com:1", "*.*.a.b:1",
		"a.*.b:1", "*.127.0.0.1:1", "*.[::1]:1", "[a.example]:1", "[127.0.0.1]:1", "::1:1", "[::1:1", "[fe80::1%eth0]:1", "[::ffff:1.2.3.4]:1", "[FD12::1]:1", "127.1:1", "0x7f000001:1",
		"0177.0.0.1:1", "-a:1", "a-.b:1", "a..b:1", "a\u3002b:1"} {
		if e, err := ParseEndpoint(in); !errors.Is(err, Invalid) || e != (Endpoint{}) {
			t.Errorf("%q: %v, %v", in, e, err)
		}
	}
}

// FuzzEndpoint checks that if an endpoint parses, its String form parses to the same endpoint.
func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"a.example:443", "*.a.example:1", "[::1]:2", "10.0.0.1:3", "A.:4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEndpoint(s)
		if err != nil {
			return
		}
		if again, err := ParseEndpoint(e.String()); err != nil || again != e {
			t.Fatalf("%q is %v, and that %v: %v", s, e, again, err)
		}
	})
}
