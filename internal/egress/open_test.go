package egress

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"bailey"
)

const held = "bailey-placeholder-test"

// told starts a host that reports the requests it receives.
func (w *world) told(name, addr string) chan *http.Request {
	heard := make(chan *http.Request, 100)
	w.host(name, addr, 443, func(rw http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(b)))
		heard <- r
		rw.Header().Set("X-Echo", r.Header.Get("Authorization"))
		fmt.Fprint(rw, "ok")
	})
	return heard
}

// TestInject checks that the host gets the secret and that the cage never does.
func TestInject(t *testing.T) {
	w := newWorld(t)
	heard := w.told("api.example.com", public)
	y := w.start(Config{Allow: allow("api.example.com:443"), Inject: []Injection{secretOf("api.example.com:443")}})
	for _, one := range []struct {
		name  string
		ask   func(r *http.Request)
		found func(r *http.Request) string
		want  string
	}{
		{"a header", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+held) }, func(r *http.Request) string { return r.Header.Get("Authorization") }, "Bearer s3cr3t value"},
		{"basic", func(r *http.Request) { r.SetBasicAuth("git", held) }, func(r *http.Request) string { _, p, _ := r.BasicAuth(); return p }, "s3cr3t value"},
		{"a query", func(r *http.Request) { r.URL.RawQuery = "a=%2f;b&key=" + held + "&z=1" }, func(r *http.Request) string { return r.URL.RawQuery }, "a=%2f;b&key=s3cr3t+value&z=1"},
		{"an escaped query", func(r *http.Request) { r.URL.RawQuery = "key=%62ailey-placeholder-test" }, func(r *http.Request) string { return r.URL.Query().Get("key") }, "s3cr3t value"},
		{"nothing", func(r *http.Request) {}, func(r *http.Request) string { return r.Header.Get("Authorization") }, ""},
	} {
		r, _ := http.NewRequest("GET", "https://api.example.com/x", nil)
		one.ask(r)
		res, err := y.client().Do(r)
		if err != nil {
			t.Errorf("%s: %v", one.name, err)
			continue
		}
		res.Body.Close()
		if got := one.found(<-heard); got != one.want {
			t.Errorf("%s: the host got %q", one.name, got)
		}
		if got := res.Header.Get("X-Echo"); strings.Contains(got, "s3cr3t") {
			t.Errorf("%s: the cage got %q", one.name, got)
		}
	}
	if got := fmt.Sprintf("%+v %v %#v", y.Proxy.secrets[0].Injection, y.Proxy.secrets[0].Value, y.events); strings.Contains(got, "s3cr3t") {
		t.Errorf("printed: %s", got)
	}
}

// TestAttackRepeated checks that if a host repeats the secret in a response header, however encoded, for example in
// Basic credentials, the cage gets the placeholder.
func TestAttackRepeated(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, func(rw http.ResponseWriter, r *http.Request) {
		say := func(h http.Header, prefix string) {
			h.Set(prefix+"Plain", r.Header.Get("Authorization"))
			h.Set(prefix+"Location", "https://api.example.com/?"+r.URL.RawQuery)
			h.Set(prefix+"Path", "/"+url.PathEscape(r.URL.Query().Get("key")))
		}
		say(rw.Header(), "Early-")
		rw.WriteHeader(http.StatusEarlyHints)
		say(rw.Header(), "X-")
		rw.WriteHeader(200)
		rw.(http.Flusher).Flush()
		say(rw.Header(), http.TrailerPrefix+"Late-")
	})
	y := w.start(Config{Allow: allow("api.example.com:443"), Inject: []Injection{secretOf("api.example.com:443")}})
	for _, basic := range []bool{false, true} {
		var got []http.Header
		r, _ := http.NewRequest("GET", "https://api.example.com/x?key="+held, nil)
		if r.Header.Set("Authorization", "Bearer "+held); basic {
			r.SetBasicAuth("git", held)
		}
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			got = append(got, http.Header(h).Clone())
			return nil
		}}))
		res, err := y.client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		got = append(got, res.Header, res.Trailer)
		for i, part := range []string{"Early-", "X-", "Late-"} {
			if i >= len(got) || got[i].Get(part+"Plain") == "" {
				t.Fatalf("%s: %v", part, got)
			}
			for name, values := range got[i] {
				text := strings.Join(values, " ")
				if _, code, ok := strings.Cut(text, "Basic "); ok {
					pair, _ := base64.StdEncoding.DecodeString(code)
					text += string(pair)
				}
				if strings.Contains(text, "s3cr3t") {
					t.Errorf("basic %v: %s: %s", basic, name, text)
				}
			}
		}
	}
}

