package bench

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/broker"
)

// benchIssuer answers like the issuers of all adapters, without their checks, and measures how long a broker talks to
// it.
type benchIssuer struct {
	http http.Server
	url  string
	key  *rsa.PrivateKey       // of the GitHub App and of Google's account
	keys func(round int) error // writes the files with the key, as another text in each round

	mu     sync.Mutex
	talked time.Duration // from the start of each connection, or of each later request, to its answer
	fresh  bool          // each request needs a new connection
}

// acceptedAt is the key of the time at which a connection was made: a *time.Time, zero after its first request.
type acceptedAt struct{}

// startIssuer starts the issuer and writes the files of the table into dir.
func startIssuer(dir string) (*benchIssuer, error) {
	cert, _, err := loopbackCertificate()
	if err != nil {
		return nil, err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	for name, text := range map[string][]byte{"own": []byte("own-credential"),
		"keys":   []byte("[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = own-credential\n"),
		"ca.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	if err := writeKeys(dir, key, -1); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &benchIssuer{url: fmt.Sprintf("https://localhost:%d", l.Addr().(*net.TCPAddr).Port), key: key,
		keys: func(round int) error { return writeKeys(dir, key, round) }}
	b.http.Handler, b.http.TLSConfig = b, &tls.Config{Certificates: []tls.Certificate{cert}}
	b.http.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		now := time.Now()
		return context.WithValue(ctx, acceptedAt{}, &now)
	}
	go b.http.ServeTLS(l, "", "")
	return b, nil
}

// writeKeys writes the files with the key of the GitHub App and of Google's account. Their texts differ in each round, so
// that the broker parses the key and signs with it again.
func writeKeys(dir string, key *rsa.PrivateKey, round int) error {
	text := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})) +
		strconv.Itoa(round)
	google, err := json.Marshal(map[string]string{"type": "service_account",
		"client_email": "b@p.iam.gserviceaccount.com", "private_key_id": "k", "private_key": text})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "app.pem"), []byte(text), 0o600),
		os.WriteFile(filepath.Join(dir, "google.json"), google, 0o600))
}

// timeSignature times the signature with the key of an issuer alone.
func (b *benchIssuer) timeSignature(times map[string][]time.Duration) error {
	sum := sha256.Sum256([]byte("an assertion"))
	return recordTime(times, "raw-sign", func() error {
		_, err := rsa.SignPKCS1v15(rand.Reader, b.key, crypto.SHA256, sum[:])
		return err
	})
}

// leaseTable returns the leases, one for each adapter.
func (b *benchIssuer) leaseTable() string {
	text := ""
	for name, keys := range map[string]string{
		"github":    "app: a, key: app.pem, installation: 7, owner: o, repositories: [web], permissions: {contents: read}",
		"vault":     "appRole: {role: r, secret: own}, path: database/creds/app, field: password",
		"aws":       `role: "arn:aws:iam::123456789012:role/agents", region: eu-west-1, keys: keys`,
		"azure":     "tenant: t, client: c, token: own, resource: https://management.azure.com",
		"infisical": "client: c, secret: own, project: p, environment: e, name: N",
		"exchange":  "path: oauth2/token, subject: own, audience: https://api.example, scopes: [read]",
		"kubectl":   "credential: own, namespace: dev, account: agents",
		"argocd":    "token: own, project: shop, role: agents",
	} {
		text += fmt.Sprintf("  %s: {%s: {server: %q, ca: ca.pem, %s}, approval: none}\n", name, name, b.url, keys)
	}
	return text + fmt.Sprintf("  gcloud: {gcloud: {login: %[1]q, iam: %[1]q, sts: %[1]q, ca: ca.pem, account: a@p.iam.gserviceaccount.com, key: google.json, scopes: [%[2]s]}, approval: none}\n",
		b.url, "https://www.googleapis.com/auth/devstorage.read_only")
}

// leaseNames returns the names of the leases, sorted.
func (b *benchIssuer) leaseNames() []string {
	return []string{"argocd", "aws", "azure", "exchange", "gcloud", "github", "infisical", "kubectl", "vault"}
}

