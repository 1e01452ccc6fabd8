package sshsig

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"bailey"
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
		return Key{}, "the key's base64 contains no public key"
	case pub.Type() != kind:
		return Key{}, "the line has type " + kind + ", but the key is of another type"
	case !bytes.Equal(pub.Marshal(), blob):
		return Key{}, "the key is not in canonical form"
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
			return Key{}, "the key's point is invalid"
		}
	default:
		return Key{}, "keys of type " + kind + " are not supported"
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

// Limits of a list of keys: maxList and maxName are in bytes, maxKeys is a number of keys.
const (
	maxList = 1 << 20
	maxKeys = 4096
	maxName = 128
)

// ParseKeys reads a list of trusted keys, one per line: a name, the type, the key in base64, and an optional comment,
// which is ignored. Empty lines and lines that begin with # are skipped. The format is that of an allowed_signers file
// (ssh-keygen(1)) without options and patterns: a word that would restrict or extend a key is refused and not ignored.
// A name may have several keys, but a key must have only one name.
func ParseKeys(list []byte) ([]Key, error) {
	if len(list) > maxList {
		return nil, bailey.Invalid.Errorf("",
			"the list of keys has %d bytes, but at most %d are allowed", len(list), maxList)
	}
	var keys []Key
	seen := map[string]int{}
	n := 0
	for line := range bytes.SplitSeq(list, []byte("\n")) {
		n++
		text := string(line)
		if trimmed := strings.Trim(text, " \t"); trimmed == "" || trimmed[0] == '#' {
			continue
		}
		key, wrong := parseKey(text)
		if first, twice := seen[string(key.blob)]; wrong == "" && twice {
			wrong = fmt.Sprintf("the key is the same as in line %d", first)
		}
		if wrong == "" && len(keys) == maxKeys {
			wrong = fmt.Sprintf("a list can have at most %d keys", maxKeys)
		}
		if wrong != "" {
			return nil, bailey.Invalid.Errorf("write a line as NAME TYPE KEY, with the last two from the .pub file",
				"line %d of the list of keys: %s", n, wrong)
		}
		seen[string(key.blob)] = n
		keys = append(keys, key)
	}
	return keys, nil
}

// parseKey reads one line. If the line is not accepted, the second result is the reason.
func parseKey(line string) (Key, string) {
	for _, c := range []byte(line) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return Key{}, "it contains a control character"
		}
	}
	words := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' })
	if len(words) < 3 {
		return Key{}, "it needs a name, a type and a key"
	}
	if !isName(words[0]) {
		return Key{}, fmt.Sprintf("%.40q is not a name: use letters, digits and . _ @ + -, without patterns", words[0])
	}
	if !isKind(words[1]) {
		return Key{}, fmt.Sprintf("%.60q is not one of the types %s; options are not supported here", words[1],
			strings.Join(keyTypes(), ", "))
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(words[2])
	if err != nil {
		return Key{}, "the key is not base64"
	}
	return newKey(words[0], words[1], blob)
}

func isName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("._@+-", c) < 0 {
			return false
		}
	}
	return len(s) <= maxName && s[0] != '-'
}
