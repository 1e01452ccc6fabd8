package egress

import (
	"bytes"
	"context"
	"testing"
)

// FuzzSocks checks that any input gives a target in its one spelling, or a refusal with a reason.
func FuzzSocks(f *testing.F) {
	for _, s := range []string{"\x01\x00\x05\x01\x00\x03\x05a.b.c\x01\xbb", "\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x01\xbb", "\x01\x00\x05\x03\x00\x04", "\x02\x01\x02", "\x01\x00\x05\x01\x00\x03\x00\x00\x00"} {
		f.Add([]byte(s))
	}
	p, err := New(Config{Allow: allow("a.b.c:443")})
	if err != nil {
		f.Fatal(err)
	}
	l := p.newServeScope(context.Background())
	f.Fuzz(func(t *testing.T, b []byte) {
		c := l.newClient(script{bytes.NewReader(b)})
		defer c.Close()
		if !c.socksGreet() {
			return
		}
		got, ref := c.socksRequest()
		if ref != nil {
			if ref.reply == 0 || !ascii(ref.String()) || ref.why == "" {
				t.Fatalf("%+v", ref)
			}
			return
		}
		if got == (Target{}) {
			return
		}
		if again, ref := ParseTarget(got.String()); ref != nil || again != got {
			t.Fatalf("%+v is read again as %+v, %v", got, again, ref)
		}
	})
}

// FuzzAnswer checks that an upstream proxy's response is a tunnel only if it is HTTP with status 2xx, and that an error
// contains only its status.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200\r\n\r\n", "HTTP/1.1 407 no\r\nX: y\r\n\r\n", "SSH-2.0\r\n\r\n", "HTTP/1.1 \r\n\r\n", ""} {
		f.Add([]byte(s))
	}
	u := &upstream{}
	f.Fuzz(func(t *testing.T, b []byte) {
		why := u.openTunnel(script{bytes.NewReader(b)}, "a.b.c:443")
		if why == "" && !bytes.HasPrefix(b, []byte("HTTP/1.1 2")) && !bytes.HasPrefix(b, []byte("HTTP/1.0 2")) {
			t.Fatalf("%q is a tunnel", b)
		}
		if !ascii(why) || len(why) > 100 {
			t.Fatalf("%q", why)
		}
	})
}
