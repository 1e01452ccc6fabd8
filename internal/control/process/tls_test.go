package process

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey/internal/store"
)

// makeCertificate writes a certificate of bailey.example.com that lasts for a time.
func makeCertificate(t *testing.T, dir string, life time.Duration) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true,
		BasicConstraintsValid: true, DNSNames: []string{"bailey.example.com"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(life)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der},
		"tls.key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

// TestTLS serves with a certificate: TLS 1.3 only, a cookie for https, a strict transport header. doctor warns before
// the certificate ends, and of a private key that others may read.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pool := makeCertificate(t, dir, 365*24*time.Hour)
	config := fmt.Sprintf("public_url: https://bailey.example.com\ntls: {cert: %s/tls.crt, key: %s/tls.key}\n", dir, dir)
	if err := os.WriteFile(filepath.Join(dir, "server.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := runServer(t, dir)
	client := func(newest uint16) *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "bailey.example.com",
			MaxVersion: newest}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	_, rest, _ := strings.Cut(s.out.String(), "/setup?token=")
	body, _ := json.Marshal(map[string]string{"token": strings.Fields(rest)[0], "name": "Ann", "email": "ann@example.com",
		"password": "password of ann", "organisation": "Shop"})
	req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+s.address+"/api/v1/setup", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "bailey.example.com"
	req.Header.Set("Content-Type", "application/json")
	resp, err := client(0).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.TLS.Version != tls.VersionTLS13 ||
		!strings.HasPrefix(resp.Header.Get("Strict-Transport-Security"), "max-age=") {
		t.Errorf("got %s with TLS %x and %v", resp.Status, resp.TLS.Version, resp.Header)
	}
	if c := resp.Cookies(); len(c) != 1 || !strings.HasPrefix(c[0].Name, "__Host-") || !c[0].Secure || c[0].Path != "/" {
		t.Errorf("the cookies are %v", c)
	}
	if _, err := client(tls.VersionTLS12).Get("https://" + s.address + "/api/v1/health"); err == nil {
		t.Error("TLS 1.2 is accepted")
	}
	s.stop()
	wantRun(t, dir, "", "doctor")
	if err := os.Chmod(filepath.Join(dir, "tls.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, stdout, _ := runWith(t, dir, "", "doctor"); !strings.Contains(stdout, "may read the private key") {
		t.Errorf("no warning of a readable key: %s", stdout)
	}
	makeCertificate(t, dir, 48*time.Hour)
	if code, stdout, _ := runWith(t, dir, "", "doctor"); code == 0 || !strings.Contains(stdout, "the certificate ends on") {
		t.Errorf("doctor: %d %s", code, stdout)
	}
}

// TestNoTelemetry: a build without a key sends nothing and makes no identifier, and shows what a report would have.
func TestNoTelemetry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := runServer(t, dir)
	makeAccount(t, s)
	s.stop()
	got := wantRun(t, dir, "", "telemetry", "show")
	text, _ := json.Marshal(got)
	if got["sends"] != false || got["why"] != "this build has no key" || !strings.Contains(string(text), `"accounts":1`) {
		t.Errorf("got %s", text)
	}
	for _, private := range []string{"ann", "Shop", "127.0.0.1", dir} {
		if strings.Contains(strings.ToLower(string(text)), strings.ToLower(private)) {
			t.Errorf("the payload has %q: %s", private, text)
		}
	}
	db, err := store.Open(t.Context(), store.Config{URL: filepath.Join(dir, "server.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var backup bytes.Buffer
	if _, err := db.Backup(t.Context(), &backup); err != nil || strings.Contains(backup.String(), `"telemetry"`) {
		t.Errorf("an identifier was made: %v, %s", err, &backup)
	}
	if err := os.WriteFile(filepath.Join(dir, "server.yaml"), []byte("telemetry: {enable_anonymous_usage: false}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	wantRun(t, dir, "", "doctor")
}
