// Package passkey verifies answers that a passkey signed: assertions of WebAuthn (W3C, level 3, section 7.2) whose
// challenge is the SHA-256 of the answered text. It opens no file and has no state: the caller keeps the counter.
//
// An accepted passkey is a line, which an operator writes as the key of an approver:
//
//	passkey https://bailey.example.com CREDENTIAL KEY
//
// The second word is the origin of the pages on which the passkey is used; its host is the relying party. CREDENTIAL is
// the id of the credential. KEY is the public key as SubjectPublicKeyInfo (RFC 5280), as a browser returns it from
// getPublicKey. Both are base64url without padding. Keys are ECDSA with P-256 (ES256), Ed25519 (EdDSA), or RSA of 2048
// to 4096 bits (RS256).
//
// An answer is one JSON object without spaces, with these members in this order, whose values are base64url without
// padding:
//
//	{"credential", "authenticatorData", "clientData", "signature"}
//
// The authenticator signs authenticatorData and the SHA-256 of clientData. The latter has the challenge and the origin,
// which the browser writes, the former the relying party, whether the person was present and verified, and the counter.
// What a server that relays the answer could change is therefore signed.
package passkey

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"bailey"
)

// Prefix is the first word of the line of an accepted passkey.
const Prefix = "passkey"

// IsLine reports whether the key of an approver is a passkey.
func IsLine(key string) bool { return strings.HasPrefix(key, Prefix+" ") }

// IsAnswer reports whether a signature is that of a passkey: an SSH signature begins with dashes.
func IsAnswer(signature string) bool { return strings.HasPrefix(signature, "{") }

// Key is a passkey that was accepted.
type Key struct {
	Name   string // of its person
	origin string
	host   string // the relying party
	id     []byte // of the credential
	spki   []byte
	public crypto.PublicKey
}

// Fingerprint is the SHA-256 of the public key, in the form that ssh-keygen has for keys.
func (k Key) Fingerprint() string {
	sum := sha256.Sum256(k.spki)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Line returns the line that ParseKey reads.
func (k Key) Line() string {
	return strings.Join([]string{Prefix, k.origin, encodeText(k.id), encodeText(k.spki)}, " ")
}

// Limits, in bytes.
const (
	maxID        = 1023 // WebAuthn, section 4, credential ID
	maxKey       = 600  // an RSA key of 4096 bits
	maxAnswer    = 8 << 10
	maxRSA       = 4096
	minRSA       = 2048
	dataLength   = sha256.Size + 1 + 4 // authenticator data without extensions
	maxExtension = 1 << 10
)

// NewKey returns the passkey with a credential's id and public key, for pages of an origin.
func NewKey(name, origin string, id, spki []byte) (Key, error) {
	return ParseKey(name, strings.Join([]string{Prefix, origin, encodeText(id), encodeText(spki)}, " "))
}

// ParseKey reads the line of an accepted passkey. Each passkey has one line.
func ParseKey(name, line string) (k Key, err error) {
	words := strings.Split(line, " ")
	if len(words) != 4 || words[0] != Prefix {
		return k, invalidAnswer("a passkey is a line of four words: passkey ORIGIN CREDENTIAL KEY")
	}
	k.Name, k.origin = name, words[1]
	if k.host, err = relyingParty(k.origin); err != nil {
		return k, err
	}
	if k.id, err = decodeText(words[2], maxID); err != nil || len(k.id) < 16 {
		return k, invalidAnswer("the credential of a passkey is base64url of 16 to 1023 bytes")
	}
	if k.spki, err = decodeText(words[3], maxKey); err != nil {
		return k, invalidAnswer("the key of a passkey is base64url of a public key")
	}
	k.public, err = parsePublic(k.spki)
	return k, err
}

// relyingParty returns the host of an origin. Browsers use passkeys with https only, apart from localhost.
func relyingParty(origin string) (string, error) {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme+"://"+u.Host != origin || strings.ToLower(origin) != origin ||
		u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost") {
		return "", invalidAnswer("the origin of a passkey is https:// and a host in lower case, without a path")
	}
	return u.Hostname(), nil
}

