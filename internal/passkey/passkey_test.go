package passkey_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/descope/virtualwebauthn"

	"bailey"
	"bailey/internal/ktest/browser"
	"bailey/internal/passkey"
)

const origin = "https://bailey.example.com"

var text = []byte("bailey approval 1\nnonce 0123456789abcdef\n")

func newCard(t testing.TB, kind virtualwebauthn.KeyType, o virtualwebauthn.AuthenticatorOptions) *browser.Passkey {
	t.Helper()
	return browser.NewPasskey(t, "ada", origin, kind, o)
}

// TestAnswers checks that answers of each kind of key count, and what is learned from them.
func TestAnswers(t *testing.T) {
	for _, kind := range []virtualwebauthn.KeyType{virtualwebauthn.KeyTypeEC2, virtualwebauthn.KeyTypeRSA} {
		for _, synced := range []bool{false, true} {
			c := newCard(t, kind, virtualwebauthn.AuthenticatorOptions{BackupEligible: synced})
			other := newCard(t, virtualwebauthn.KeyTypeEC2, virtualwebauthn.AuthenticatorOptions{})
			s, err := passkey.Verify(text, c.Answer(t, string(text)), []passkey.Key{other.Key, c.Key})
			want := passkey.Signer{Name: "ada", Key: c.Key.Fingerprint(), Counter: 1, Synced: synced}
			if err != nil || s != want {
				t.Errorf("%s: got %+v, %v, want %+v", kind, s, err, want)
			}
		}
	}
}

// signed is an answer that a test writes itself.
type signed struct {
	private      ed25519.PrivateKey
	key          passkey.Key
	data, client []byte
	sign         []byte // nil: data and the hash of client
}

func newSigned(t testing.TB) *signed {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	key, err := passkey.NewKey("ada", origin, bytes.Repeat([]byte{7}, 16), spki)
	if err != nil {
		t.Fatal(err)
	}
	host, sum := sha256.Sum256([]byte("bailey.example.com")), sha256.Sum256(text)
	return &signed{private: private, key: key, data: append(host[:], 0x05, 0, 0, 0, 9),
		client: []byte(`{"type":"webauthn.get","challenge":"` + base64.RawURLEncoding.EncodeToString(sum[:]) +
			`","origin":"` + origin + `","crossOrigin":false,"other_keys_can_be_added_here":"do not compare"}`)}
}

func (s *signed) answer() string {
	over := s.sign
	if over == nil {
		sum := sha256.Sum256(s.client)
		over = append(bytes.Clone(s.data), sum[:]...)
	}
	return passkey.Answer(bytes.Repeat([]byte{7}, 16), s.data, s.client, ed25519.Sign(s.private, over))
}

func (s *signed) replaceInClient(old, now string) {
	s.client = bytes.Replace(s.client, []byte(old), []byte(now), 1)
}

// TestAttackAnswer checks that an answer does not count if a server, a page or another authenticator made it, although
// its signature is valid.
func TestAttackAnswer(t *testing.T) {
	for name, change := range map[string]func(*signed){
		"other origin":         func(s *signed) { s.replaceInClient(origin, "https://bailey.example.com.evil.example") },
		"other port":           func(s *signed) { s.replaceInClient(origin, origin+":8443") },
		"registration":         func(s *signed) { s.replaceInClient("webauthn.get", "webauthn.create") },
		"payment":              func(s *signed) { s.replaceInClient("webauthn.get", "payment.get") },
		"frame":                func(s *signed) { s.replaceInClient(`"crossOrigin":false`, `"crossOrigin":true`) },
		"frame without type":   func(s *signed) { s.replaceInClient(`"crossOrigin":false`, `"crossOrigin":"no"`) },
		"page around":          func(s *signed) { s.replaceInClient(`"crossOrigin":false`, `"topOrigin":"https://evil.example"`) },
		"no challenge":         func(s *signed) { s.replaceInClient(`"challenge"`, `"Challenge"`) },
		"two challenges":       func(s *signed) { s.replaceInClient(`"crossOrigin":false`, `"challenge":"x"`) },
		"padded challenge":     func(s *signed) { s.replaceInClient(`","origin"`, `=","origin"`) },
		"client data no JSON":  func(s *signed) { s.client = append(s.client, '}') },
		"other host":           func(s *signed) { copy(s.data, bytes.Repeat([]byte{1}, 32)) },
		"no person":            func(s *signed) { s.data[32] = 0x04 },
		"person not verified":  func(s *signed) { s.data[32] = 0x01 },
		"attested":             func(s *signed) { s.data[32] |= 0x40 },
		"extensions missing":   func(s *signed) { s.data[32] |= 0x80 },
		"extensions unnamed":   func(s *signed) { s.data = append(s.data, 0xa0) },
		"backup not possible":  func(s *signed) { s.data[32] |= 0x10 },
		"data cut":             func(s *signed) { s.data = s.data[:36] },
		"signed client only":   func(s *signed) { s.sign = s.client },
		"counter not signed":   func(s *signed) { s.sign = bytes.Clone(s.data[:36]) },
		"signature over text":  func(s *signed) { s.sign = text },
		"data of other answer": func(s *signed) { s.sign = append(bytes.Clone(s.data), make([]byte, 32)...) },
	} {
		s := newSigned(t)
		if _, err := passkey.Verify(text, s.answer(), []passkey.Key{s.key}); err != nil {
			t.Fatal("the answer before the change does not count:", err)
		}
		change(s)
		who, err := passkey.Verify(text, s.answer(), []passkey.Key{s.key})
		if !errors.Is(err, bailey.Denied) && !errors.Is(err, bailey.Invalid) || who != (passkey.Signer{}) {
			t.Errorf("%s: got %+v, %v, want a refusal", name, who, err)
		}
	}
}

