package egress

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
)

// world is a simulated Internet: names, addresses and servers unknown to the machine. It records lookups and
// connections.
type world struct {
	t     *testing.T
	roots *x509.CertPool
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey

	mu     sync.Mutex
	names  map[string][][]string // name → its answers in order; the last one stays
	places map[string]string     // address:port → where it listens on this machine
	asked  []string
	dialed []string
	events []Event
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, names: map[string][][]string{}, places: map[string]string{}, roots: x509.NewCertPool()}
	w.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the world"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, w.key.Public(), w.key)
	if err != nil {
		t.Fatal(err)
	}
	w.ca, _ = x509.ParseCertificate(der)
	w.roots.AddCert(w.ca)
	return w
}

func (w *world) LookupNetIP(_ context.Context, _, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, name)
	answers := w.names[name]
	if len(answers) == 0 {
		return nil, errors.New("no such host")
	}
	var out []netip.Addr
	for _, s := range answers[0] {
		out = append(out, netip.MustParseAddr(s))
	}
	if len(answers) > 1 {
		w.names[name] = answers[1:]
	}
	return out, nil
}

func (w *world) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, to.String())
	place, ok := w.places[to.String()]
	w.mu.Unlock()
	if !ok {
		return nil, errors.New("nobody is there")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", place)
}

func (w *world) note(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// seen returns the events of a kind so far.
func (w *world) seen(kind string) []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Event
	for _, e := range w.events {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// await waits for an event, which may be recorded after the client has seen its effect.
func (w *world) await(kind, words string) Event {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, e := range w.seen(kind) {
			if strings.Contains(e.Reason, words) {
				return e
			}
		}
	}
	w.t.Fatalf("no event %q with %q; there are %+v", kind, words, w.events)
	return Event{}
}

func (w *world) resolved() []string { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.asked) }
func (w *world) reached() []string  { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.dialed) }

// listen creates a listener on this machine for an address of the world.
func (w *world) listen(at string) net.Listener {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ln.Close() })
	w.mu.Lock()
	w.places[at] = ln.Addr().String()
	w.mu.Unlock()
	return ln
}

// host gives a name an address, and starts an HTTPS server for the name there.
func (w *world) host(name, addr string, port int, h http.HandlerFunc) *httptest.Server {
	w.t.Helper()
	w.mu.Lock()
	w.names[name] = [][]string{{addr}}
	w.mu.Unlock()
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = w.listen(netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port)).String())
	s.TLS = &tls.Config{Certificates: []tls.Certificate{w.certificate(name)}}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	w.t.Cleanup(s.Close)
	return s
}

func (w *world) certificate(name string) tls.Certificate {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	if ip := net.ParseIP(name); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, w.ca, key.Public(), w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// yard is a running proxy, as a cage sees it.
type yard struct {
	*world
	*Proxy
	addr string // TCP, on loopback
	tcp  *net.TCPListener
	unix string
	stop func() // ends the call and waits until everything is closed
}

// start runs a proxy in the world w.
func (w *world) start(c Config) *yard {
	w.t.Helper()
	c.Resolver, c.Event = w, w.note
	if c.Dial == nil {
		c.Dial = w.dial
	}
	if c.Roots == nil {
		c.Roots = w.roots
	}
	p, err := New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	y := &yard{world: w, Proxy: p, unix: filepath.Join(w.t.TempDir(), "p")}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	unix, err := net.Listen("unix", y.unix)
	if err != nil {
		w.t.Fatal(err)
	}
	y.addr, y.tcp = tcp.Addr().String(), tcp.(*net.TCPListener)
	var work sync.WaitGroup
	for _, ln := range []net.Listener{tcp, unix} {
		work.Go(func() {
			if err := p.Serve(ctx, ln); err != nil {
				w.t.Errorf("Serve: %v", err)
			}
		})
	}
	y.stop = sync.OnceFunc(func() { cancel(); work.Wait() })
	w.t.Cleanup(y.stop)
	return y
}

func allow(all ...string) []Endpoint {
	var out []Endpoint
	for _, s := range all {
		e, err := ParseEndpoint(s)
		if err != nil {
			panic(err)
		}
		out = append(out, e)
	}
	return out
}

// client returns Go's client, which trusts the world and, if TLS is opened, the proxy's root.
func (y *yard) client() *http.Client {
	roots := y.world.roots.Clone()
	if pem := y.Root(); pem != nil {
		roots.AppendCertsFromPEM(pem)
	}
	t := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: y.addr}), TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	y.world.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: time.Minute}
}