func parsePublic(spki []byte) (crypto.PublicKey, error) {
	public, err := x509.ParsePKIXPublicKey(spki)
	if err != nil {
		return nil, invalidAnswer("the key of a passkey is not a SubjectPublicKeyInfo")
	}
	if again, err := x509.MarshalPKIXPublicKey(public); err != nil || !bytes.Equal(again, spki) {
		return nil, invalidAnswer("the key of a passkey is not in its one encoding")
	}
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return k, nil
		}
	case ed25519.PublicKey:
		return k, nil
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n >= minRSA && n <= maxRSA && k.E > 2 {
			return k, nil
		}
	}
	return nil, invalidAnswer("the key of a passkey is ECDSA with P-256, Ed25519, or RSA of 2048 to 4096 bits")
}

// Signer identifies the passkey that signed, and its owner.
type Signer struct {
	Name    string
	Key     string // fingerprint
	Counter uint32 // of signatures; 0 if the authenticator does not count
	// Synced means that the key may be copied to other devices of its owner, so that no single device is proven.
	Synced bool
}

// answer is the JSON of an answer.
type answer struct {
	Credential string `json:"credential"`
	Data       string `json:"authenticatorData"`
	Client     string `json:"clientData"`
	Signature  string `json:"signature"`
}

// Answer writes an answer from the parts that a browser returns.
func Answer(credential, data, client, signature []byte) string {
	text, _ := json.Marshal(answer{encodeText(credential), encodeText(data), encodeText(client), encodeText(signature)})
	return string(text)
}

// client is what the browser states.
type client struct {
	kind, challenge, origin string
	foreign                 bool // in a frame of another origin
}

// readClient reads client data. A browser may add members, so unknown ones are not refused.
func readClient(said []byte) (c client, err error) {
	members, err := readMembers(said)
	if err != nil {
		return c, invalidAnswer("the client data of the passkey is not a JSON object whose members have different names")
	}
	for name, to := range map[string]*string{"type": &c.kind, "challenge": &c.challenge, "origin": &c.origin} {
		if value, ok := members[name]; ok {
			err = errors.Join(err, json.Unmarshal(value, to))
		}
	}
	if err != nil {
		return c, invalidAnswer("the client data of the passkey cannot be read")
	}
	crossed, ok := members["crossOrigin"]
	_, top := members["topOrigin"]
	c.foreign = top || ok && string(crossed) != "false"
	return c, nil
}

// readMembers reads a JSON object. Its names are compared exactly: a struct would also accept another case. The broker
// verifies answers too, so this links no other package.
func readMembers(text []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errNotObject
	}
	members := map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		text, ok := name.(string)
		if _, twice := members[text]; err != nil || !ok || twice {
			return nil, errNotObject
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		members[text] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errNotObject
	}
	return members, nil
}

var errNotObject = errors.New("not a JSON object")

// Flags of the authenticator data (WebAuthn, section 6.1).
const (
	present    = 1 << 0
	verified   = 1 << 2
	eligible   = 1 << 3 // for backup
	backedUp   = 1 << 4
	attested   = 1 << 6
	extensions = 1 << 7
)

// Verify returns which of keys signed text. The error is Invalid if signature is not an answer of a passkey. It is
// Denied if the answer is not accepted, for example because it is to another text. The caller must compare the counter
// with the last one: see [CheckCounter].
func Verify(text []byte, signature string, keys []Key) (s Signer, err error) {
	id, data, said, sig, err := parseAnswer(signature)
	if err != nil {
		return s, err
	}
	key := findKey(keys, id)
	if key == nil {
		return s, deniedAnswer("the answer is by a passkey that is not among those accepted",
			"answer with a passkey of the list of approvers, or have this one added to it on the gateway's machine")
	}
	if err := key.checkClient(said, text); err != nil {
		return s, err
	}
	counter, synced, err := key.checkData(data)
	if err != nil {
		return s, err
	}
	sum := sha256.Sum256(said)
	if !key.verifySignature(append(bytes.Clone(data), sum[:]...), sig) {
		return s, deniedAnswer("the signature of the passkey is not valid", "answer again")
	}
	return Signer{Name: key.Name, Key: key.Fingerprint(), Counter: counter, Synced: synced}, nil
}

// CheckCounter returns an error if a counter does not follow the last one: then there are two copies of a key that its
// authenticator says to keep for itself (WebAuthn, section 6.1.1). An authenticator that does not count has 0.
func CheckCounter(last, now uint32) error {
	if now > last || now == 0 && last == 0 {
		return nil
	}
	return bailey.Denied.Errorf("remove this passkey from the approvers: its key may have been copied",
		"the passkey counts %d signatures, and it counted %d before", now, last)
}

