package notify

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// fixed returns a key that the receiver knows too.
func fixed() (Key, error) {
	return ParseKey([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=\n"))
}

// sender returns a sender to the given URL, without pauses between tries.
func sender(to string, change ...func(*Config)) *Sender {
	c := Config{Settings: func() Settings { return Settings{Webhook: bailey.NewSecret(to)} }, Key: fixed, Pauses: []time.Duration{0}}
	for _, f := range change {
		f(&c)
	}
	return New(c)
}

func question() bailey.Question {
	return bailey.Question{
		ID: "a-1", Call: "git.push", Principal: bailey.Principal{Agent: "local"}, Impact: "mutating, externallyReversible", Digest: "0123",
		Inputs:  []bailey.Input{{Name: "ref", Shown: bailey.Shown{Text: `"main"`}}, {Name: "to", Shown: bailey.Shown{Text: `"../o.git"`, Value: bailey.NewSecret("hunter2")}}},
		Rules:   []bailey.Rule{{ID: "main", Reason: "main is released", Role: "sre", Level: bailey.SignedTouch, Count: 2}},
		Expires: time.Date(2026, 11, 22, 12, 30, 0, 0, time.UTC), Text: "the text",
	}
}

// send posts a message and returns the resulting state.
func send(t *testing.T, s *Sender) State {
	t.Helper()
	s.Tell(Open, question(), "")
	m, ok := s.ways[1].popMessage()
	if !ok {
		t.Fatal("nothing waits")
	}
	s.sendOne(t.Context(), s.ways[1], m)
	return s.ways[1].currentState()
}

// got is a request that a receiver got.
type got struct {
	header http.Header
	body   string
}

func receiver(t *testing.T, answer func(n int, w http.ResponseWriter)) (*httptest.Server, func() []got) {
	t.Helper()
	var mu sync.Mutex
	var list []got
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		list = append(list, got{r.Header, string(body)})
		n := len(list)
		mu.Unlock()
		answer(n, w)
	}))
	t.Cleanup(srv.Close)
	return srv, func() []got { mu.Lock(); defer mu.Unlock(); return list }
}

// TestPosted checks that a message is signed, contains the data that a person needs, and contains no unredacted text.
func TestPosted(t *testing.T) {
	srv, list := receiver(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) })
	s := sender(srv.URL+"/hooks/token", func(c *Config) { c.Now = func() time.Time { return time.Unix(1614265330, 0) } })
	if st := send(t, s); st.Sent != 1 || st.Failed != 0 {
		t.Fatalf("%+v", st)
	}
	g := list()[0]
	want := `{"type":"question.open","timestamp":"2021-02-25T15:02:10Z","text":"Bailey: git.push by local waits for an answer until 12:30 UTC: bailey approvals show a-1",` +
		`"id":"a-1","capability":"git.push","agent":"local","inputs":"ref=\"main\" to=\"../o.git\"","reasons":["main is released"],"impact":"mutating, externallyReversible",` +
		`"wants":{"count":2,"roles":["sre"],"level":"signed-touch"},"expires":"2026-11-22T12:30:00Z","digest":"0123","howTo":"bailey approvals show a-1; bailey approve a-1"}`
	if g.body != want {
		t.Errorf("%s\nwant\n%s", g.body, want)
	}
	key, _ := fixed()
	if h := g.header; h.Get("webhook-id") != "a-1_open" || h.Get("webhook-timestamp") != "1614265330" || h.Get("Content-Type") != "application/json" ||
		h.Get("webhook-signature") != key.signBody("a-1_open", time.Unix(1614265330, 0), []byte(g.body)) {
		t.Errorf("%v", h)
	}
}

