package egress

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestPasses checks that allowed names are reached: exact ones in any case, by wildcard, and with opened TLS.
func TestPasses(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, echo)
	w.host("open.example.com", "93.184.216.36", 443, echo)
	w.host("deep.in.example.org", public2, 8443, echo)
	y := w.start(Config{Allow: append(allow("api.example.com:443", "*.example.org:8443"), Endpoint{Host: "open.example.com", Port: 443, Inspect: true})})
	for url, want := range map[string]string{
		"https://api.example.com/a":          "200 HTTP/2.0 api.example.com /a",
		"https://API.example.com/b":          "200 HTTP/2.0 api.example.com /b",
		"https://open.example.com/d":         "200 HTTP/2.0 open.example.com /d",
		"https://deep.in.example.org:8443/c": "200 HTTP/2.0 deep.in.example.org:8443 /c",
	} {
		if got, err := y.get(url); err != nil || !strings.EqualFold(got, want) {
			t.Errorf("%s: %q, %v", url, got, err)
		}
	}
	y.stop()
	if got := w.seen(KindClosed); len(got) != 4 || got[0].Up == 0 || got[0].Down == 0 || got[0].Via != "connect" {
		t.Errorf("events %+v", got)
	}
	if y.Totals().Connections != 4 || y.open.Load() != 0 {
		t.Errorf("totals %+v, %d open", y.Totals(), y.open.Load())
	}
}

// TestForward checks that a listener leads tools without proxy support to one target only.
func TestForward(t *testing.T) {
	w := newWorld(t)
	y := w.start(Config{Allow: append(allow("*.example.org:443", "192.88.98.7:443"), Endpoint{Host: "git.example.com", Port: 22, Plain: true})})
	w.names["git.example.com"] = [][]string{{public}}
	ln := w.listen(public + ":22")
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, "SSH-2.0-x\r\n") // the server speaks first
		io.Copy(c, c)
		c.Close()
	}()
	near, _ := net.Listen("tcp", "127.0.0.1:0")
	done := make(chan error, 1)
	go func() { done <- y.Forward(t.Context(), near, "git.example.com:22") }()
	c, err := net.Dial("tcp", near.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "hello")
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "SSH-2.0-x\r\nhello" {
		t.Errorf("%q, %v", got, err)
	}
	if got := y.Names(); len(got) != 1 || got[0] != "git.example.com:22" {
		t.Errorf("forwarded to are %v", got)
	}
	for _, target := range []string{"other.example.com:22", "git.example.com:23", "git.example.com", "a.example.org:443", "*.example.org:443"} {
		ln, _ := net.Listen("tcp", "127.0.0.1:0")
		if err := y.Forward(t.Context(), ln, target); err == nil {
			t.Errorf("%s is forwarded to", target)
		}
		// dialling could reach another process that has the port by now
		if err := ln.(*net.TCPListener).SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener for %s was left open", target)
		}
	}
}
