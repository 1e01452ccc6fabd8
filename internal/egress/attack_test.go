package egress

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// Each test in this file is one known way around an allowlist.

// TestAttackUnlisted checks that a refusal names the allowed endpoints and is recorded. The name must not be resolved:
// a lookup is a message to its name server.
func TestAttackUnlisted(t *testing.T) {
	w := newWorld(t)
	y := w.start(Config{Allow: allow("api.example.com:443")})
	_, err := y.get("https://secret-in-a-name.evil.example/")
	if err == nil || !strings.Contains(err.Error(), "egress to secret-in-a-name.evil.example:443 is not allowed; allowed: api.example.com:443") {
		t.Errorf("Go's client says %v", err)
	}
	answer := y.say("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n")
	if !strings.HasPrefix(answer, "HTTP/1.1 403 ") || !strings.Contains(answer, `the egress entry "evil.example:443" would allow it`) || !strings.Contains(answer, "Proxy-Status: bailey; error=http_request_denied") {
		t.Errorf("the answer is %q", answer)
	}
	e := w.await(KindRefused, "evil.example:443")
	if e.Hint == "" || e.Via != "connect" || e.Time.IsZero() {
		t.Errorf("event %+v", e)
	}
	if got := append(w.resolved(), w.reached()...); len(got) > 0 {
		t.Errorf("asked for %v", got)
	}
}

// TestAttackSpellings asks for loopback in every known spelling, by CONNECT, absolute URL and SOCKS5.
func TestAttackSpellings(t *testing.T) {
	w := newWorld(t)
	y := w.start(Config{Allow: allow("api.example.com:443"), Limits: Limits{Events: 1000}})
	hosts := []string{"127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "0", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[0:0:0:0:0:0:0:1]",
		"[::ffff:7f00:1]", "[fe80::1%25lo]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "127.0.0.1.", "api.example.com@127.0.0.1", "api.example.com%00.x", "%61pi.example.com", "169.254.169.254", "metadata.google.internal"}
	for _, h := range hosts {
		if got := y.say("CONNECT " + h + ":443 HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 40") {
			t.Errorf("CONNECT %s: %q", h, got)
		}
		if got := y.say("GET http://" + h + ":443/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 40") {
			t.Errorf("GET http://%s: %q", h, got)
		}
		if got := y.socks(3, 1, []byte(strings.Trim(h, "[]")), 443); got != socksDenied {
			t.Errorf("SOCKS5 %s: %d", h, got)
		}
	}
	for _, addr := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "93.184.216.34"} {
		ip := net.ParseIP(addr)
		kind := byte(4)
		if ip.To4() != nil && !strings.Contains(addr, ":") {
			kind, ip = 1, ip.To4()
		}
		if got := y.socks(kind, 1, ip, 443); got != socksDenied {
			t.Errorf("SOCKS5 of %s: %d", addr, got)
		}
	}
	if got := append(w.resolved(), w.reached()...); len(got) > 0 {
		t.Errorf("asked for %v", got)
	}
}

// socks sends one request and returns the code of the reply, or 255 without a reply.
func (y *yard) socks(kind, command byte, host []byte, port uint16) byte {
	c := y.raw()
	defer c.Close()
	ask := []byte{5, 1, 0, 5, command, 0, kind}
	if kind == 3 {
		ask = append(ask, byte(len(host)))
	}
	ask = binary.BigEndian.AppendUint16(append(ask, host...), port)
	c.Write(ask)
	reply := make([]byte, 12)
	if _, err := io.ReadFull(c, reply); err != nil {
		return 255
	}
	return reply[3]
}

// TestAttackDatagrams checks that no datagram passes (QUIC, DNS) and that nothing listens for the cage.
func TestAttackDatagrams(t *testing.T) {
	w := newWorld(t)
	y := w.start(Config{Allow: allow("api.example.com:443")})
	for name, command := range map[string]byte{"BIND": 2, "UDP ASSOCIATE": 3, "an unknown command": 9} {
		if got := y.socks(3, command, []byte("api.example.com"), 443); got != socksNoCommand {
			t.Errorf("%s: %d", name, got)
		}
	}
	if got := y.socks(3, 1, nil, 443); got != socksDenied {
		t.Errorf("no name: %d", got)
	}
	if got := y.socks(9, 1, []byte("abcd"), 443); got != socksNoAddress {
		t.Errorf("an unknown kind of address: %d", got)
	}
	if got := y.say("\x05\x01\x02"); got != "\x05\xff" {
		t.Errorf("with a password alone: %q", got)
	}
	if got := append(w.resolved(), w.reached()...); len(got) > 0 {
		t.Errorf("asked for %v", got)
	}
}