// get returns the status and the body of a response, or the error.
func (y *yard) get(url string) (string, error) {
	res, err := y.client().Get(url)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return fmt.Sprintf("%d %s", res.StatusCode, b), err
}

// raw returns a plain connection to the proxy.
func (y *yard) raw() net.Conn {
	y.world.t.Helper()
	c, err := net.Dial("tcp", y.addr)
	if err != nil {
		y.world.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	y.world.t.Cleanup(func() { c.Close() })
	return c
}

// say sends bytes and returns everything until the proxy closes.
func (y *yard) say(words string) string {
	y.world.t.Helper()
	c := y.raw()
	io.WriteString(c, words)
	b, _ := io.ReadAll(c)
	return string(b)
}

// tunnel sends CONNECT and returns the connection once it is established.
func (y *yard) tunnel(target string) net.Conn {
	y.world.t.Helper()
	c, res, err := y.connect(target)
	if err != nil || res.StatusCode != 200 {
		y.world.t.Fatalf("CONNECT %s: %v %+v", target, err, res)
	}
	return c
}

// tunnelInTime is tunnel for a short request limit. On a busy machine the request may come too late, and is sent again:
// the test should depend only on the time after that.
func (y *yard) tunnelInTime(target string) net.Conn {
	y.world.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		c, res, err := y.connect(target)
		if err == nil && res.StatusCode == 200 {
			return c
		}
		if err == nil || time.Now().After(end) {
			y.world.t.Fatalf("CONNECT %s: %v %+v", target, err, res)
		}
		c.Close()
	}
}

func (y *yard) connect(target string) (net.Conn, *http.Response, error) {
	y.world.t.Helper()
	c := y.raw()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	res, err := http.ReadResponse(bufio.NewReaderSize(oneByte{c}, 16), &http.Request{Method: "CONNECT"})
	return c, res, err
}

// oneByte reads one byte at a time, so that nothing is read ahead.
type oneByte struct{ io.Reader }

func (o oneByte) Read(b []byte) (int, error) { return o.Reader.Read(b[:1]) }

// hangsUp waits until the other side has closed the connection.
func hangsUp(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(time.Minute))
	_, err := io.Copy(io.Discard, c)
	var ne net.Error
	return !(errors.As(err, &ne) && ne.Timeout())
}

// inTime calls try with ever longer times until it succeeds: a busy machine may be too slow at first, but a wrong limit
// fails every time.
func inTime(t *testing.T, try func(idle time.Duration) error) {
	t.Helper()
	var err error
	for idle := 120 * time.Millisecond; idle < 10*time.Second; idle *= 2 {
		if err = try(idle); err == nil {
			return
		}
		t.Logf("with %v: %v", idle, err)
	}
	t.Error(err)
}

func pemPool(b []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	block, _ := pem.Decode(b)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		panic(err)
	}
	pool.AddCert(c)
	return pool
}

var echo http.HandlerFunc = func(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %s", r.Proto, r.Host, r.URL.Path)
}

// public and public2 are ordinary public addresses.
const public, public2 = "93.184.216.34", "93.184.216.35"

func secretOf(to ...string) Injection {
	return Injection{Name: "token", Placeholder: "bailey-placeholder-test", Value: bailey.NewSecret("s3cr3t value"), To: to, Headers: []string{"authorization"}, Query: []string{"key"}}
}

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}
