package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"bailey"
	"bailey/internal/egress"
)

// egressWay is one way to the server, with the token that its requests carry.
type egressWay struct {
	name   string
	token  string
	client *http.Client
}

// egressServer is a server on loopback and the proxies of two calls.
type egressServer struct {
	url  string
	ways []egressWay
	stop context.CancelFunc
	work *errgroup.Group
	http *http.Server
}

const benchToken = "the token that the server requires"

func newEgressYard(ctx context.Context) (_ *egressServer, err error) {
	ctx, stop := context.WithCancel(ctx)
	work, ctx := errgroup.WithContext(ctx)
	y := &egressServer{stop: stop, work: work, http: &http.Server{Handler: http.HandlerFunc(answerBench)}}
	defer func() {
		if err != nil {
			y.close()
		}
	}()
	cert, roots, err := loopbackCertificate()
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := ln.Addr().(*net.TCPAddr).Port
	y.url = "https://" + strings.Replace(ln.Addr().String(), "127.0.0.1", "localhost", 1)
	y.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	work.Go(func() error { y.http.ServeTLS(ln, "", ""); return nil })
	y.ways = []egressWay{{name: "direct", token: benchToken, client: loopbackClient(roots, nil)}}
	place := egress.Endpoint{Host: "localhost", Port: port, Private: true}
	at, _, err := y.startProxy(ctx, egress.Config{Allow: []egress.Endpoint{place}, Roots: roots})
	if err != nil {
		return nil, err
	}
	y.ways = append(y.ways, egressWay{name: "proxied", token: benchToken, client: loopbackClient(roots, at)})
	token := bailey.NewPlaceholder()
	at, opened, err := y.startProxy(ctx, egress.Config{Allow: []egress.Endpoint{place}, Roots: roots, Inject: []egress.Injection{{Name: "token", Placeholder: token,
		Value: bailey.NewSecret(benchToken), To: []string{strings.TrimPrefix(y.url,
			"https://")}, Headers: []string{"Authorization"}}}})
	if err != nil {
		return nil, err
	}
	y.ways = append(y.ways, egressWay{name: "injected", token: token, client: loopbackClient(opened, at)})
	return y, nil
}

// startProxy starts the proxy of one call. It returns the proxy's address and the roots that the cage trusts.
func (y *egressServer) startProxy(ctx context.Context, c egress.Config) (*url.URL, *x509.CertPool, error) {
	p, err := egress.New(c)
	if err != nil {
		return nil, nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	y.work.Go(func() error { return p.Serve(ctx, ln) })
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.Root())
	return &url.URL{Scheme: "http", Host: ln.Addr().String()}, roots, nil
}

func (y *egressServer) close() {
	y.stop()
	y.http.Close()
	y.work.Wait()
}

// answerBench sends one byte or egressSize bytes if the request carries the token.
func answerBench(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != benchToken {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	n := int64(1)
	if r.URL.Path == "/large" {
		n = egressSize
	}
	io.Copy(w, io.LimitReader(zeroReader{}, n))
}

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) { return len(b), nil }

// loopbackClient opens a new connection for each request.
func loopbackClient(roots *x509.CertPool, at *url.URL) *http.Client {
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	if at != nil {
		t.Proxy = http.ProxyURL(at)
	}
	return &http.Client{Transport: t, Timeout: time.Minute}
}

func loopbackCertificate() (tls.Certificate, *x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"},
		DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots, nil
}
