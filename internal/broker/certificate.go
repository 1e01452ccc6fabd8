package broker

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/sshca"
)

// sshAuthority issues certificates for source hosts. The broker holds the key of the authority. It never sees the private
// key that a certificate is for.
type sshAuthority struct {
	irrevocable
	keys      *sshca.KeyStore
	hosts     []string // names of source hosts, or "*" for all
	addresses []string // from which a certificate can be used; empty: from any
	requests  bool     // a certificate may carry a line that a person approved at the gateway
	waived    bool     // a certificate may accept a kernel without Landlock
}

func makeSSH(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Key             string   `yaml:"key"`
		Hosts           []string `yaml:"hosts"`
		Addresses       []string `yaml:"addresses"`
		Requests        bool     `yaml:"requests"`
		WithoutLandlock bool     `yaml:"withoutLandlock"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	if said.Key == "" || len(said.Hosts) == 0 || slices.Contains(said.Hosts, "") {
		return nil, "", errors.New(`it needs key, the file of bailey ssh-ca, and hosts, names of source hosts or "*"`)
	}
	for _, a := range said.Addresses {
		if _, err := netip.ParsePrefix(a); err != nil {
			if _, err := netip.ParseAddr(a); err != nil {
				return nil, "", fmt.Errorf("%.60q is neither an address nor a network such as 192.0.2.0/24", a)
			}
		}
	}
	store, err := sshca.NewStore(sshca.StoreConfig{Path: resolveIn(dir, said.Key), Now: time.Now})
	if err != nil {
		return nil, "", err
	}
	about := "ssh certificates for " + strings.Join(said.Hosts, ", ")
	if len(said.Addresses) > 0 {
		about += " from " + strings.Join(said.Addresses, ", ")
	}
	if said.Requests {
		about += ", with approved lines"
	}
	if said.WithoutLandlock {
		about += ", without Landlock"
	}
	return &sshAuthority{keys: store, hosts: said.Hosts, addresses: said.Addresses, requests: said.Requests,
		waived: said.WithoutLandlock}, about, nil
}

// Mint refuses: a certificate is issued for a key and a host, not lent as a value.
func (*sshAuthority) Mint(context.Context, time.Duration) (Minted, error) {
	return Minted{}, bailey.Invalid.New("an ssh lease has no value",
		"name it under broker.sshLease in settings.yaml; calls of source hosts then use it")
}

// checkSSHLease returns an error unless the terms of a lease fit certificates.
func checkSSHLease(e *Entry, ttl bool) error {
	if !ttl {
		e.TTL = sshca.DefaultLifetime
	}
	switch {
	case e.Approval != nil:
		return errors.New("ssh: a certificate serves several calls, so that no answer can belong to it: write approval: none, and let the policy ask")
	case e.TTL < sshca.MinLifetime || e.TTL > sshca.MaxLifetime:
		return fmt.Errorf("ssh: ttl must be from %v to %v", sshca.MinLifetime, sshca.MaxLifetime)
	}
	return nil
}

// issueCertificate signs a certificate for a key that may log in to one host.
func (s *sshAuthority) issueCertificate(ctx context.Context, now func() time.Time, r sshca.Request) (*sshca.Certificate, error) {
	host := strings.TrimSuffix(r.Identity.VM, ".") // see sshca.IDFor
	if !slices.Contains(s.hosts, "*") && !slices.Contains(s.hosts, host) {
		return nil, deniedError("name it under hosts in "+TableName+", then bailey-broker apply",
			"the broker's table allows no certificate for the host %.80q", host)
	}
	for _, o := range r.ShellOptions {
		name, _, _ := strings.Cut(o, "=")
		if name == "--approved" && !s.requests || name == "--without-landlock" && !s.waived {
			return nil, deniedError("set requests or withoutLandlock in "+TableName+", then bailey-broker apply",
				"the broker's table allows no certificate with the option %.40q", o)
		}
	}
	key, err := s.keys.Load()
	if err != nil {
		return nil, err
	}
	defer clear(key)
	authority, err := sshca.New(sshca.Config{Signer: key, Now: now})
	if err != nil {
		return nil, err
	}
	r.Principal, r.SourceAddresses = sshca.ReadOnly, s.addresses
	return authority.Issue(ctx, r)
}

// findAuthority returns the authority of an ssh lease, for an admitted uid.
func (l *clientConn) findAuthority(a brokerRequest) (e Entry, s *sshAuthority, err error) {
	t := l.s.table.Load()
	if err := t.mayBorrow(l.UID); err != nil {
		return e, nil, err
	}
	if len(a.Wants) != 1 {
		return e, nil, bailey.Invalid.New("the message names no single lease", "use a gateway and a broker of one version")
	}
	if e, err = t.findEntry(a.Wants[0]); err != nil {
		return e, nil, err
	}
	s, ok := e.mint.(*sshAuthority)
	if !ok {
		return e, nil, bailey.Invalid.Errorf("name a lease with ssh under broker.sshLease in settings.yaml",
			"the lease %q issues no certificates", a.Wants[0].Name)
	}
	return e, s, nil
}

// certifyKey issues a certificate. Its line in the journal is on the disk before it leaves.
func (l *clientConn) certifyKey(a brokerRequest) (r certified, err error) {
	e, s, err := l.findAuthority(a)
	if err != nil {
		return r, err
	}
	raw, ok := parsePublic(a.Key)
	if !ok {
		return r, malformedError(nil)
	}
	public, err := ssh.NewPublicKey(raw)
	if err != nil {
		return r, malformedError(nil)
	}
	cert, err := s.issueCertificate(l.ctx, l.s.Now, sshca.Request{Key: public, Lifetime: e.TTL, ShellOptions: a.Options,
		Identity: sshca.Identity{User: accountName(l.UID), VM: a.Host, Sandbox: "source"}})
	if err != nil {
		return r, err
	}
	line := event{At: l.s.Now().UTC(), Event: "certify", UID: &l.UID, PID: l.PID, Exe: l.s.exe(l.PID),
		Leases: []entry{{ID: strconv.FormatUint(cert.Serial, 10), Name: a.Wants[0].Name, Mint: cert.Identity, Until: cert.Expires}}}
	if err := l.s.journal.appendEvent(line, true); err != nil {
		return r, err
	}
	return certified{Certificate: string(cert.AuthorizedKey())}, nil
}

// accountName returns the name of a uid for the identity of a certificate.
func accountName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return sshca.IDFor(u.Username)
	}
	return "uid" + id
}

// trustedKeys returns the public keys that hosts must trust.
func (l *clientConn) trustedKeys(a brokerRequest) (r trusted, err error) {
	_, s, err := l.findAuthority(a)
	if err != nil {
		return r, err
	}
	lines, err := s.keys.Export()
	return trusted{Keys: string(lines)}, err
}

// Certifier issues certificates for source hosts at the broker. It is an [sshca.Issuer].
type Certifier struct {
	Client
	Lease string
}

// Issue returns a certificate for an Ed25519 key. The broker decides its lifetime, and the user in its identity.
func (c Certifier) Issue(ctx context.Context, r sshca.Request) (*sshca.Certificate, error) {
	crypto, ok := r.Key.(ssh.CryptoPublicKey)
	if !ok {
		return nil, bailey.Invalid.New("the broker certifies Ed25519 keys only", "")
	}
	if r.Principal == sshca.Apply {
		return nil, bailey.Denied.New("the broker signs no certificates for playbooks", "Apply the playbook by hand, or keep the key of bailey ssh-ca in the home.")
	}
	public, ok := crypto.CryptoPublicKey().(ed25519.PublicKey)
	if !ok || r.Principal != sshca.ReadOnly {
		return nil, bailey.Invalid.New("the broker certifies Ed25519 keys for source hosts only", "")
	}
	var got certified
	if _, err := c.requestOnce(ctx, c.wantedLease(), askCertify, brokerRequest{Wants: wireWants(c.wantedLease()),
		Key: hex.EncodeToString(public), Host: r.Identity.VM, Options: r.ShellOptions}, &got); err != nil {
		return nil, err
	}
	return readCertificate(got.Certificate, r)
}

func (c Certifier) wantedLease() []bailey.Want { return []bailey.Want{{Name: c.Lease}} }

// readCertificate checks that a certificate is for the requested key and principal.
func readCertificate(line string, r sshca.Request) (*sshca.Certificate, error) {
	key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	cert, ok := key.(*ssh.Certificate)
	switch {
	case err != nil || !ok || len(rest) > 0 || cert.CertType != ssh.UserCert || cert.SignatureKey == nil,
		!slices.Equal(cert.ValidPrincipals, []string{string(r.Principal)}),
		!slices.Equal(cert.Key.Marshal(), r.Key.Marshal()):
		return nil, malformedError(nil)
	}
	return &sshca.Certificate{SSH: cert, Serial: cert.Serial, Fingerprint: ssh.FingerprintSHA256(cert.Key),
		Authority: ssh.FingerprintSHA256(cert.SignatureKey), Principal: r.Principal, Identity: cert.KeyId,
		ValidFrom: time.Unix(int64(cert.ValidAfter), 0), Expires: time.Unix(int64(cert.ValidBefore), 0)}, nil
}

// Trusted returns the public keys that hosts must trust, as bailey ssh-ca export prints them.
func (c Certifier) Trusted(ctx context.Context) ([]byte, error) {
	var got trusted
	if _, err := c.requestOnce(ctx, c.wantedLease(), askTrusted, brokerRequest{Wants: wireWants(c.wantedLease())}, &got); err != nil {
		return nil, err
	}
	if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(got.Keys)); err != nil {
		return nil, malformedError(nil)
	}
	return []byte(got.Keys), nil
}
