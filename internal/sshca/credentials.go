package sshca

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
)

// Renew is how long before its expiry a certificate is replaced, so that a connection that begins now can log in.
const Renew = 30 * time.Second

// Issuer issues certificates. *Authority is an Issuer; a process without the key can ask another process.
type Issuer interface {
	Issue(context.Context, Request) (*Certificate, error)
}

// CredentialsConfig is the input of NewCredentials.
type CredentialsConfig struct {
	Issuer Issuer
	// Now is the clock. It must be set, and it must be the clock of the issuer or close to it.
	Now func() time.Time
	// Random is the source of key pairs. If it is nil, crypto/rand is used.
	Random io.Reader
	// Dir is the directory for files, for programs such as ssh(1). It must be absolute, and only one Credentials may
	// use it. If it is empty, credentials exist only in memory.
	Dir string
}

// Target is a sandbox or a host with the user that logs in. The same name with another principal is another target.
type Target struct {
	Principal Principal
	Name      string   // of the sandbox or host
	Identity  Identity // Cert must be empty, because each certificate has its own id
	// Lifetime, SourceAddresses and ShellOptions are those of Request.
	Lifetime        time.Duration
	SourceAddresses []string
	ShellOptions    []string
}

// Credential is a key pair with its certificate. It must not be changed, because callers share it.
type Credential struct {
	Certificate *Certificate
	// Signer authenticates with the certificate. Its private key never leaves the process, except to KeyFile.
	Signer ssh.Signer
	// KeyFile and CertificateFile are absolute paths, or empty if the credential exists only in memory. ssh -i KeyFile
	// finds the certificate by its name. The files exist until the credential after the next one is generated.
	KeyFile, CertificateFile string

	files  map[string][]byte // content by name, for the check before each use
	folder string            // of the files, relative to Dir
}

// Credentials caches one credential for each target and user. It is safe for concurrent use. Callers for one target
// wait for each other, so that only one key pair is generated. Callers for different targets do not wait for each
// other.
type Credentials struct {
	issuer Issuer
	now    func() time.Time
	random io.Reader
	files  *credentialFiles // nil if credentials exist only in memory

	mu      sync.Mutex
	entries map[entryKey]*entry
}

// entryKey separates users: a credential with the identity of one user must not be used for another.
type entryKey struct {
	principal  Principal
	name, user string
}

// entry is one cached credential. The lock is a channel so that a caller can stop waiting.
type entry struct {
	lock       chan struct{}
	target     Target
	credential *Credential // nil before the first one
	removed    bool        // a caller that waited must use a new entry
}

// NewCredentials returns an empty cache. It reads and writes no file.
func NewCredentials(c CredentialsConfig) (*Credentials, error) {
	if c.Issuer == nil || c.Now == nil {
		return nil, bailey.Invalid.New("the cache of SSH credentials has no issuer or no clock",
			"Set Issuer and Now in sshca.CredentialsConfig.")
	}
	s := &Credentials{issuer: c.Issuer, now: c.Now, random: sharedReader(c.Random), entries: map[entryKey]*entry{}}
	if c.Dir != "" {
		if !filepath.IsAbs(c.Dir) || filepath.Clean(c.Dir) != c.Dir {
			return nil, bailey.Invalid.New(fmt.Sprintf("the directory %.200q of the credentials is not absolute", c.Dir),
				"Set an absolute Dir in sshca.CredentialsConfig.")
		}
		if err := platformFault(); err != nil {
			return nil, err
		}
		s.files = &credentialFiles{dir: c.Dir, owners: map[string]entryKey{}}
	}
	return s, nil
}

