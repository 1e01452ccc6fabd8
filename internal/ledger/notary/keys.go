package notary

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"bailey"
	"bailey/internal/ledger/owned"
)

// Keys gives access to the private keys that sign for a ledger. Their owner may keep them, because the log only asks
// for signatures.
type Keys interface {
	// Make makes an Ed25519 key. The key is durable when Make returns.
	Make() (crypto.Signer, error)
	// Find returns the private key of public. If it is gone, the error is NotFound.
	Find(public ed25519.PublicKey) (crypto.Signer, error)
	// Forget removes the private key of public, which then signs nothing any more.
	Forget(public ed25519.PublicKey) error
}

// KeyFiles stores keys in a directory of their own with mode 0700, each in a file with mode 0600 as PEM (RFC 7468) of
// PKCS #8, which openssl reads. The zero KeyFiles has no directory and no key.
type KeyFiles struct {
	Dir   string
	Whose string // owner in messages; "" is the log
}

func (k KeyFiles) openKeyDir() (*owned.Dir, error) {
	return owned.OpenDir(k.Dir, "the directory of "+cmp.Or(k.Whose, "the log")+"'s keys",
		"find out who changed it; a key needs its own directory: mkdir -m 700")
}

const (
	keyTemp = "key.new" // until it is complete and on the disk
	keyType = "PRIVATE KEY"
	maxKey  = 4 << 10 // bytes of a key file
)

// Make makes a key. Files are named after their public key, so that no key replaces another.
func (k KeyFiles) Make() (crypto.Signer, error) {
	public, private, err := ed25519.GenerateKey(nil) // nil is crypto/rand
	if err != nil {
		return nil, err
	}
	if err := owned.MakeDir(k.Dir); err != nil {
		return nil, bailey.Unavailable.Wrapf(err,
			"set BAILEY_HOME to a directory on a disk that you can write",
			"cannot create the directory of the log's key")
	}
	return private, k.writeKey(keyName(public), private)
}

func (k KeyFiles) writeKey(name string, private ed25519.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	d, err := k.openKeyDir()
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Create(keyTemp, name, bytes.NewReader(pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der})))
}

// Find reads the private key of public.
func (k KeyFiles) Find(public ed25519.PublicKey) (crypto.Signer, error) {
	private, err := k.readKey(keyName(public))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, bailey.NotFound.Wrap(err, "the log's private key is not in "+k.Dir,
			"restore "+keyName(public)+
				" from a copy of the home; without it no checkpoint can be signed, and a new ledger is needed")
	case err != nil:
		return nil, err
	case !private.Public().(ed25519.PublicKey).Equal(public):
		return nil, bailey.Conflict.New(filepath.Join(k.Dir, keyName(public))+" has another key than its name states",
			"restore it from a copy of the home: it was replaced")
	}
	return private, nil
}

func (k KeyFiles) readKey(name string) (ed25519.PrivateKey, error) {
	d, err := k.openKeyDir()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	f, err := d.OpenRegular(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return parseKey(f.Name(), text)
}

func parseKey(name string, text []byte) (ed25519.PrivateKey, error) {
	malformed := func(err error) error {
		return bailey.Invalid.Wrap(err, name+" is not an Ed25519 private key",
			"use a key file of PEM with PKCS #8, as from openssl genpkey -algorithm ed25519")
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != keyType || len(text) > maxKey || len(bytes.TrimSpace(rest)) > 0 {
		return nil, malformed(nil)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := key.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, malformed(err)
	}
	return private, nil
}

// Forget removes the file of public. If the file is gone already, Forget succeeds.
func (k KeyFiles) Forget(public ed25519.PublicKey) error {
	d, err := k.openKeyDir()
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Remove(keyName(public)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", keyName(public), err)
	}
	return owned.SyncDir(k.Dir)
}

// Publics returns the public keys of the keys that sign for a ledger. It skips all other files.
func (k KeyFiles) Publics() []ed25519.PublicKey {
	d, err := k.openKeyDir()
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.List() // without a directory, it is empty
	var list []ed25519.PublicKey
	for _, name := range names {
		if private, err := k.readKey(name); err == nil && name == keyName(private.Public().(ed25519.PublicKey)) {
			list = append(list, private.Public().(ed25519.PublicKey))
		}
	}
	return list
}

// PublicOf returns the public key of an Ed25519 key, or nil for another type of key.
func PublicOf(private crypto.Signer) ed25519.PublicKey {
	if private == nil {
		return nil
	}
	public, _ := private.Public().(ed25519.PublicKey)
	return public
}

// Read returns the key in the file name. It never creates one.
func (k KeyFiles) Read(name string) (crypto.Signer, error) {
	private, err := k.readKey(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bailey.NotFound.New("there is no key "+filepath.Join(k.Dir, name),
			"check its path; the first start creates a missing key")
	}
	return private, err
}

// Named returns the key in the file name. If the file is missing, Named creates it with a new key.
func (k KeyFiles) Named(name string) (crypto.Signer, error) {
	private, err := k.readKey(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return private, err
	}
	if _, private, err = ed25519.GenerateKey(nil); err != nil {
		return nil, err
	}
	if err := owned.MakeDir(k.Dir); err != nil {
		return nil, bailey.Unavailable.Wrapf(err, "name a file in a directory of its own that can be created, mode 0700",
			"cannot create the directory of the key %s", name)
	}
	return private, k.writeKey(name, private)
}

func keyName(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return fmt.Sprintf("log-%x.pem", sum[:8])
}