// TestAttackPrivate checks that an allowed name is refused if any of its addresses is not public, also through a CNAME
// (which the resolver follows).
func TestAttackPrivate(t *testing.T) {
	w := newWorld(t)
	y := w.start(Config{Allow: append(allow("*.example.com:443"), Endpoint{Host: "near.example.org", Port: 443, Private: true}, Endpoint{Host: "meta.example.org", Port: 443, Private: true}), Limits: Limits{Events: 1000}})
	for _, addr := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.1", "100.64.0.1", "0.0.0.0", "64:ff9b::a00:1", "224.0.0.1", "168.63.129.16"} {
		name := strings.NewReplacer(".", "-", ":", "-").Replace("x"+addr+"x") + ".example.com"
		w.names[name] = [][]string{{public, addr}}
		if got := y.say("CONNECT " + name + ":443 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "its address") {
			t.Errorf("%s: %q", addr, got)
		}
	}
	w.names["meta.example.org"] = [][]string{{"fd00:ec2::254"}}
	if got := y.say("CONNECT meta.example.org:443 HTTP/1.1\r\n\r\n"); !strings.Contains(got, "never allowed") {
		t.Errorf("private metadata: %q", got)
	}
	if got := w.reached(); len(got) > 0 {
		t.Errorf("dialled %v", got)
	}
	w.host("near.example.org", "10.0.0.9", 443, echo)
	if got, err := y.get("https://near.example.org/a"); err != nil {
		t.Errorf("a private endpoint: %q, %v", got, err)
	}
}

// TestAttackNear checks that an address of this machine, or of one of its networks, is refused although it looks
// public, by name or as an address. If these networks are unknown, every address must be refused.
func TestAttackNear(t *testing.T) {
	w := newWorld(t)
	own, unknown := []netip.Prefix{netip.MustParsePrefix("93.184.200.0/24"), netip.MustParsePrefix("2606:4700::1/128")}, error(nil)
	y := w.start(Config{Allow: append(allow("*.example.com:443", "93.184.200.7:443", "93.184.201.7:443"), Endpoint{Host: "near.example.org", Port: 443, Private: true}),
		Limits: Limits{Events: 1000}, Own: func() ([]netip.Prefix, error) { return own, unknown }})
	w.names["a.example.com"], w.names["b.example.com"], w.names["c.example.com"] = [][]string{{"93.184.200.9"}}, [][]string{{public, "2606:4700::1"}}, [][]string{{"::ffff:93.184.200.9"}}
	for _, to := range []string{"a.example.com:443", "b.example.com:443", "c.example.com:443", "93.184.200.7:443"} {
		if got := y.say("CONNECT " + to + " HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "this machine or to a network") || !strings.Contains(got, "private: true") {
			t.Errorf("%s: %q", to, got)
		}
	}
	if got := w.reached(); len(got) > 0 {
		t.Errorf("dialled %v", got)
	}
	w.host("near.example.org", "93.184.200.10", 443, echo)
	if got, err := y.get("https://near.example.org/a"); err != nil {
		t.Errorf("a private endpoint: %q, %v", got, err)
	}
	w.host("d.example.com", "93.184.201.7", 443, echo)
	if got, err := y.get("https://d.example.com/a"); err != nil {
		t.Errorf("beside the network: %q, %v", got, err)
	}
	unknown = errors.New("no netlink")
	if got := y.say("CONNECT 93.184.201.7:443 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "cannot be read") {
		t.Errorf("%q", got)
	}
	// The addresses of this machine must be among those that the system returns.
	list, err := interfaceNetworks()
	if err != nil || !slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr("127.0.0.1")) }) {
		t.Errorf("%v, %v", list, err)
	}
}