// TestAttackPlaceholder checks that a placeholder in a place where its secret must not go is refused and recorded, and
// nothing is sent.
func TestAttackPlaceholder(t *testing.T) {
	w := newWorld(t)
	heard := w.told("api.example.com", public)
	other := w.told("other.example.com", public2)
	y := w.start(Config{Allow: append(allow("api.example.com:443"), Endpoint{Host: "other.example.com", Port: 443, Inspect: true}, Endpoint{Host: "plain.example.com", Port: 80, Plain: true}), Inject: []Injection{secretOf("api.example.com:443")}})
	body := func(s string) func(r *http.Request) {
		return func(r *http.Request) { r.Method, r.Body = "POST", io.NopCloser(strings.NewReader(s)) }
	}
	w.names["plain.example.com"] = [][]string{{public}}
	count := 0
	for name, ask := range map[string]func(r *http.Request){
		"another host":          func(r *http.Request) { r.URL.Host = "other.example.com"; r.Header.Set("Authorization", held) },
		"another host, basic":   func(r *http.Request) { r.URL.Host = "other.example.com"; r.SetBasicAuth("x", held) },
		"another host, query":   func(r *http.Request) { r.URL.Host = "other.example.com"; r.URL.RawQuery = "key=" + held },
		"another host, body":    func(r *http.Request) { r.URL.Host = "other.example.com"; body("x" + held)(r) },
		"another header":        func(r *http.Request) { r.Header.Set("X-Other", held) },
		"a cookie":              func(r *http.Request) { r.Header.Set("Cookie", "a="+held) },
		"the name of a header":  func(r *http.Request) { r.Header.Set("X-"+held, "x") },
		"another parameter":     func(r *http.Request) { r.URL.RawQuery = "q=" + held },
		"an escaped parameter":  func(r *http.Request) { r.URL.RawQuery = "q=bailey%2Dplaceholder%2Dtest" },
		"a parameter's name":    func(r *http.Request) { r.URL.RawQuery = held + "=1" },
		"the method":            func(r *http.Request) { r.Method = held },
		"the path":              func(r *http.Request) { r.URL.Path = "/a/" + held },
		"the body":              body(held),
		"the body, over pieces": body(strings.Repeat("x", 32<<10-7) + held + strings.Repeat("y", 1<<20)),
		"both right and wrong":  func(r *http.Request) { r.Header.Set("Authorization", held); r.Header.Set("X-Other", held) },
	} {
		count++
		r, _ := http.NewRequest("GET", "https://api.example.com/x", nil)
		r.Host = ""
		ask(r)
		res, err := y.client().Do(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 403 || !strings.Contains(string(b), "the placeholder of token is in") {
			t.Errorf("%s: %d %q", name, res.StatusCode, b)
		}
	}
	count++
	if got := y.say("GET http://plain.example.com/?key=" + held + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.Contains(got, "the placeholder of token is in") {
		t.Errorf("plain HTTP: %q", got)
	}
	if got := w.seen(KindMisused); len(got) != count || got[0].Hint == "" {
		t.Errorf("%d events of %d: %+v", len(got), count, got)
	}
	y.stop()
	if len(heard)+len(other) > 0 {
		t.Errorf("%d requests arrived", len(heard)+len(other))
	}
}

// TestInjectionsRefused checks that an injection is refused if it could send a secret to a wrong place.
func TestInjectionsRefused(t *testing.T) {
	good := secretOf("api.example.com:443")
	for name, change := range map[string]func(i *Injection){
		"an unlisted endpoint": func(i *Injection) { i.To = []string{"evil.example:443"} },
		"a plain endpoint":     func(i *Injection) { i.To = []string{"plain.example.com:80"} },
		"a name below":         func(i *Injection) { i.To = []string{"x.api.example.com:443"} },
		"nowhere":              func(i *Injection) { i.To = nil },
		"in no place":          func(i *Injection) { i.Headers, i.Query = nil, nil },
		"a short placeholder":  func(i *Injection) { i.Placeholder = "token" },
		"an odd placeholder":   func(i *Injection) { i.Placeholder = "placeholder with spaces" },
		"a value of two lines": func(i *Injection) { i.Value = bailey.NewSecret("a\r\nX-Evil: b") },
		"an empty value":       func(i *Injection) { i.Value = bailey.Secret{} },
		"a value that loops":   func(i *Injection) { i.Value = bailey.NewSecret("x" + held) },
	} {
		bad := good
		change(&bad)
		_, err := New(Config{Allow: append(allow("api.example.com:443"), Endpoint{Host: "plain.example.com", Port: 80, Plain: true}), Inject: []Injection{bad}})
		if bailey.KindOf(err) != bailey.Invalid || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{Allow: allow("api.example.com:443"), Inject: []Injection{good, good}}); err == nil {
		t.Error("two secrets have one placeholder")
	}
	if a, b := bailey.NewPlaceholder(), bailey.NewPlaceholder(); a == b || len(a) < 40 {
		t.Errorf("placeholders %s, %s", a, b)
	}
}

// TestAttackFrontingByHost checks that a request inside opened TLS must name the requested host.
func TestAttackFrontingByHost(t *testing.T) {
	w := newWorld(t)
	heard := w.told("api.example.com", public)
	y := w.start(Config{Allow: []Endpoint{{Host: "api.example.com", Port: 443, Inspect: true}}})
	inside := func(words string) string {
		c := tls.Client(y.tunnel("api.example.com:443"), &tls.Config{ServerName: "api.example.com", RootCAs: pemPool(y.Root())})
		c.SetDeadline(time.Now().Add(time.Minute))
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, words)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err.Error()
		}
		b, _ := io.ReadAll(res.Body)
		c.Close()
		return fmt.Sprint(res.StatusCode, " ", string(b))
	}
	for head, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: evil.example\r\n":                          "421",
		"GET / HTTP/1.1\r\nHost: api.example.com:8443\r\n":                  "421",
		"GET / HTTP/1.1\r\nHost: x.api.example.com\r\n":                     "421",
		"GET / HTTP/1.1\r\nHost: api.example.com@evil.example\r\n":          "4",
		"GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: evil.example\r\n": "400",
		"GET / HTTP/1.0\r\n": "421",
		"GET https://evil.example/ HTTP/1.1\r\nHost: api.example.com\r\n":                                                                        "403",
		"GET https://api.example.com/ HTTP/1.1\r\nHost: evil.example\r\n":                                                                        "403",
		"GET //evil.example/ HTTP/1.1\r\nHost: evil.example\r\n":                                                                                 "421",
		"CONNECT evil.example:443 HTTP/1.1\r\nHost: api.example.com\r\n":                                                                         "403",
		"TRACE / HTTP/1.1\r\nHost: api.example.com\r\n":                                                                                          "403",
		"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n": "403",
		"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n":                                          "403",
		"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n":                               "403",
	} {
		if got := inside(head + "\r\n"); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q", head, got)
		}
	}
	if len(heard) > 0 {
		t.Errorf("%d requests arrived", len(heard))
	}
	for _, host := range []string{"api.example.com", "API.example.com", "api.example.com:443"} {
		if got := inside("GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"); got != "200 ok" {
			t.Errorf("%s: %q", host, got)
		}
		if r := <-heard; r.Host != "api.example.com" {
			t.Errorf("the host was asked for %s", r.Host)
		}
	}
}

