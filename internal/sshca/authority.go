// Package sshca is a certificate authority for SSH (PROTOCOL.certkeys of OpenSSH): for logins, and for the host keys of
// sandboxes. It has three parts:
//
//   - Authority issues short-lived certificates. It signs through a crypto.Signer, opens no file and has no clock of
//     its own, so it works in the gateway, in the broker, and in a test with fixed time.
//   - KeyStore keeps the key of the authority in files and replaces it: while one key replaces the other, both are
//     trusted.
//   - Credentials caches one ephemeral key pair and its certificate for each target, in memory or in files.
//
// A target stores only the public key of the authority, in the file that TrustedUserCAKeys of sshd_config(5) names.
package sshca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
)

// Lifetimes of certificates. A request outside MinLifetime and MaxLifetime is an error; it is not clamped.
const (
	DefaultLifetime = 30 * time.Minute
	MinLifetime     = time.Minute
	MaxLifetime     = time.Hour

	// Backdate is how long before its issue a certificate begins to be valid, because clocks of targets differ.
	Backdate = time.Minute
)

// DefaultShell is the path of the read-only shell on a source host.
const DefaultShell = "/usr/local/bin/bailey-readonly-shell"

// Config is the input of New.
type Config struct {
	// Signer holds the key of the authority, which must be Ed25519. It must be safe for concurrent use.
	Signer crypto.Signer
	// Now is the clock. It must be set.
	Now func() time.Time
	// Random is the source of serials, nonces and certificate ids. If it is nil, crypto/rand is used. Any other reader
	// is read by one goroutine at a time.
	Random io.Reader
	// ReadOnlyShell is the forced command of the principal ReadOnly. If it is empty, DefaultShell is used.
	ReadOnlyShell string
}

// Authority issues certificates. It is safe for concurrent use.
type Authority struct {
	signer      ssh.Signer
	public      ssh.PublicKey
	now         func() time.Time
	random      io.Reader
	shell       string
	fingerprint string
	serial      atomic.Uint64 // of the last certificate
}

// New returns an authority with a random first serial. It signs nothing. The error is Invalid if a field of c is wrong,
// and Unavailable if the random source fails.
func New(c Config) (*Authority, error) {
	if c.Signer == nil || c.Now == nil {
		return nil, bailey.Invalid.New("the certificate authority has no signer or no clock",
			"Set Signer and Now in sshca.Config.")
	}
	if _, ok := c.Signer.Public().(ed25519.PublicKey); !ok {
		return nil, bailey.Invalid.New(fmt.Sprintf("the key of the certificate authority is %T, not Ed25519",
			c.Signer.Public()), `Create an Ed25519 key with "bailey ssh-ca rotate" or "ssh-keygen -t ed25519".`)
	}
	signer, err := ssh.NewSignerFromSigner(c.Signer)
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, "the key of the certificate authority is not usable",
			`Create an Ed25519 key with "ssh-keygen -t ed25519".`)
	}
	shell, err := checkShell(c.ReadOnlyShell)
	if err != nil {
		return nil, err
	}
	a := &Authority{signer: signer, public: signer.PublicKey(), now: c.Now,
		random: sharedReader(c.Random), shell: shell, fingerprint: ssh.FingerprintSHA256(signer.PublicKey())}
	var start [8]byte
	if err := a.readRandom(start[:]); err != nil {
		return nil, err
	}
	a.serial.Store(binary.BigEndian.Uint64(start[:]))
	return a, nil
}