// TestAttackStreams checks that the requests of a call are limited even if they share one connection, and that finished
// ones free their places.
func TestAttackStreams(t *testing.T) {
	w := newWorld(t)
	var now, most atomic.Int64
	release := make(chan struct{})
	w.host("api.example.com", public, 443, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/quick" {
			return
		}
		for n := now.Add(1); ; {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		<-release
		now.Add(-1)
	})
	y := w.start(Config{Allow: []Endpoint{{Host: "api.example.com", Port: 443, Inspect: true}}, Limits: Limits{Streams: 8, Events: 1000}})
	client := y.client()
	codes := make(chan int, 40)
	ask := func(path string) int {
		res, err := client.Get("https://api.example.com" + path)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer res.Body.Close()
		io.Copy(io.Discard, res.Body)
		if res.ProtoMajor != 2 {
			t.Errorf("%s by %s", path, res.Proto)
		}
		return res.StatusCode
	}
	ask("/quick") // one connection from now on
	for range cap(codes) {
		go func() { codes <- ask("/slow") }()
	}
	count := map[int]int{}
	for range cap(codes) - 8 {
		count[<-codes]++
	}
	for begin := time.Now(); now.Load() < 8 && time.Since(begin) < time.Minute; {
		time.Sleep(time.Millisecond)
	}
	close(release)
	for range 8 {
		count[<-codes]++
	}
	if count[http.StatusServiceUnavailable] != cap(codes)-8 || count[http.StatusOK] != 8 || most.Load() != 8 {
		t.Errorf("%v, %d at once", count, most.Load())
	}
	if code := ask("/quick"); code != http.StatusOK {
		t.Errorf("when all have ended: %d", code)
	}
}

// TestAttackRebinding checks that a name is resolved once per call, so that it cannot change its address.
func TestAttackRebinding(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, echo)
	w.names["api.example.com"] = [][]string{{public}, {"127.0.0.1"}, {"10.0.0.1"}}
	y := w.start(Config{Allow: allow("api.example.com:443", "api.example.com:8443")})
	for range 3 {
		if got, err := y.get("https://api.example.com/"); err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	y.say("CONNECT api.example.com:8443 HTTP/1.1\r\n\r\n")
	if got := w.resolved(); len(got) != 1 {
		t.Errorf("asked for %v", got)
	}
	for _, to := range w.reached() {
		if !strings.HasPrefix(to, public) {
			t.Errorf("dialled %s", to)
		}
	}
}

// TestAttackPort checks that a name is allowed only with its port.
func TestAttackPort(t *testing.T) {
	w := newWorld(t)
	y := w.start(Config{Allow: allow("api.example.com:443")})
	for _, port := range []string{"80", "22", "8443", "4430", "44", "0443", "65979", "-443", "443 ", ""} {
		if got := y.say("CONNECT api.example.com:" + port + " HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 40") {
			t.Errorf("port %q: %q", port, got)
		}
	}
	if got := append(w.resolved(), w.reached()...); len(got) > 0 {
		t.Errorf("asked for %v", got)
	}
}

// TestAttackFrontingBySNI sends CONNECT for an allowed name, then TLS with another name, no name or a hidden one, or
// something other than TLS.
func TestAttackFrontingBySNI(t *testing.T) {
	w := newWorld(t)
	heard := make(chan []byte, 20)
	w.names["api.example.com"] = [][]string{{public}}
	ln := w.listen(public + ":443")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { b, _ := io.ReadAll(c); heard <- b; c.Close() }()
		}
	}()
	y := w.start(Config{Allow: allow("api.example.com:443")})
	hasty := w.start(Config{Allow: allow("api.example.com:443"), Limits: Limits{Request: 100 * time.Millisecond}})
	good := clientHello(t, "api.example.com")
	t.Run("all", func(t *testing.T) {
		for name, one := range map[string]struct {
			says []byte
			want string
		}{
			"another name":     {clientHello(t, "evil.example"), "connection names another server"},
			"a name below":     {clientHello(t, "x.api.example.com"), "connection names another server"},
			"an odd name":      {records(withExtension(body(clientHello(t, "")), extServerName, []byte("\x00\x06\x00\x00\x03a\x00b")), 99), "connection names another server"},
			"a last dot":       {records(withExtension(body(clientHello(t, "")), extServerName, []byte("\x00\x13\x00\x00\x10api.example.com.")), 99), "connection names another server"},
			"no name":          {clientHello(t, ""), "no SNI"},
			"ECH":              {records(withExtension(body(good), extECH, []byte("x")), maxRecord), "encrypted_client_hello"},
			"ECH in pieces":    {records(withExtension(body(good), extECH, []byte("x")), 1), "encrypted_client_hello"},
			"plain HTTP":       {[]byte("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), "this is not TLS"},
			"something else":   {[]byte("\x00\x01\x02"), "this is not TLS"},
			"half a hello":     {good[:60], "no TLS ClientHello in time"},
			"nothing":          {nil, "no TLS ClientHello in time"},
			"a damaged hello":  {append([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0}, good...), "malformed"},
			"two names, split": {records(withExtension(withExtension(body(clientHello(t, "")), extServerName, []byte("\x00\x12\x00\x00\x0fapi.example.com")), extServerName, []byte("\x00\x04\x00\x00\x01x")), 7), "malformed"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var c net.Conn
				if strings.Contains(one.want, "in time") {
					c = hasty.tunnelInTime("api.example.com:443")
					c.Write(one.says)
				} else {
					c = y.tunnel("api.example.com:443")
					c.Write(one.says)
					c.(*net.TCPConn).CloseWrite()
				}
				if !hangsUp(c) {
					t.Error("the connection stays open")
				}
				w.await(KindRefused, one.want)
				c.Close() // the host sees the end only after the client has read the refusal
				if got := <-heard; len(got) > 0 {
					t.Errorf("the host heard %q", got)
				}
			})
		}
	})
	c := y.tunnel("api.example.com:443")
	c.Write(records(body(good), 1))
	c.(*net.TCPConn).CloseWrite()
	if got := <-heard; string(got) != string(records(body(good), 1)) {
		t.Errorf("in single bytes the host heard %d bytes of %d", len(got), len(records(body(good), 1)))
	}
}