// TestAuthority checks that the root of a call is valid only for names with opened TLS, short-lived, and different each
// time.
func TestAuthority(t *testing.T) {
	c := Config{Allow: append(allow("shut.example.com:443"), Endpoint{Host: "*.example.org", Port: 443, Inspect: true})}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := New(c)
	if string(p.Root()) == string(again.Root()) {
		t.Error("two calls have one authority")
	}
	block, _ := pem.Decode(p.Root())
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil || time.Until(root.NotAfter) > validity || !root.MaxPathLenZero || strings.Contains(string(p.Root()), "PRIVATE") {
		t.Errorf("%+v, %v", root, err)
	}
	for host, want := range map[string]bool{"a.example.org": true, "a.b.example.org": true, "shut.example.com": false, "evil.example": false, "93.184.216.34": false, "2606:4700::1111": false} {
		target, _ := targetOf(host, 443)
		leaf, err := p.ca.leafCert(target)
		if err != nil {
			t.Fatal(err)
		}
		parsed, _ := x509.ParseCertificate(leaf.Certificate[0])
		name := host
		if strings.Contains(host, ":") {
			name = "[" + host + "]"
		}
		if _, err := parsed.Verify(x509.VerifyOptions{DNSName: name, Roots: pemPool(p.Root())}); (err == nil) != want {
			t.Errorf("%s: %v", host, err)
		}
	}
	if shut, _ := New(Config{Allow: allow("api.example.com:443")}); shut.Root() != nil {
		t.Error("there is an authority and nothing to open")
	}
}

