package sshca

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"

	"bailey"
)

const (
	keyBlock = "OPENSSH PRIVATE KEY" // PROTOCOL.key of OpenSSH

	// keyComment is the comment of the authority's keys.
	keyComment = "bailey-ca"
)

// GenerateKey returns a new key for an authority. If random is nil, crypto/rand is used.
func GenerateKey(random io.Reader) (ed25519.PrivateKey, error) {
	var seed [ed25519.SeedSize]byte
	defer clear(seed[:])
	if err := readRandom(sharedReader(random), seed[:]); err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed[:]), nil
}

// SaveKey writes key to a new file of mode 0600 in the format of OpenSSH, and its public half to path.pub of mode 0644.
// It creates the directory with mode 0700 if it does not exist. The files are on the disk before SaveKey returns, and a
// crash leaves either the complete private key or no file of that name. The error is Conflict if path exists, or if
// path.pub is of another key, and Denied if other users can access the directory.
func SaveKey(path string, key ed25519.PrivateKey) error {
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return bailey.Unavailable.Wrap(err, "cannot create "+filepath.Dir(path),
			"Create the directory with mode 0700.")
	}
	d, err := openSecretDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.close()
	unlock, err := d.lockDir()
	if err != nil {
		return err
	}
	defer unlock()
	return d.saveKey(filepath.Base(path), key)
}

// saveKey writes the private key first: if a crash prevents the public file, KeyStore.Export writes it again.
func (d *secretDir) saveKey(name string, key ed25519.PrivateKey) error {
	line, err := publicLine(key)
	if err != nil {
		return err
	}
	if _, err := d.root.Lstat(name); err == nil {
		return existsAlready(d.joinPath(name))
	}
	old, err := d.readFile(name+".pub", checkPublic)
	if err != nil && bailey.KindOf(err) != bailey.NotFound {
		return err
	}
	if err == nil && !bytes.Equal(old, line) {
		return bailey.Conflict.New(d.joinPath(name)+".pub is the public half of another key",
			"Move it to another directory, or choose another path.")
	}
	if err := d.createPrivate(name, key); err != nil {
		return err
	}
	return d.replaceFile(name+".pub", line, publicMode)
}

func (d *secretDir) createPrivate(name string, key ed25519.PrivateKey) error {
	text, err := formatPrivate(key, keyComment)
	if err != nil {
		return err
	}
	defer clear(text)
	return d.createFile(name, text, secretMode)
}

// LoadKey reads the private key of an authority. The error is NotFound if the file does not exist. It is Denied if the
// file is a link, belongs neither to the user of the process nor to root, has another mode than 0600 or 0400, or if
// other users can access its directory. It is Invalid if the file does not hold exactly one complete, unencrypted
// Ed25519 key in the format of OpenSSH.
func LoadKey(path string) (ed25519.PrivateKey, error) {
	d, err := openSecretDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer d.close()
	return d.loadKey(filepath.Base(path))
}

func (d *secretDir) loadKey(name string) (ed25519.PrivateKey, error) {
	text, err := d.readFile(name, checkSecret)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	key, fault := parsePrivate(text)
	if fault != "" {
		return nil, bailey.Invalid.New("the private key "+d.joinPath(name)+" "+fault,
			"Restore the file from a copy, or create a new key and distribute its public half.")
	}
	return key, nil
}

// parsePrivate parses a private key. If the text is not accepted, fault is the reason. It contains no error of a
// parser, because such an error can contain parts of the key.
func parsePrivate(text []byte) (key ed25519.PrivateKey, fault string) {
	begin := []byte("-----BEGIN ")
	_, last, complete := bytes.Cut(text, []byte("\n-----END "))
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return nil, "is empty"
	case !bytes.HasPrefix(text, begin[:min(len(begin), len(text))]):
		return nil, "is not a private key in PEM format"
	case !complete || !bytes.Contains(last, []byte("-----")):
		return nil, "is cut short: its last line is not complete"
	}
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return nil, "is damaged: its PEM format is wrong"
	case block.Type != keyBlock:
		return nil, fmt.Sprintf("is a PEM file of type %.40q, not %q", block.Type, keyBlock)
	case len(bytes.TrimSpace(rest)) > 0 || bytes.Count(text, begin) != 1:
		return nil, "has more text than one key"
	}
	clear(block.Bytes)
	parsed, err := ssh.ParseRawPrivateKey(text)
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		return nil, "is encrypted with a passphrase, for which the authority cannot ask"
	}
	if err != nil {
		return nil, "is damaged: its content is not a private key"
	}
	pair, ok := parsed.(*ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Sprintf("holds a %T, not an Ed25519 key", parsed)
	}
	if len(*pair) != ed25519.PrivateKeySize || !ed25519.NewKeyFromSeed(pair.Seed()).Equal(*pair) {
		return nil, "is damaged: its public and its private half do not match"
	}
	return *pair, ""
}

// formatPrivate returns a private key in the format of OpenSSH.
func formatPrivate(key ed25519.PrivateKey, comment string) ([]byte, error) {
	block, err := ssh.MarshalPrivateKey(key, comment)
	if err != nil {
		return nil, bailey.Internal.New("cannot format a private key", "Report this as a bug of Bailey.")
	}
	defer clear(block.Bytes)
	return pem.EncodeToMemory(block), nil
}

// publicLine returns the line of a .pub file.
func publicLine(key ed25519.PrivateKey) ([]byte, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, bailey.Invalid.New("the private key has a wrong length", "Create the key with sshca.GenerateKey.")
	}
	pub, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, "the public key is not usable", "Create the key with sshca.GenerateKey.")
	}
	return formatPublic(pub), nil
}

func formatPublic(pub ssh.PublicKey) []byte {
	return append(bytes.TrimSuffix(ssh.MarshalAuthorizedKey(pub), []byte("\n")), " "+keyComment+"\n"...)
}

// parsePublic parses a .pub file, which must be exactly one line of formatPublic.
func parsePublic(text []byte) (ssh.PublicKey, bool) {
	pub, _, options, rest, err := ssh.ParseAuthorizedKey(text)
	if err != nil || len(options) > 0 || len(rest) > 0 || pub.Type() != ssh.KeyAlgoED25519 {
		return nil, false
	}
	return pub, bytes.Equal(formatPublic(pub), text)
}