// TestRefusalInsideIsTold checks that a client in a tunnel learns why it was refused: by an alert in TLS, by text in
// HTTP.
func TestRefusalInsideIsTold(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, echo)
	y := w.start(Config{Allow: allow("api.example.com:443")})
	err := tls.Client(y.tunnel("api.example.com:443"), &tls.Config{ServerName: "evil.example"}).Handshake()
	if err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("TLS is told %v", err)
	}
	c := y.tunnel("api.example.com:443")
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
	if b, _ := io.ReadAll(c); !strings.Contains(string(b), "only over TLS") {
		t.Errorf("HTTP is told %q", b)
	}
}

// TestAttackPlainHTTP checks that absolute URLs are fetched only if the endpoint is plain. Each request must be decided
// by itself, whatever its Host header.
func TestAttackPlainHTTP(t *testing.T) {
	w := newWorld(t)
	w.names["plain.example.com"] = [][]string{{public}}
	server := &http.Server{Handler: echo}
	go server.Serve(w.listen(public + ":80"))
	t.Cleanup(func() { server.Close() })
	y := w.start(Config{Allow: append(allow("api.example.com:80"), Endpoint{Host: "plain.example.com", Port: 80, Plain: true})})
	if got, err := y.get("http://plain.example.com/a"); err != nil || got != "200 HTTP/1.1 plain.example.com /a" {
		t.Errorf("%q, %v", got, err)
	}
	ask := func(target, head string) string {
		return y.say("GET " + target + " HTTP/1.1\r\n" + head + "Connection: close\r\n\r\n")
	}
	if got := ask("http://plain.example.com/a", "Host: evil.example\r\n"); !strings.Contains(got, "HTTP/1.1 plain.example.com /a") {
		t.Errorf("with another Host: %q", got)
	}
	for target, want := range map[string]string{
		"http://api.example.com/":                   "only over TLS",
		"http://evil.example/":                      "is not allowed",
		"http://plain.example.com:8080/":            "is not allowed",
		"http://user:pw@plain.example.com/":         "is not allowed",
		"http://plain.example.com@evil.example/":    "is not allowed",
		"http://evil.example#plain.example.com/":    "40",
		"http://evil.example?plain.example.com/":    "is not allowed",
		"http://evil.example\\@plain.example.com/":  "400",
		"https://plain.example.com:80/":             "only http://",
		"ftp://plain.example.com:80/":               "only http://",
		"http://plain.example.com%2f@evil.example/": "40",
		"/":        "not a server",
		"http:///": "40",
		"http://":  "40",
	} {
		if got := ask(target, "Host: plain.example.com\r\n"); !strings.HasPrefix(got, "HTTP/1.1 4") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", target, got)
		}
	}
	for _, to := range []string{"h2c", "websocket", "TLS/1.0"} {
		if got := ask("http://plain.example.com/", "Host: plain.example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+to+"\r\n"); !strings.Contains(got, "to become") {
			t.Errorf("upgrade to %s: %q", to, got)
		}
	}
	c := y.raw()
	io.WriteString(c, "GET http://plain.example.com/1 HTTP/1.1\r\nHost: x\r\n\r\nGET http://evil.example/2 HTTP/1.1\r\nHost: x\r\n\r\nGET http://plain.example.com/3 HTTP/1.1\r\nHost: x\r\n\r\n")
	b, _ := io.ReadAll(c)
	if got := string(b); !strings.Contains(got, "plain.example.com /1") || !strings.Contains(got, "evil.example:80 is not allowed") || strings.Contains(got, "/3") {
		t.Errorf("three in a row: %q", got)
	}
}

