// Package sshsig verifies signatures made by ssh-keygen -Y sign against a list of trusted keys (PROTOCOL.sshsig and
// PROTOCOL.u2f of OpenSSH), and makes such signatures with a key that the caller has. It opens no file.
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
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"math/big"
	"slices"

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
		return Signer{}, bailey.Internal.New("cannot verify a signature without a namespace", "")
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

const (
	magic = "SSHSIG"
	begin = "-----BEGIN SSH SIGNATURE-----\n"
	end   = "-----END SSH SIGNATURE-----"

	// maxSignature bounds the armored text in bytes. An RSA key of 16384 bits, the largest, produces less than 6 KiB.
	maxSignature = 16 << 10
	maxLine      = 76 // bytes of base64; ssh-keygen writes 70, other tools 76
)

// envelope holds the fields of the armored data, in their order.
type envelope struct {
	Magic     [len(magic)]byte
	Version   uint32
	Key       []byte
	Namespace string
	Reserved  string
	Hash      string
	Signature []byte
}

// parseEnvelope decodes an envelope and returns an error if the envelope is not in its one encoding.
func parseEnvelope(armored []byte) (*envelope, error) {
	raw, err := decodeArmor(armored)
	if err != nil {
		return nil, err
	}
	var e envelope
	if !bytes.HasPrefix(raw, []byte(magic)) {
		return nil, invalidError("the signature does not begin with " + magic)
	}
	if err := ssh.Unmarshal(raw, &e); err != nil {
		return nil, invalidError("the signature is truncated, or is followed by other bytes")
	}
	switch {
	case e.Version != 1:
		return nil, invalidError(fmt.Sprintf("the signature has version %d, but only 1 is supported", e.Version))
	case !bytes.Equal(ssh.Marshal(e), raw):
		return nil, invalidError("the signature is not in canonical form")
	case e.Namespace == "":
		return nil, invalidError("the signature names no namespace")
	case e.Reserved != "":
		return nil, invalidError("the signature's reserved field is not empty")
	case e.Hash != "sha256" && e.Hash != "sha512":
		return nil, invalidError(fmt.Sprintf("the signature uses hash %.40q, but only sha256 and sha512 are supported",
			e.Hash))
	}
	return &e, nil
}

// decodeArmor removes the first and the last line and decodes the base64 between them. It checks the lines first because
// the decoder skips newlines.
func decodeArmor(armored []byte) ([]byte, error) {
	if len(armored) > maxSignature {
		return nil, invalidError(fmt.Sprintf("the signature has %d bytes, but at most %d are allowed", len(armored),
			maxSignature))
	}
	body, ok := bytes.CutPrefix(armored, []byte(begin))
	if !ok {
		return nil, invalidError("the signature does not begin with the line " + begin[:len(begin)-1])
	}
	body, ok = bytes.CutSuffix(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"+end))
	if !ok {
		return nil, invalidError("the signature does not end with the line " + end)
	}
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		if len(line) == 0 || len(line) > maxLine || bytes.IndexByte(line, '\r') >= 0 {
			return nil, invalidError("a line of the signature is empty, too long, or ends in a carriage return")
		}
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(string(body))
	if err != nil {
		return nil, invalidError("the signature's lines are not base64")
	}
	return raw, nil
}

func invalidError(message string) error {
	return bailey.Invalid.New(message, "use the unchanged file that ssh-keygen -Y sign wrote")
}

// flagPresent is the lowest bit of an authenticator's flags. It is set if a person touched the key (FIDO2, section 6.1
// of WebAuthn, "UP").
const flagPresent = 0x01

// assertion follows the signature of a security key (PROTOCOL.u2f).
type assertion struct {
	Flags   byte
	Counter uint32
}

// verifySignature checks one signature by k over data and reports whether a person touched the key.
func (k *Key) verifySignature(data, blob []byte) (touch bool, err error) {
	sig, a, err := k.parseSignature(blob)
	if err != nil {
		return false, err
	}
	if k.sk {
		data = fidoSignedData(k.app, *a, data)
	}
	if k.plain.Verify(data, sig) != nil {
		return false, deniedError("the signature is not that of key "+k.Fingerprint()+" over this text",
			"sign the text again, without any change")
	}
	return k.sk && a.Flags&flagPresent != 0, nil
}

// fidoSignedData returns the bytes that a security key signs instead of data.
func fidoSignedData(app string, a assertion, data []byte) []byte {
	where, what := sha256.Sum256([]byte(app)), sha256.Sum256(data)
	return slices.Concat(where[:], ssh.Marshal(a), what[:])
}

// parseSignature strictly decodes a signature in the form of its key's type. The library alone would accept an RSA signature that
// is too short, and SHA-1 in addition to SHA-2 (RFC 8332, section 3).
func (k *Key) parseSignature(blob []byte) (*ssh.Signature, *assertion, error) {
	var w struct {
		Format string
		Blob   []byte
		Rest   []byte `ssh:"rest"`
	}
	if ssh.Unmarshal(blob, &w) != nil {
		return nil, nil, invalidError("the inner signature is truncated")
	}
	if !slices.Contains(k.signatureFormats(), w.Format) {
		return nil, nil, deniedError(fmt.Sprintf("the signature has type %.60q, but key %s signs with %v", w.Format,
			k.Fingerprint(), k.signatureFormats()), "sign with ssh-keygen -Y sign")
	}
	var a *assertion
	if k.sk {
		a = new(assertion)
		if ssh.Unmarshal(w.Rest, a) != nil {
			return nil, nil, invalidError("flags and counter of the security key are not five bytes")
		}
		w.Format = k.plain.Type()
	} else if len(w.Rest) > 0 {
		return nil, nil, invalidError("bytes follow the inner signature")
	}
	if !k.isCanonical(w.Blob) {
		return nil, nil, invalidError("the inner signature is not in canonical form")
	}
	return &ssh.Signature{Format: w.Format, Blob: w.Blob}, a, nil
}

// signatureFormats returns the names of the algorithms that the key may sign with.
func (k *Key) signatureFormats() []string {
	switch t := k.plain.Type(); {
	case t == ssh.KeyAlgoRSA:
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	case k.sk && t == ssh.KeyAlgoED25519:
		return []string{ssh.KeyAlgoSKED25519}
	case k.sk:
		return []string{ssh.KeyAlgoSKECDSA256}
	default:
		return []string{t}
	}
}

// isCanonical reports whether blob is the one encoding of the numbers in it.
func (k *Key) isCanonical(blob []byte) bool {
	switch pub := cryptoKey(k.plain).(type) {
	case *rsa.PublicKey:
		return len(blob) == pub.Size()
	default:
		if k.plain.Type() == ssh.KeyAlgoED25519 {
			return len(blob) == 64
		}
		var w struct{ R, S *big.Int }
		return ssh.Unmarshal(blob, &w) == nil && bytes.Equal(ssh.Marshal(w), blob)
	}
}
