// Package sshsig verifies signatures that ssh-keygen -Y sign makes, against a list of keys that somebody
// trusts (PROTOCOL.sshsig and PROTOCOL.u2f of OpenSSH). It signs nothing and opens no file.
//
// A signature is text: a first line, base64 in lines, a last line, and at most one newline behind it.
//
//	-----BEGIN SSH SIGNATURE-----
//	U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAg...
//	-----END SSH SIGNATURE-----
//
// In it stands an envelope, every string of which has its length before it:
//
//	"SSHSIG" | uint32 1 | public key | namespace | reserved | hash name | signature
//
// and what was signed is, with sha256 or sha512 over the message,
//
//	"SSHSIG" | namespace | reserved | hash name | hash of the message
//
// Everything has one encoding here, and any other is refused: bytes behind the end, a length that is not
// minimal, a reserved field that is not empty. Even so an ECDSA signature can be turned into a second one of
// the same message by who does not hold the key: a signature is proof, never a name or a nonce.
//
// The key in the envelope only chooses among the trusted ones, whose own bytes verify. Key types are
// ssh-ed25519, ecdsa-sha2-nistp256, ssh-rsa of at least 2048 bits (signing with SHA-512 or SHA-256, never
// with SHA-1), and the two that live in a security key: sk-ssh-ed25519@openssh.com and
// sk-ecdsa-sha2-nistp256@openssh.com. Those sign with a byte of flags, whose lowest bit says that somebody
// touched the key. Nothing here says that a key of these types is in hardware: only who enrolled it knows.
package sshsig

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"

	"golang.org/x/crypto/ssh"

	"bailey"
)

// Signer is whose signature it is.
type Signer struct {
	Name  string // as the list of keys has it
	Key   string // the key's fingerprint, SHA256:...
	Touch bool   // a key of an sk type signed, and says that a person was present
}

// Verify says who of keys signed message for namespace, or why nobody did: Invalid where armored is no
// signature of this form, Denied where it is one that does not count.
func Verify(message, armored []byte, namespace string, keys []Key) (Signer, error) {
	if namespace == "" {
		return Signer{}, &bailey.Error{Kind: bailey.Internal, Message: "a signature was to be verified for no namespace"}
	}
	e, err := open(armored)
	if err != nil {
		return Signer{}, err
	}
	if e.Namespace != namespace {
		return Signer{}, denied(fmt.Sprintf("the signature is for namespace %.80q, not %q", e.Namespace, namespace), "sign again: ssh-keygen -Y sign -n "+namespace)
	}
	key := find(keys, e.Key)
	if key == nil {
		return Signer{}, denied("the signature is by key "+fingerprint(e.Key)+", which is not among those trusted", "sign with a key of the list, or have this one added to it")
	}
	touch, err := key.verify(e.signed(message), e.Signature)
	if err != nil {
		return Signer{}, err
	}
	return Signer{Name: key.Name, Key: key.Fingerprint(), Touch: touch}, nil
}

func find(keys []Key, blob []byte) *Key {
	for i := range keys {
		if len(keys[i].blob) > 0 && bytes.Equal(keys[i].blob, blob) {
			return &keys[i]
		}
	}
	return nil
}

// signed returns the bytes that the key signed. open took no hash but these two.
func (e *envelope) signed(message []byte) []byte {
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

func denied(message, hint string) error {
	return &bailey.Error{Kind: bailey.Denied, Message: message, Hint: hint}
}
