// Package sshsig verifies signatures made by ssh-keygen -Y sign against a list of trusted keys (PROTOCOL.sshsig and
// PROTOCOL.u2f of OpenSSH). It signs nothing and opens no file.
//
// A signature is text: a first line, lines of base64, a last line, and at most one newline after it.
//
//	-----BEGIN SSH SIGNATURE-----
//	U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAg...
//	-----END SSH SIGNATURE-----
//
// The base64 encodes an envelope, in which each string is preceded by its length:
//
//	"SSHSIG" | uint32 1 | public key | namespace | reserved | hash name | signature
//
// The key signs these bytes, with sha256 or sha512 over the message:
//
//	"SSHSIG" | namespace | reserved | hash name | hash of the message
//
// Everything must be in its one encoding. Any other is refused, for example bytes after the end, a length that is not
// minimal, or a reserved field that is not empty. Even so, a party without the key can turn an ECDSA signature into a
// second one of the same message: a signature is a proof and must not be used as a name or a nonce.
//
// The key in the envelope only selects a trusted key, whose own bytes verify the signature. The key types are
// ssh-ed25519, ecdsa-sha2-nistp256, ssh-rsa of at least 2048 bits (signing with SHA-512 or SHA-256, never with SHA-1),
// and the two types of security keys: sk-ssh-ed25519@openssh.com and sk-ecdsa-sha2-nistp256@openssh.com. These also
// sign a byte of flags; if its lowest bit is set, a person touched the key. No check here shows that a key of these
// types is in hardware: only the person that enrolled it knows.
package sshsig

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"

	"golang.org/x/crypto/ssh"

	"bailey"
)

// Signer identifies the key that made a signature and its owner.
type Signer struct {
	Name  string // as in the list of keys
	Key   string // the key's fingerprint, SHA256:...
	Touch bool   // an sk key signed and reports that a person was present
}

// Verify returns which of keys signed message for namespace. The error is Invalid if armored is not a signature of this
// form. It is Denied if the signature is not accepted, for example because its key is not in keys.
func Verify(message, armored []byte, namespace string, keys []Key) (Signer, error) {
	if namespace == "" {
		return Signer{}, bailey.Internal.New("a signature was to be verified for no namespace", "")
	}
	e, err := parseEnvelope(armored)
	if err != nil {
		return Signer{}, err
	}
	if e.Namespace != namespace {
		return Signer{}, deniedError(fmt.Sprintf("the signature is for namespace %.80q, not %q", e.Namespace,
			namespace), "sign again: ssh-keygen -Y sign -n "+namespace)
	}
	key := findKey(keys, e.Key)
	if key == nil {
		return Signer{}, deniedError("the signature is by key "+fingerprintOf(e.Key)+
			", which is not among those trusted", "sign with a key of the list, or have this one added to it")
	}
	touch, err := key.verifySignature(e.signedData(message), e.Signature)
	if err != nil {
		return Signer{}, err
	}
	return Signer{Name: key.Name, Key: key.Fingerprint(), Touch: touch}, nil
}

func findKey(keys []Key, blob []byte) *Key {
	for i := range keys {
		if len(keys[i].blob) > 0 && bytes.Equal(keys[i].blob, blob) {
			return &keys[i]
		}
	}
	return nil
}

// signedData returns the bytes that the key signed. open accepts only these two hashes.
func (e *envelope) signedData(message []byte) []byte {
	var sum []byte
	switch e.Hash {
	case "sha512":
		h := sha512.Sum512(message)
		sum = h[:]
	case "sha256":
		h := sha256.Sum256(message)
		sum = h[:]
	}
	return append([]byte(magic), ssh.Marshal(struct {
		Namespace, Reserved, Hash string
		Sum                       []byte
	}{e.Namespace, e.Reserved, e.Hash, sum})...)
}

func deniedError(message, hint string) error {
	return bailey.Denied.New(message, hint)
}