func (b *benchIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	if at, ok := r.Context().Value(acceptedAt{}).(*time.Time); ok && !at.IsZero() {
		begin, *at = *at, time.Time{}
	}
	b.mu.Lock()
	if b.fresh {
		w.Header().Set("Connection", "close")
	}
	b.mu.Unlock()
	io.Copy(io.Discard, r.Body)
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"iat":%d,"exp":%d,"jti":"t-1"}`,
		time.Now().Unix(), soon.Unix()))
	if r.Method == http.MethodPost && r.URL.Path == "/" {
		fmt.Fprintf(w,
			`<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>s3cret</SecretAccessKey><SessionToken>t</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`, soon.Format(time.RFC3339))
	} else {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w,
			`{"token":"e30.%[1]s.x","expires_at":%[2]q,"repositories":[{"name":"web","full_name":"o/web"}],"permissions":{"contents":"read"},
"access_token":"e30.%[1]s.x","token_type":"Bearer","expires_in":3600,"issued_token_type":"urn:ietf:params:oauth:token-type:access_token",
"accessToken":"e30.%[1]s.x","expireTime":%[2]q,"secret":{"secretValue":"s3cret","id":"i","version":1,"secretKey":"N"},
"auth":{"client_token":"c"},"lease_id":"l","lease_duration":600,"data":{"password":"s3cret"},
"kind":"TokenRequest","status":{"token":"e30.%[1]s.x","expirationTimestamp":%[2]q}}`, claims, soon.Format(time.RFC3339))
	}
	b.mu.Lock()
	b.talked += time.Since(begin)
	b.mu.Unlock()
}

// timeIssuers times a loan from each adapter, without the time that the broker talks to the issuer: with a new
// connection for each request, with the connection that the broker kept from the last loan, and for adapters that sign
// with a private key also with a key that is new to the broker.
func (b *benchIssuer) timeIssuers(ctx context.Context, c broker.Client, round int,
	own, whole map[string][]time.Duration) error {
	for _, name := range b.leaseNames() {
		// a loan without a row only opens or ends a connection
		loans := []string{"", name + " kept", "", name}
		if name == "github" || name == "gcloud" {
			loans = append(loans, name+firstRow)
		}
		for _, row := range loans {
			if strings.HasSuffix(row, firstRow) {
				if err := b.keys(round); err != nil {
					return err
				}
			}
			took, talked, err := b.timeLoan(ctx, c, name, row == name || row == name+firstRow)
			if err != nil {
				return err
			}
			if row != "" {
				whole[row], own[row] = append(whole[row], took), append(own[row], took-talked)
			}
			b.setFresh(row == name+" kept")
		}
	}
	return nil
}

// firstRow ends the name of a row in which the broker parses a private key and signs with it.
const firstRow = " first"

func (b *benchIssuer) setFresh(fresh bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.talked, b.fresh = 0, fresh
}

// timeLoan returns the time of a loan, and how much of it the broker talked to the issuer.
func (b *benchIssuer) timeLoan(ctx context.Context, c broker.Client, name string, fresh bool) (took,
	talked time.Duration, err error) {
	b.mu.Lock()
	b.talked, b.fresh = 0, b.fresh || fresh
	b.mu.Unlock()
	begin := time.Now()
	lease, err := c.Lend(ctx, bailey.Loan{Receipt: "r-bench", Capability: "bench.lend",
		Wants: []bailey.Want{{Name: name, Env: "TOKEN"}}})
	took = time.Since(begin)
	if err != nil {
		return 0, 0, err
	}
	b.mu.Lock()
	talked = b.talked
	b.mu.Unlock()
	lease.Return()
	return took, talked, nil
}

// ownShare is the limit of the time of a loan that the broker itself takes.
const ownShare = time.Millisecond

// issuerRows returns a row for each adapter: the broker's own share of a loan, compared with its limit.
func issuerRows(own, whole map[string][]time.Duration) (rows []Row) {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		r := newRow(name, own[name])
		r.Facts = map[string]float64{"with_issuer_us": newRow(name, whole[name]).P50}
		limit := 1.0
		if strings.HasSuffix(name, firstRow) { // one loan in some minutes, and most of it is one signature: row raw-sign
			limit = 0
		}
		rows = append(rows, r.comparedTo("1 ms", r.P50, toMicros(ownShare), limit))
	}
	return rows
}

// Close ends the issuer.
func (b *benchIssuer) Close() error { return b.http.Close() }
