//go:build linux

package reach

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/egress"
	"bailey/internal/jail"
	"bailey/internal/ktest"
)

// world is a network with its own names, addresses and servers. It records the requests.
type world struct {
	t     *testing.T
	cages *jail.Jail
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey

	mu     sync.Mutex
	names  map[string]string // name → address
	places map[string]string // address:port → listening address on this machine
	asked  []string          // looked-up names
	dialed []string

	// outer, if it is set, adds sockets to a job and their outer side to that of its network.
	outer func(job *bailey.Job, way bailey.Way) bailey.Way
}

func newWorld(t *testing.T, programs ...string) *world {
	t.Helper()
	ktest.Require(t, append([]string{"userns", "netns", "landlock"}, programs...)...)
	w := &world{t: t, names: map[string]string{}, places: map[string]string{}}
	var err error
	if w.cages, err = jail.New(jail.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.cages.Close() })
	if w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the world"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, w.key.Public(), w.key)
	if err != nil {
		t.Fatal(err)
	}
	w.ca, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) LookupNetIP(_ context.Context, _, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, name)
	if w.names[name] == "" {
		return nil, errors.New("no such host")
	}
	return []netip.Addr{netip.MustParseAddr(w.names[name])}, nil
}

func (w *world) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, to.String())
	place := w.places[to.String()]
	w.mu.Unlock()
	if place == "" {
		return nil, errors.New("nobody is there")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", place)
}

// listen starts a listener on this machine for a name of the world.
func (w *world) listen(name, address string, port int) net.Listener {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ln.Close() })
	w.mu.Lock()
	w.names[name], w.places[net.JoinHostPort(address, strconv.Itoa(port))] = address, ln.Addr().String()
	w.mu.Unlock()
	return ln
}

// https serves a name over TLS.
func (w *world) https(name, address string, h http.Handler) {
	w.t.Helper()
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, w.ca, w.key.Public(), w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: w.key}}}}
	go srv.ServeTLS(w.listen(name, address, 443), "", "")
	w.t.Cleanup(func() { srv.Close() })
}

func (w *world) lookedUp() []string { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.asked) }
func (w *world) reached() []string  { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.dialed) }

// ended is a finished run.
type ended struct {
	out, err string
	exit     bailey.Exit
	report   bailey.EgressReport
}

func (e ended) String() string { return e.out + e.err }

// refused checks that a refusal with these words was reported.
func (e ended) refused(t *testing.T, words string) {
	t.Helper()
	if !slices.ContainsFunc(e.report.Refusals(), func(line string) bool { return strings.Contains(line, words) }) {
		t.Errorf("%q is not among the refusals %q\n%s", words, e.report.Refusals(), e)
	}
}

// run runs a job in a new cage with a network that reaches these endpoints. If bare is set, the tool has no proxy
// variables.
func (w *world) run(job bailey.Job, bare bool, places ...string) ended {
	w.t.Helper()
	var all []bailey.Endpoint
	for _, p := range places {
		e, err := bailey.ParseEndpoint(p)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, e)
	}
	return w.runTo(job, bare, all, nil)
}

func (w *world) runTo(job bailey.Job, bare bool, all []bailey.Endpoint, inject []injected, files ...bailey.LentFile) ended {
	w.t.Helper()
	return w.runBy(w.cages, job, bare, all, inject, files...)
}

// injected is a credential that the tool sends without knowing its value.
type injected struct {
	bailey.Injection
	shown string // content of its variable, Name
}

// runBy is runTo with another runner. If no endpoint is given, the job keeps its loopback.
func (w *world) runBy(runner bailey.Runner, job bailey.Job, bare bool, all []bailey.Endpoint, inject []injected, files ...bailey.LentFile) ended {
	w.t.Helper()
	if len(all) == 0 {
		return w.start(runner, job, bailey.Lent{})
	}
	var swaps []bailey.Injection
	for _, in := range inject {
		swaps = append(swaps, in.Injection)
	}
	n, err := egress.Plan(all)
	if err != nil {
		w.t.Fatal(err)
	}
	if bare {
		n.Env = slices.DeleteFunc(n.Env, func(v string) bool { return strings.Contains(strings.ToUpper(v), "_PROXY=") })
	}
	roots := x509.NewCertPool()
	roots.AddCert(w.ca)
	way, err := egress.NewWay(egress.WayConfig{Network: n, Authorities: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.ca.Raw}),
		Config: egress.Config{Inject: swaps, Resolver: w, Dial: w.dial, Roots: roots}})
	if err != nil {
		w.t.Fatal(err)
	}
	job.Network = n
	lent := bailey.Lent{Way: way, Files: files}
	for _, in := range inject {
		if in.Sign != "" { // it is in a file
			continue
		}
		if !slices.Contains(job.EnvNames, in.Name) {
			job.EnvNames = append(job.EnvNames, in.Name)
		}
		lent.Env = append(lent.Env, in.Name+"="+in.shown)
	}
	return w.start(runner, job, lent)
}

func (w *world) start(runner bailey.Runner, job bailey.Job, lent bailey.Lent) ended {
	w.t.Helper()
	if w.outer != nil {
		lent.Way = w.outer(&job, lent.Way)
	}
	run, err := runner.Plan(w.t.Context(), job)
	if err != nil {
		w.t.Fatal(err)
	}
	defer run.Close()
	var out, stderr bytes.Buffer
	exit, err := run.Start(w.t.Context(), lent, bailey.Streams{Stdout: &out, Stderr: &stderr})
	if err != nil {
		w.t.Fatalf("%v: %s%s", err, out.String(), stderr.String())
	}
	e := ended{out: out.String(), err: stderr.String(), exit: exit}
	if lent.Way != nil {
		e.report = lent.Way.Report()
	}
	return e
}