// TestStandardSignature checks the signature against the published example of the Standard Webhooks libraries.
func TestStandardSignature(t *testing.T) {
	key, err := ParseKey([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	if err != nil {
		t.Fatal(err)
	}
	if got := key.signBody("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Error(got)
	}
}

// TestTriedAgain checks that a temporary failure is tried three times under one id, and a permanent one only once.
func TestTriedAgain(t *testing.T) {
	for _, c := range []struct {
		name        string
		codes       []int
		tries, sent int
		said        string
	}{
		{"at once", []int{200}, 1, 1, ""},
		{"at the third", []int{500, 429, 204}, 3, 1, ""},
		{"never", []int{500, 502, 503}, 3, 0, "answered 503 (tries: 3)"},
		{"refused", []int{403}, 1, 0, "answered 403 (tries: 1)"},
		{"gone", []int{410}, 1, 0, "answered 410"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv, list := receiver(t, func(n int, w http.ResponseWriter) { w.WriteHeader(c.codes[n-1]) })
			st := send(t, sender(srv.URL))
			if all := list(); len(all) != c.tries || all[len(all)-1].header.Get("webhook-id") != "a-1_open" {
				t.Errorf("%d tries", len(all))
			}
			if st.Sent != uint64(c.sent) || st.Failed != uint64(1-c.sent) || !strings.Contains(st.Last, c.said) {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestNoRedirect checks that no redirect is followed, for example to a metadata service.
func TestNoRedirect(t *testing.T) {
	other, there := receiver(t, func(int, http.ResponseWriter) {})
	for _, to := range []string{"http://169.254.169.254/latest/meta-data/", other.URL} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			srv, list := receiver(t, func(_ int, w http.ResponseWriter) { w.Header().Set("Location", to); w.WriteHeader(code) })
			if st := send(t, sender(srv.URL)); st.Failed != 1 || !strings.Contains(st.Last, "redirects are not followed") || len(list()) != 1 {
				t.Errorf("%d to %s: %+v", code, to, st)
			}
		}
	}
	if len(there()) != 0 {
		t.Error("it was followed")
	}
}

// TestHangs checks that a receiver that never answers, or whose answer never ends, costs bounded time and memory.
func TestHangs(t *testing.T) {
	ktest.Long(t)
	quick := func(c *Config) { c.Patience = 200 * time.Millisecond }
	t.Run("never answers", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if st := send(t, sender("http://"+l.Addr().String(), quick)); st.Failed != 1 || !strings.Contains(st.Last, "did not answer (tries: 3)") {
			t.Errorf("%+v", st)
		}
	})
	t.Run("a gigabyte", func(t *testing.T) {
		var wrote atomic.Int64
		ended := make(chan struct{})
		srv, _ := receiver(t, func(_ int, w http.ResponseWriter) {
			defer close(ended)
			for wrote.Load() < 1<<30 {
				n, err := w.Write(make([]byte, 64<<10))
				if wrote.Add(int64(n)); err != nil {
					return
				}
			}
		})
		if st := send(t, sender(srv.URL)); st.Sent != 1 {
			t.Errorf("%+v", st)
		}
		if <-ended; wrote.Load() > 256<<20 {
			t.Errorf("%d bytes were taken", wrote.Load())
		}
	})
	t.Run("a head without end", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\n")
				for err == nil {
					_, err = fmt.Fprintf(c, "X-%s: y\r\n", strings.Repeat("x", 1000))
				}
				c.Close()
			}
		}()
		if st := send(t, sender("http://"+l.Addr().String(), quick)); st.Failed != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestTargets checks that https may go anywhere except to addresses that give out credentials, and http only to this
// machine. A name must be judged by the addresses that it resolves to.
func TestTargets(t *testing.T) {
	for address, near := range map[string]bool{
		"169.254.169.254": false, "169.254.170.2": false, "fe80::1": false, "fe80::1%eth0": false, "fd00:ec2::254": false, "fd20:ce::254": false, "100.100.100.200": false,
		"168.63.129.16": false, "192.0.0.192": false, "::ffff:169.254.169.254": false, "64:ff9b::a9fe:a9fe": false, "2002:a9fe:a9fe::1": false, "::a9fe:a9fe": false,
		"0.0.0.0": false, "::": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false,
		"10.0.0.1": true, "93.184.216.34": true, "2606:2800::1": true, "192.168.1.1": true,
	} {
		if err := checkAddress(netip.MustParseAddr(address), true); !errors.Is(err, bailey.Denied) || bailey.HintOf(err) == "" {
			t.Errorf("http to %s: %v", address, err)
		}
		if err := checkAddress(netip.MustParseAddr(address), false); (err == nil) != near {
			t.Errorf("https to %s: %v", address, err)
		}
	}
	for _, address := range []string{"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"} {
		if err := errors.Join(checkAddress(netip.MustParseAddr(address), true), checkAddress(netip.MustParseAddr(address), false)); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for to, said := range map[string]string{
		"http://10.255.255.1/secret": "not on this machine", "http://169.254.169.254/secret": "not on this machine", "https://169.254.169.254/secret": "metadata service",
		"https://[fd00:ec2::254]/secret": "metadata service", "ftp://127.0.0.1/secret": "url is malformed", "https://user:secret@127.0.0.1": "url is malformed", "127.0.0.1/secret": "url is malformed",
		"http://127.0.0.1:1/secret": "http://127.0.0.1:1 did not answer", "https://127.0.0.1:1/secret": "https://127.0.0.1:1 did not answer", "http://\x00secret": "url is malformed",
	} {
		if st := send(t, sender(to)); st.Failed != 1 || !strings.Contains(st.Last, said) || strings.Contains(st.Last, "secret") {
			t.Errorf("%q: %q", to, st.Last)
		}
	}
}

// TestCertificate checks that the certificate is verified.
func TestCertificate(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	if st := send(t, sender(srv.URL)); st.Failed != 1 || !strings.Contains(st.Last, "certificate") {
		t.Errorf("%+v", st)
	}
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	if st := send(t, sender(srv.URL, func(c *Config) { c.Roots = roots })); st.Sent != 1 {
		t.Errorf("%+v", st)
	}
}

// TestNoKey checks that without a key nothing is sent.
func TestNoKey(t *testing.T) {
	srv, list := receiver(t, func(int, http.ResponseWriter) {})
	for _, key := range []func() (Key, error){nil, func() (Key, error) { return Key{}, errors.New("no key") }} {
		if st := send(t, sender(srv.URL, func(c *Config) { c.Key = key })); st.Failed != 1 {
			t.Errorf("%+v", st)
		}
	}
	if len(list()) != 0 {
		t.Error("it was sent")
	}
}

// TestKeys checks that a key is accepted in one form only and does not appear in formatted output.
func TestKeys(t *testing.T) {
	k := NewKey()
	text := k.Text().Reveal()
	back, err := ParseKey([]byte(text + "\n"))
	if err != nil || back.Text().Reveal() != text || back.Fingerprint() != k.Fingerprint() || k.Fingerprint() == NewKey().Fingerprint() {
		t.Error(err)
	}
	if s := fmt.Sprintf("%v %+v %#v %s %x", k, k, k, k.Text(), k); strings.Contains(s, text) || strings.Contains(s, fmt.Sprintf("%x", k.raw)) {
		t.Error(s)
	}
	for _, bad := range []string{"", "whsec_", "whsec_AAAA", strings.TrimPrefix(text, "whsec_"), text + "\n\n", " " + text, text + "=", text[:20] + "\n" + text[20:], "whsec_" + strings.Repeat("AAAA", 22)} {
		if _, err := ParseKey([]byte(bad)); !errors.Is(err, bailey.Invalid) || len(bad) > 20 && strings.Contains(err.Error(), bad[8:20]) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestEndsWithContext checks that a sender makes no further try if its context ends between two tries.
func TestEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	srv, list := receiver(t, func(_ int, w http.ResponseWriter) { cancel(); w.WriteHeader(500) })
	s := sender(srv.URL, func(c *Config) { c.Pauses = []time.Duration{time.Hour} })
	if _, err := s.ways[1].send(ctx, s.c.Settings(), testMessage(time.Now()), Tries); err == nil || len(list()) > 1 {
		t.Errorf("%v, %d tries", err, len(list()))
	}
}
