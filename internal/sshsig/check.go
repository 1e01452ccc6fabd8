package sshsig

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
	"math/big"
	"slices"

	"golang.org/x/crypto/ssh"
)

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
			"sign the text again, exactly as it is")
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
		return nil, nil, invalidError("the signature proper is cut short")
	}
	if !slices.Contains(k.signatureFormats(), w.Format) {
		return nil, nil, deniedError(fmt.Sprintf("the signature is made with %.60q, key %s signs with %v", w.Format,
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
		return nil, nil, invalidError("bytes stand behind the signature proper")
	}
	if !k.isCanonical(w.Blob) {
		return nil, nil, invalidError("the signature proper is not in its one encoding")
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