// HostOf returns the host of the pages on which an answer was made, as its browser states it.
func HostOf(signature string) (string, error) {
	_, _, said, _, err := parseAnswer(signature)
	if err != nil {
		return "", err
	}
	c, err := readClient(said)
	if err != nil {
		return "", err
	}
	return relyingParty(c.origin)
}

func parseAnswer(signature string) (id, data, said, sig []byte, err error) {
	var a answer
	if len(signature) > maxAnswer {
		return nil, nil, nil, nil, invalidAnswer("the answer of a passkey has at most 8192 bytes")
	}
	if err := json.Unmarshal([]byte(signature), &a); err != nil {
		return nil, nil, nil, nil, invalidAnswer("the answer is not one of a passkey")
	}
	if again, err := json.Marshal(a); err != nil || string(again) != signature {
		return nil, nil, nil, nil, invalidAnswer("the answer of the passkey is not in its one form")
	}
	for _, part := range []struct {
		to   *[]byte
		text string
		most int
	}{{&id, a.Credential, maxID}, {&data, a.Data, dataLength + maxExtension}, {&said, a.Client, maxAnswer},
		{&sig, a.Signature, maxRSA / 8}} {
		if *part.to, err = decodeText(part.text, part.most); err != nil || len(*part.to) == 0 {
			return nil, nil, nil, nil, invalidAnswer("a part of the answer of the passkey is missing, too long, or not base64url")
		}
	}
	return id, data, said, sig, nil
}

func findKey(keys []Key, id []byte) *Key {
	for i := range keys {
		if len(keys[i].id) > 0 && bytes.Equal(keys[i].id, id) {
			return &keys[i]
		}
	}
	return nil
}

// checkClient compares what the browser states with the text and the origin.
func (k *Key) checkClient(said, text []byte) error {
	c, err := readClient(said)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	switch {
	case c.kind != "webauthn.get":
		return deniedAnswer(fmt.Sprintf("the passkey made %.40q, not an answer", c.kind), "answer again")
	case subtle.ConstantTimeCompare([]byte(c.challenge), []byte(encodeText(sum[:]))) != 1:
		return deniedAnswer("the passkey answered another text", "show the question again, and answer what is shown")
	case c.origin != k.origin:
		return deniedAnswer(fmt.Sprintf("the passkey was used on pages of %.100q, and is accepted for %s", c.origin, k.origin),
			"answer on the pages for which it is accepted")
	case c.foreign:
		return deniedAnswer("the passkey was used inside a page of another origin", "open the pages of "+k.origin)
	}
	return nil
}

// checkData compares what the authenticator states.
func (k *Key) checkData(data []byte) (counter uint32, synced bool, err error) {
	if len(data) < dataLength {
		return 0, false, invalidAnswer("the authenticator data of the passkey is too short")
	}
	flags := data[sha256.Size]
	party := sha256.Sum256([]byte(k.host))
	switch {
	case !bytes.Equal(data[:sha256.Size], party[:]):
		return 0, false, deniedAnswer("the passkey signed for another host than "+k.host, "open the pages of "+k.origin)
	case flags&present == 0:
		return 0, false, deniedAnswer("the passkey signed without a person being present", "answer again, and touch it")
	case flags&verified == 0:
		return 0, false, deniedAnswer("the passkey did not verify its person",
			"use an authenticator that asks for a PIN, a finger or a face")
	case flags&attested != 0, (flags&extensions != 0) != (len(data) > dataLength), flags&backedUp != 0 && flags&eligible == 0:
		return 0, false, invalidAnswer("the flags of the authenticator data do not fit together")
	}
	return binary.BigEndian.Uint32(data[sha256.Size+1:]), flags&eligible != 0, nil
}

func (k *Key) verifySignature(data, sig []byte) bool {
	sum := sha256.Sum256(data)
	switch public := k.public.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(public, sum[:], sig)
	case ed25519.PublicKey:
		return ed25519.Verify(public, data, sig)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], sig) == nil
	}
	return false
}

func encodeText(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decodeText reads base64url in its one encoding.
func decodeText(text string, most int) ([]byte, error) {
	if len(text) > base64.RawURLEncoding.EncodedLen(most) {
		return nil, invalidAnswer("too long")
	}
	if strings.ContainsAny(text, "\r\n") {
		return nil, invalidAnswer("a line break in base64")
	}
	return base64.RawURLEncoding.Strict().DecodeString(text)
}

func invalidAnswer(message string) error {
	return bailey.Invalid.New(message, "see docs/approvals.md for passkeys")
}

func deniedAnswer(message, hint string) error { return bailey.Denied.New(message, hint) }