// TestAttackKeys checks that only accepted passkeys count: neither another key under the id of an accepted one, nor one
// that a server made.
func TestAttackKeys(t *testing.T) {
	c := newCard(t, virtualwebauthn.KeyTypeEC2, virtualwebauthn.AuthenticatorOptions{})
	answer := c.Answer(t, string(text))
	thief := newCard(t, virtualwebauthn.KeyTypeEC2, virtualwebauthn.AuthenticatorOptions{})
	thief.ID = c.ID
	for name, err := range map[string]error{
		"not accepted": second(passkey.Verify(text, answer, nil)),
		"same id":      second(passkey.Verify(text, thief.Answer(t, string(text)), []passkey.Key{c.Key})),
		"other text":   second(passkey.Verify([]byte("another text"), answer, []passkey.Key{c.Key})),
		"zero key":     second(passkey.Verify(text, answer, []passkey.Key{{}})),
	} {
		if !errors.Is(err, bailey.Denied) {
			t.Errorf("%s: got %v, want Denied", name, err)
		}
	}
	unverified := newCard(t, virtualwebauthn.KeyTypeEC2, virtualwebauthn.AuthenticatorOptions{UserNotVerified: true})
	if _, err := passkey.Verify(text, unverified.Answer(t, string(text)), []passkey.Key{unverified.Key}); !errors.Is(err,
		bailey.Denied) || !strings.Contains(err.Error(), "verify its person") {
		t.Errorf("got %v, want that the person was not verified", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestCounter checks that a counter must grow, unless the authenticator has none.
func TestCounter(t *testing.T) {
	for _, c := range []struct {
		last, now uint32
		ok        bool
	}{{0, 0, true}, {0, 1, true}, {1, 2, true}, {7, 7, false}, {7, 6, false}, {7, 0, false}, {1 << 31, 1, false}} {
		if err := passkey.CheckCounter(c.last, c.now); (err == nil) != c.ok {
			t.Errorf("after %d, %d: got %v", c.last, c.now, err)
		}
	}
}

// TestLines checks that a passkey has one line, and which ones are refused.
func TestLines(t *testing.T) {
	key := newSigned(t).key
	again, err := passkey.ParseKey("ada", key.Line())
	if err != nil || again.Line() != key.Line() || again.Fingerprint() != key.Fingerprint() || !passkey.IsLine(key.Line()) {
		t.Errorf("got %v, %v", again, err)
	}
	w := strings.Split(key.Line(), " ")
	small, err := x509.MarshalPKIXPublicKey(func() crypto.PublicKey {
		k, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k.Public()
	}())
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"", "passkey", key.Line() + " ", key.Line() + " more", "webauthn" + strings.TrimPrefix(key.Line(), "passkey"),
		strings.Join([]string{w[0], "http://bailey.example.com", w[2], w[3]}, " "),
		strings.Join([]string{w[0], "https://bailey.example.com/", w[2], w[3]}, " "),
		strings.Join([]string{w[0], "https://Bailey.example.com", w[2], w[3]}, " "),
		strings.Join([]string{w[0], "https://", w[2], w[3]}, " "),
		strings.Join([]string{w[0], w[1], "AAAA", w[3]}, " "),
		strings.Join([]string{w[0], w[1], w[2] + "=", w[3]}, " "),
		strings.Join([]string{w[0], w[1], w[2], w[3][:20]}, " "),
		strings.Join([]string{w[0], w[1], w[2], w[3] + "AAAA"}, " "),
		strings.Join([]string{w[0], w[1], w[2], base64.RawURLEncoding.EncodeToString(small)}, " "),
	} {
		if _, err := passkey.ParseKey("ada", line); !errors.Is(err, bailey.Invalid) {
			t.Errorf("%q: got %v, want Invalid", line, err)
		}
	}
	if _, err := passkey.NewKey("ada", "http://localhost:8440", bytes.Repeat([]byte{7}, 16), func() []byte {
		b, _ := base64.RawURLEncoding.DecodeString(w[3])
		return b
	}()); err != nil {
		t.Error("a server of this machine is refused:", err)
	}
}

// FuzzVerify checks that no bytes but those of the answer count, and that a refusal has a kind.
func FuzzVerify(f *testing.F) {
	s := newSigned(f)
	right := s.answer()
	f.Add(right)
	f.Add(strings.Replace(right, "signature", "Signature", 1))
	f.Add(`{"credential":"","authenticatorData":"","clientData":"","signature":""}`)
	f.Fuzz(func(t *testing.T, answer string) {
		who, err := passkey.Verify(text, answer, []passkey.Key{s.key})
		if err == nil && (who.Name != "ada" || answer != right) {
			t.Errorf("%q counts as an answer", answer)
		}
		if err != nil && !errors.Is(err, bailey.Denied) && !errors.Is(err, bailey.Invalid) {
			t.Errorf("the refusal has no kind: %v", err)
		}
	})
}