// Get returns the credential of t. It generates a new one if there is none, if it expires within 30 s, or if t differs
// from the target of the cached one. If credentials are files, their owners, modes and content are checked at each
// call: the error is Denied if another user could have read or changed them. Other errors are those of the issuer.
func (c *Credentials) Get(ctx context.Context, t Target) (*Credential, error) {
	if t.Name == "" || t.Identity.Cert != "" {
		return nil, bailey.Invalid.New("the target of an SSH credential has no name, or a certificate id",
			"Set Name, and leave Identity.Cert empty.")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.SourceAddresses, t.ShellOptions = slices.Clone(t.SourceAddresses), slices.Clone(t.ShellOptions)
	key := entryKey{t.Principal, t.Name, t.Identity.User}
	for {
		e, err := c.lockEntry(ctx, key)
		if err != nil {
			return nil, err
		}
		if credential, usable, err := c.useEntry(ctx, e, key, t); usable {
			return credential, err
		}
	}
}

// useEntry returns the credential of a locked entry and unlocks it. If the entry was removed while the caller waited,
// usable is false and the caller must lock the new entry.
func (c *Credentials) useEntry(
	ctx context.Context, e *entry, key entryKey, t Target,
) (r *Credential, usable bool, err error) {
	defer func() { <-e.lock }()
	if e.removed {
		return nil, false, nil
	}
	r, err = c.currentCredential(ctx, e, key, t)
	if e.credential == nil { // a target that was never issued a certificate must not fill the memory
		c.removeEntry(e, key)
	}
	return r, true, err
}

// lockEntry returns the entry of key, which the caller must release by a receive from its lock.
func (c *Credentials) lockEntry(ctx context.Context, key entryKey) (*entry, error) {
	c.mu.Lock()
	e := c.entries[key]
	if e == nil {
		e = &entry{lock: make(chan struct{}, 1)}
		c.entries[key] = e
	}
	c.mu.Unlock()
	select {
	case e.lock <- struct{}{}:
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// removeEntry removes an entry whose lock the caller holds.
func (c *Credentials) removeEntry(e *entry, key entryKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.removed, e.credential = true, nil
	if c.entries[key] == e {
		delete(c.entries, key)
	}
}

// currentCredential returns the cached credential if it can be used, otherwise a new one. The caller must hold the
// entry's lock.
func (c *Credentials) currentCredential(ctx context.Context, e *entry, key entryKey, t Target) (*Credential, error) {
	if e.credential != nil && equalTargets(e.target, t) && c.isFresh(e.credential) {
		complete := true
		var err error
		if c.files != nil {
			complete, err = c.files.checkCredential(e.credential)
		}
		if err != nil || complete {
			return e.credential, err
		}
	}
	credential, err := c.generateCredential(ctx, t)
	if err != nil {
		return nil, err
	}
	if c.files != nil {
		if err := c.files.writeCredential(key, credential, e.credential); err != nil {
			return nil, err
		}
	}
	e.target, e.credential = t, credential
	return credential, nil
}

func equalTargets(a, b Target) bool {
	return a.Identity == b.Identity && a.Lifetime == b.Lifetime && slices.Equal(a.SourceAddresses, b.SourceAddresses) &&
		slices.Equal(a.ShellOptions, b.ShellOptions)
}

// isFresh is false before the beginning of the validity too: then the clock was set back.
func (c *Credentials) isFresh(credential *Credential) bool {
	now := c.now()
	return now.Before(credential.Certificate.Expires.Add(-Renew)) && !now.Before(credential.Certificate.ValidFrom)
}

// generateCredential returns a new key pair with its certificate. The issuer can be another process, so its answer is
// checked.
func (c *Credentials) generateCredential(ctx context.Context, t Target) (*Credential, error) {
	private, err := GenerateKey(c.random)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		return nil, err
	}
	issued, err := c.issuer.Issue(ctx, Request{Key: signer.PublicKey(), Principal: t.Principal, Identity: t.Identity,
		Lifetime: t.Lifetime, SourceAddresses: t.SourceAddresses, ShellOptions: t.ShellOptions})
	if err != nil {
		return nil, err
	}
	credential := &Credential{Certificate: issued}
	if credential.Signer, err = ssh.NewCertSigner(issued.SSH, signer); err != nil {
		return nil, wrongAnswer("it is for another key")
	}
	principals := issued.SSH.ValidPrincipals
	switch {
	case !slices.Equal(principals, []string{string(t.Principal)}):
		return nil, wrongAnswer(fmt.Sprintf("it is for the principals %.80q", strings.Join(principals, ",")))
	case !c.isFresh(credential) || issued.SSH.ValidBefore != uint64(issued.Expires.Unix()):
		return nil, wrongAnswer("it is not valid now, or expires within " + Renew.String())
	}
	if c.files != nil {
		err = credential.prepareFiles(private)
	}
	return credential, err
}

func (c *Credential) prepareFiles(private ed25519.PrivateKey) error {
	text, err := formatPrivate(private, c.Certificate.Identity)
	if err == nil {
		c.files = map[string][]byte{keyName: text, certificateName: c.Certificate.AuthorizedKey()}
	}
	return err
}

func wrongAnswer(reason string) error {
	return bailey.Unavailable.New("the certificate authority returned a wrong certificate: "+reason,
		"Check the clocks, and that both processes have the same version.")
}

// Remove deletes the credentials of all users for a target, in memory and in files. It must be called when the target
// is removed. It waits for a caller that generates one. A target without credentials is not an error.
func (c *Credentials) Remove(ctx context.Context, p Principal, name string) error {
	return c.removeEach(ctx, func(k entryKey) bool { return k.principal == p && k.name == name },
		func() error { return c.files.removeTarget(p, name) })
}

// Clear deletes all credentials, in memory and in files, including files of an earlier process. It should be called
// when a process starts and when it ends.
func (c *Credentials) Clear(ctx context.Context) error {
	return c.removeEach(ctx, func(entryKey) bool { return true }, func() error { return c.files.removeAll() })
}

// removeEach holds the locks of all entries that match while their files are removed. Each entry is forgotten as soon
// as it is locked, so another removal that asks for it later finds a new one. Therefore two removals cannot wait for
// each other, although each locks the entries in any order.
func (c *Credentials) removeEach(ctx context.Context, match func(entryKey) bool, removeFiles func() error) error {
	c.mu.Lock()
	var keys []entryKey
	for k := range c.entries {
		if match(k) {
			keys = append(keys, k)
		}
	}
	c.mu.Unlock()
	for _, k := range keys {
		e, err := c.lockEntry(ctx, k)
		if err != nil {
			return err
		}
		defer func() { <-e.lock }()
		c.removeEntry(e, k)
	}
	if c.files == nil {
		return nil
	}
	return removeFiles()
}
