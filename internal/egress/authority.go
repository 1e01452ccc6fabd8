package egress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
)

// caBundles lists the files in which distributions keep all trusted certificate authorities: Debian, Fedora, openSUSE,
// Alpine.
var caBundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// Authorities returns the certificate authorities that this machine trusts, in PEM.
func Authorities() ([]byte, error) {
	for _, path := range caBundles {
		text, err := os.ReadFile(path)
		if err == nil && len(text) > 0 {
			return text, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, bailey.Unavailable.Wrap(err, "cannot read the CA certificates of this machine", "")
		}
	}
	return nil, bailey.Unavailable.New("this machine has no file of trusted CA certificates for TLS",
		"install the package ca-certificates")
}

// authority signs certificates for the names whose TLS one call opens. Its keys are made for the call and never
// written. Its root is valid for those names only, so that an attacker with the key could impersonate no other host.
type authority struct {
	pem    []byte
	root   *x509.Certificate
	sign   *ecdsa.PrivateKey
	key    *ecdsa.PrivateKey // of all leaf certificates
	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// validity is longer than any call. A certificate is also valid for the hour before, because the clock in the cage may
// differ.
const validity = 24 * time.Hour

func newAuthority(list *Allowlist) (*authority, error) {
	sign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, noAuthority(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, noAuthority(err)
	}
	template := certTemplate("bailey, for one call")
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	constrainNames(template, list)
	der, err := x509.CreateCertificate(rand.Reader, template, template, sign.Public(), sign)
	if err != nil {
		return nil, noAuthority(err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, noAuthority(err)
	}
	return &authority{pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), root: root, sign: sign,
		key:    key,
		leaves: map[string]*tls.Certificate{}}, nil
}

func noAuthority(err error) error {
	return bailey.Internal.Wrap(err, "cannot create a CA to inspect TLS with", "")
}

func certTemplate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity)}
}

// constrainNames limits the root to the endpoints with opened TLS (RFC 5280, section 4.2.1.10). A constraint on a name
// includes all names below it. A kind of name without a constraint would be unlimited, so each kind must get one.
func constrainNames(root *x509.Certificate, list *Allowlist) {
	root.PermittedDNSDomainsCritical = true
	for _, e := range list.entries {
		switch {
		case !e.hasOpenedTLS():
		case e.addr.IsValid():
			root.PermittedIPRanges = append(root.PermittedIPRanges,
				&net.IPNet{IP: e.addr.AsSlice(), Mask: net.CIDRMask(e.addr.BitLen(), e.addr.BitLen())})
		case !slices.Contains(root.PermittedDNSDomains, e.name):
			root.PermittedDNSDomains = append(root.PermittedDNSDomains, e.name)
		}
	}
	if len(root.PermittedDNSDomains) == 0 {
		root.PermittedDNSDomains = []string{"invalid"} // RFC 6761: no host has this name
	}
	if len(root.PermittedIPRanges) == 0 {
		root.ExcludedIPRanges = []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
			{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}
	}
}

// leafCert returns the certificate of one host. It is made on first use.
func (a *authority) leafCert(t Target) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[t.hostText()]; c != nil {
		return c, nil
	}
	template := certTemplate("")
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if t.addr.IsValid() {
		template.IPAddresses = []net.IP{t.addr.AsSlice()}
	} else {
		template.DNSNames = []string{t.name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, a.key.Public(), a.sign)
	if err != nil {
		return nil, noAuthority(err)
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
	a.leaves[t.hostText()] = c
	return c, nil
}

// openTLS terminates TLS in place of the host. If a client accepts only the host's own certificate (pinning), the
// handshake fails and the failure is recorded.
func (c *client) openTLS(g *grant) {
	leaf, err := g.p.ca.leafCert(g.target)
	if err != nil {
		return
	}
	s := newServedConn(c)
	conn := tls.Server(s, &tls.Config{Certificates: []tls.Certificate{*leaf}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
		SessionTicketsDisabled: true})
	ctx, cancel := context.WithTimeout(c.life.ctx, g.p.limits.Request)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		if c.life.ctx.Err() == nil {
			ref := unreachableRefusal(g.target,
				"the client closed the TLS connection, which is inspected for this call: it pins a certificate, or does not trust the CA of the call")
			g.p.record.recordRefusal("tls", g.target.String(), ref)
		}
		return
	}
	c.grant = g
	c.SetDeadline(time.Time{})
	s.serveWith(g.p.inner, conn)
}

// hostOf parses the Host of a request, which may omit the usual port.
func hostOf(host, usual string) (Target, *Refusal) {
	if i := strings.LastIndexByte(host, ':'); i < 0 || strings.HasSuffix(host, "]") {
		host += ":" + usual
	}
	return ParseTarget(host)
}
