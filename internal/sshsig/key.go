package sshsig

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"slices"

	"golang.org/x/crypto/ssh"
)

// Key is one trusted key with the name of its owner. The zero Key verifies nothing.
type Key struct {
	Name string

	blob  []byte        // as in the envelope
	plain ssh.PublicKey // verifies the signed data; for an sk type, the key without its application
	app   string        // the application of an sk type
	sk    bool
}

// Fingerprint returns "SHA256:" followed by the hash of the key, as printed by ssh-keygen -l.
func (k Key) Fingerprint() string { return fingerprintOf(k.blob) }

// Hardware reports whether the key's type is one for security keys.
func (k Key) Hardware() bool { return k.sk }

func fingerprintOf(blob []byte) string {
	sum := sha256.Sum256(blob)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// keyTypes returns the accepted key types.
func keyTypes() []string {
	return []string{ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoSKECDSA256,
		ssh.KeyAlgoRSA}
}

func isKind(s string) bool { return slices.Contains(keyTypes(), s) }

// minRSA is the minimum size of an RSA modulus in bits.
const minRSA = 2048

// newKey decodes a public key, which must be of the given type and in its one encoding. If the key is not accepted, the
// second result is the reason.
func newKey(name, kind string, blob []byte) (Key, string) {
	k := Key{Name: name, blob: blob}
	pub, err := ssh.ParsePublicKey(blob)
	switch {
	case err != nil:
		return Key{}, "the key's base64 holds no public key"
	case pub.Type() != kind:
		return Key{}, "the line says " + kind + ", the key in it is of another type"
	case !bytes.Equal(pub.Marshal(), blob):
		return Key{}, "the key is not in its one encoding"
	}
	switch kind {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256:
		k.plain = pub
	case ssh.KeyAlgoRSA:
		if inner, ok := cryptoKey(pub).(*rsa.PublicKey); !ok || inner.N.BitLen() < minRSA {
			return Key{}, "an RSA key must have at least 2048 bits"
		}
		k.plain = pub
	case ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256:
		k.sk, k.app = true, skApplication(kind, blob)
		if k.plain, err = ssh.NewPublicKey(cryptoKey(pub)); err != nil {
			return Key{}, "the key's point is none"
		}
	default:
		return Key{}, "keys of type " + kind + " are not taken"
	}
	return k, ""
}

func cryptoKey(pub ssh.PublicKey) crypto.PublicKey {
	if c, ok := pub.(ssh.CryptoPublicKey); ok {
		return c.CryptoPublicKey()
	}
	return nil
}

// skApplication returns the last field of an sk key that has already been parsed (PROTOCOL.u2f).
func skApplication(kind string, blob []byte) string {
	if kind == ssh.KeyAlgoSKED25519 {
		var w struct {
			Type             string
			Key, Application []byte
		}
		if ssh.Unmarshal(blob, &w) == nil {
			return string(w.Application)
		}
	}
	var w struct {
		Type, Curve      string
		Key, Application []byte
	}
	if ssh.Unmarshal(blob, &w) == nil {
		return string(w.Application)
	}
	return ""
}