// TestShutStaysShut checks that TLS is end-to-end if no setting opens it.
func TestShutStaysShut(t *testing.T) {
	w := newWorld(t)
	w.host("shut.example.com", public, 443, echo)
	y := w.start(Config{Allow: append(allow("shut.example.com:443"), Endpoint{Host: "open.example.com", Port: 443, Inspect: true})})
	c := tls.Client(y.tunnel("shut.example.com:443"), &tls.Config{ServerName: "shut.example.com", RootCAs: w.roots})
	if err := c.Handshake(); err != nil {
		t.Error(err)
	}
}

// TestHostIsVerified checks that if TLS is opened, the proxy verifies the host's certificate.
func TestHostIsVerified(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, echo)
	w.host("wrong.example.com", public2, 443, echo)
	w.names["api.example.com"] = [][]string{{public2}} // has a certificate for another name
	y := w.start(Config{Allow: []Endpoint{{Host: "api.example.com", Port: 443, Inspect: true}}, Inject: []Injection{secretOf("api.example.com:443")}})
	got, err := y.get("https://api.example.com/")
	if err != nil || !strings.HasPrefix(got, "502 ") || !strings.Contains(got, "its certificate is not trusted") {
		t.Errorf("%q, %v", got, err)
	}
	w.await(KindFailed, "certificate")
}

// TestPinned checks that the receipt names the reason if a client accepts only the host's own certificate.
func TestPinned(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, echo)
	y := w.start(Config{Allow: []Endpoint{{Host: "api.example.com", Port: 443, Inspect: true}}})
	err := tls.Client(y.tunnel("api.example.com:443"), &tls.Config{ServerName: "api.example.com", RootCAs: w.roots}).Handshake()
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	w.await(KindFailed, "pins a certificate")
}