// TestAttackSmuggling checks that bytes after a refused CONNECT are not read as a request, and that a request with an
// ambiguous end is refused.
func TestAttackSmuggling(t *testing.T) {
	w := newWorld(t)
	w.names["plain.example.com"] = [][]string{{public}}
	heard := make(chan string, 10)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { heard <- r.URL.Path })}
	go server.Serve(w.listen(public + ":80"))
	t.Cleanup(func() { server.Close() })
	y := w.start(Config{Allow: []Endpoint{{Host: "plain.example.com", Port: 80, Plain: true}}})
	const next = "GET http://plain.example.com/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, first := range []string{
		"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT plain.example.com:80 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
		"CONNECT plain.example.com:80 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"POST http://plain.example.com/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
		"POST http://plain.example.com/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n",
		"GET http://plain.example.com/ HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"GET http://plain.example.com/ HTTP/1.1\r\nHost : x\r\n\r\n",
		"GET http://plain.example.com/ HTTP/9.1\r\nHost: x\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01\x00\x05hello",
	} {
		if got := y.say(first + next); strings.HasPrefix(got, "HTTP/1.1 2") || strings.Count(got, "HTTP/1.1") > 1 {
			t.Errorf("%q: %q", first, got)
		}
	}
	y.stop()
	close(heard)
	for path := range heard {
		t.Errorf("the host was asked for %s", path)
	}
}

// TestAttackRedirect checks that only the client follows a redirect, and that its target is decided then.
func TestAttackRedirect(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://evil.example/", http.StatusFound)
	})
	w.host("evil.example", public2, 443, echo)
	for _, inspect := range []bool{false, true} {
		y := w.start(Config{Allow: []Endpoint{{Host: "api.example.com", Port: 443, Inspect: inspect}}})
		if got, err := y.get("https://api.example.com/"); err == nil || !strings.Contains(err.Error(), "evil.example:443 is not allowed") {
			t.Errorf("inspected %v: %q, %v", inspect, got, err)
		}
	}
	for _, to := range w.reached() {
		if strings.HasPrefix(to, public2) {
			t.Errorf("dialled %s", to)
		}
	}
}

// TestAttackSlowly checks that requests that never end, or grow line by line, are ended (slowloris).
func TestAttackSlowly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	y := w.start(Config{Allow: allow("api.example.com:443"), Limits: Limits{Request: 100 * time.Millisecond}})
	open := map[string]net.Conn{}
	for _, begin := range []string{"", "CONNECT", "CONNECT api.example.com:443 HTTP/1.1\r\nX: ", "\x05", "\x05\x05\x00", "\x05\x01\x00\x05\x01\x00\x03\xff"} {
		open[begin] = y.raw()
		io.WriteString(open[begin], begin)
	}
	c := y.raw()
	go func() {
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(c, "X-%d: y\r\n", i); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if !hangsUp(c) {
		t.Fatal("a header at a time holds a connection")
	}
	for begin, c := range open {
		if !hangsUp(c) {
			t.Fatalf("%q: the connection stays open", begin)
		}
	}
}

// TestAttackLongHead checks that a header that is too long is refused at once, long before its deadline.
func TestAttackLongHead(t *testing.T) {
	ktest.Long(t) // half a second in which net/http lets the client read its response
	t.Parallel()
	y := newWorld(t).start(Config{Allow: allow("api.example.com:443")})
	got := y.say("CONNECT api.example.com:443 HTTP/1.1\r\nX: " + strings.Repeat("y", 4*maxHead) + "\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 431") && got != "" {
		t.Errorf("a head of %d bytes: %q", 4*maxHead, got)
	}
}

// TestAttackHTTP2ToTheProxy checks that the proxy itself speaks no HTTP/2, by prior knowledge or upgrade.
func TestAttackHTTP2ToTheProxy(t *testing.T) {
	w := newWorld(t)
	y := w.start(Config{Allow: allow("api.example.com:443")})
	c := y.raw()
	io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil && res.StatusCode < 400 {
		t.Errorf("%+v", res)
	}
	if got := y.say("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 40") {
		t.Errorf("%q", got)
	}
}