// shellPath is strict because sshd passes the forced command to the login shell of the account, which would interpret a
// space or another special character.
var shellPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/[A-Za-z0-9._/-]+$`) })

func checkShell(shell string) (string, error) {
	if shell == "" {
		return DefaultShell, nil
	}
	if !shellPath().MatchString(shell) || path.Clean(shell) != shell {
		return "", bailey.Invalid.New(fmt.Sprintf("the read-only shell %.80q is not a clean absolute path", shell),
			"Use an absolute path of letters, digits and . _ - / only.")
	}
	return shell, nil
}

// PublicKey returns the public key of the authority.
func (a *Authority) PublicKey() ssh.PublicKey { return a.public }

// Fingerprint returns "SHA256:" and the hash of the authority's public key, as ssh-keygen -l prints it.
func (a *Authority) Fingerprint() string { return a.fingerprint }

// Certificate is an issued certificate with the facts that a receipt records.
type Certificate struct {
	SSH         *ssh.Certificate
	Serial      uint64
	Fingerprint string // of the certified key, "SHA256:..."
	Authority   string // fingerprint of the key that signed
	Principal   Principal
	Identity    string // the key id, which sshd logs at each login
	ValidFrom   time.Time
	Expires     time.Time // the first second in which the certificate is not valid
}

// AuthorizedKey returns the certificate as one line, in the format of a file KEY-cert.pub (ssh-keygen(1)).
func (c *Certificate) AuthorizedKey() []byte { return ssh.MarshalAuthorizedKey(c.SSH) }

// Issue checks r and returns a certificate for it. The error is Invalid if r is malformed, Denied if the authority
// never signs such a certificate, and Unavailable if the signer or the random source fails. A refused request uses no
// serial.
func (a *Authority) Issue(ctx context.Context, r Request) (*Certificate, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := a.checkRequest(r)
	if err != nil {
		return nil, err
	}
	now := a.now().Truncate(time.Second)
	from, to := now.Add(-Backdate), now.Add(p.lifetime).Truncate(time.Second)
	if from.Unix() <= 0 {
		return nil, bailey.Unavailable.New("the clock of the certificate authority shows "+
			now.UTC().Format(time.RFC3339), "Set the clock of this machine.")
	}
	if r.Identity.Cert == "" {
		var id [16]byte
		if err := a.readRandom(id[:]); err != nil {
			return nil, err
		}
		r.Identity.Cert = hex.EncodeToString(id[:])
	}
	identity, err := r.Identity.Text()
	if err != nil {
		return nil, err
	}
	cert := &ssh.Certificate{
		Key: p.key, Serial: a.nextSerial(), CertType: ssh.UserCert, KeyId: identity,
		ValidPrincipals: []string{string(r.Principal)},
		ValidAfter:      uint64(from.Unix()), ValidBefore: uint64(to.Unix()),
		Permissions: ssh.Permissions{CriticalOptions: p.options, Extensions: p.extensions},
	}
	if r.Principal == SandboxHost {
		cert.CertType, cert.ValidPrincipals = ssh.HostCert, []string{r.Host}
	}
	if err := a.signCertificate(cert); err != nil {
		return nil, err
	}
	return &Certificate{SSH: cert, Serial: cert.Serial, Fingerprint: ssh.FingerprintSHA256(p.key), Authority: a.fingerprint,
		Principal: r.Principal, Identity: identity, ValidFrom: from, Expires: to}, nil
}

// signCertificate signs a certificate. It is the only caller of the signer. It refuses a certificate without principals
// again, because servers may accept such a certificate for every account (CVE-2024-7594).
func (a *Authority) signCertificate(cert *ssh.Certificate) error {
	if len(cert.ValidPrincipals) != 1 || cert.ValidPrincipals[0] == "" ||
		cert.CertType != ssh.UserCert && cert.CertType != ssh.HostCert {
		return bailey.Internal.New("a certificate without exactly one principal was about to be signed",
			"Report this as a bug of Bailey.")
	}
	var nonce [32]byte
	if err := a.readRandom(nonce[:]); err != nil {
		return err
	}
	if err := cert.SignCert(io.MultiReader(bytes.NewReader(nonce[:]), a.random), a.signer); err != nil {
		return bailey.Unavailable.Wrap(err, "the certificate authority cannot sign",
			"Check that the process that holds the key of the authority runs.")
	}
	if len(cert.Signature.Blob) != ed25519.SignatureSize {
		return bailey.Unavailable.New("the signer of the certificate authority returned no Ed25519 signature",
			"Check that the process that holds the key of the authority has the same version.")
	}
	return nil
}

// nextSerial returns a serial that this authority did not use before. 0 is not used, because OpenSSH shows it for a
// certificate without a serial, and a revocation list cannot name it.
func (a *Authority) nextSerial() uint64 {
	for {
		if s := a.serial.Add(1); s != 0 {
			return s
		}
	}
}

func (a *Authority) readRandom(b []byte) error { return readRandom(a.random, b) }

func readRandom(r io.Reader, b []byte) error {
	if _, err := io.ReadFull(r, b); err != nil {
		return bailey.Unavailable.Wrap(err, "cannot read random bytes", "Check the random source of this machine.")
	}
	return nil
}

// lockedReader lets several goroutines share a reader.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(b)
}

// sharedReader returns a reader for several goroutines. If r is nil, it returns the one of crypto/rand.
func sharedReader(r io.Reader) io.Reader {
	if r == nil {
		return rand.Reader
	}
	return &lockedReader{r: r}
}