// TestStreams checks that responses and bodies are passed on as they arrive, and a WebSocket in both directions.
func TestStreams(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, func(rw http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(rw)
		c.EnableFullDuplex()
		if r.Header.Get("Upgrade") != "" {
			conn, buf, err := c.Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			io.Copy(conn, buf)
			return
		}
		rw.WriteHeader(200)
		c.Flush()
		for b := make([]byte, 1); ; c.Flush() {
			if _, err := r.Body.Read(b); err != nil {
				return
			}
			rw.Write(b)
		}
	})
	y := w.start(Config{Allow: allow("api.example.com:443"), Inject: []Injection{secretOf("api.example.com:443")}})
	r, out := io.Pipe()
	res, err := y.client().Post("https://api.example.com/", "text/plain", r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for _, word := range []string{"one", "two"} {
		io.WriteString(out, word)
		got := make([]byte, 3)
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != word {
			t.Fatalf("%q, %v", got, err)
		}
	}
	out.Close()
	c := tls.Client(y.tunnel("api.example.com:443"), &tls.Config{ServerName: "api.example.com", RootCAs: pemPool(y.Root())})
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	read := bufio.NewReader(c)
	if res, err := http.ReadResponse(read, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("%+v, %v", res, err)
	}
	io.WriteString(c, "frame")
	got := make([]byte, 5)
	if _, err := io.ReadFull(read, got); err != nil || string(got) != "frame" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestUpstream checks that the host's own proxy is asked for the checked address or, with ByName, for the name.
func TestUpstream(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, echo)
	w.host("near.example.com", "10.0.0.9", 443, echo)
	for _, byName := range []bool{false, true} {
		var asked []string
		proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Proxy-Authorization") != "Basic dTpzM2NyM3Q=" || r.Method != "CONNECT" {
				rw.WriteHeader(407)
				return
			}
			w.mu.Lock()
			asked = append(asked, r.RequestURI)
			w.mu.Unlock()
			c, _, _ := http.NewResponseController(rw).Hijack()
			io.WriteString(c, "HTTP/1.1 200 OK\r\nX: y\r\n\r\n") // only the request matters here
			c.Close()
		}))
		defer proxy.Close()
		u := *mustURL("http://u:s3cr3t@" + proxy.Listener.Addr().String())
		y := w.start(Config{Allow: append(allow("api.example.com:443", "hidden.example.com:443"), Endpoint{Host: "near.example.com", Port: 443, Private: true}), Upstream: &u, ByName: byName})
		y.tunnel("api.example.com:443").Close()
		if got, err := y.get("https://near.example.com/"); err != nil {
			t.Errorf("a private endpoint: %q, %v", got, err)
		}
		got := y.say("CONNECT hidden.example.com:443 HTTP/1.1\r\n\r\n" + string(clientHello(t, "hidden.example.com")))
		want := []string{public + ":443"}
		if byName {
			want = []string{"api.example.com:443", "hidden.example.com:443"}
		} else if !strings.Contains(got, "502") {
			t.Errorf("a name that nobody resolves: %q", got)
		}
		w.mu.Lock()
		if fmt.Sprint(asked) != fmt.Sprint(want) {
			t.Errorf("the upstream proxy was asked for %v, want %v", asked, want)
		}
		w.mu.Unlock()
		y.stop()
	}
	u := mustURL("http://127.0.0.1:1")
	y := w.start(Config{Allow: allow("api.example.com:443"), Upstream: u})
	if got := y.say("CONNECT api.example.com:443 HTTP/1.1\r\n\r\n"); !strings.Contains(got, "the host's proxy: the connection was refused") {
		t.Errorf("%q", got)
	}
	for _, s := range []string{"https://proxy.example:443", "socks5://proxy.example:1080", "http://", "http://x/path", "http://x?y"} {
		if _, err := New(Config{Upstream: mustURL(s)}); bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// TestSearched checks that a placeholder is found however the body is split, within the first maxSearched bytes.
func TestSearched(t *testing.T) {
	p, err := New(Config{Allow: allow("api.example.com:443"), Inject: []Injection{secretOf("api.example.com:443")}})
	if err != nil {
		t.Fatal(err)
	}
	g := &grant{p: p, entry: p.list.entries[0], via: "connect", target: p.list.entries[0].Target}
	for text, want := range map[string]bool{"x" + held: true, strings.Repeat("x", maxSearched-len(held)) + held: true, "x" + held[1:] + held[:5]: false,
		strings.Repeat("x", maxSearched) + held: false, "": false} {
		for name, r := range map[string]io.Reader{"byte by byte": iotest.OneByteReader(strings.NewReader(text)), "at once": strings.NewReader(text)} {
			got, err := io.ReadAll(&searchedBody{ReadCloser: io.NopCloser(r), g: g, left: maxSearched})
			if (err != nil) != want || err == nil && string(got) != text {
				t.Errorf("%d bytes %s: %v", len(text), name, err)
			}
		}
	}
}
