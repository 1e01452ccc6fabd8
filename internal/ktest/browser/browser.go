// Package browser is a browser with an authenticator for tests: it answers texts with a passkey.
package browser

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"testing"

	"github.com/descope/virtualwebauthn"

	"bailey/internal/passkey"
)

// Passkey is one that was made on the pages of an origin. Its counter grows with each answer.
type Passkey struct {
	virtualwebauthn.Authenticator
	virtualwebauthn.Credential
	Origin string
	Key    passkey.Key // as it is accepted
}

// NewCredential returns a new key of an authenticator. virtualwebauthn omits the leading zeros of a coordinate of an
// elliptic curve, which RFC 9053, section 7.1.1, does not permit; about one key in a hundred would be refused.
func NewCredential(kind virtualwebauthn.KeyType) virtualwebauthn.Credential {
	for {
		c := virtualwebauthn.NewCredential(kind)
		key, err := x509.ParsePKCS8PrivateKey(c.Key.Data)
		if err != nil {
			panic(err)
		}
		curve, ok := key.(*ecdsa.PrivateKey)
		if !ok || len(curve.X.Bytes()) == 32 && len(curve.Y.Bytes()) == 32 {
			return c
		}
	}
}

// NewPasskey makes a passkey of a person.
func NewPasskey(t testing.TB, name, origin string, kind virtualwebauthn.KeyType,
	o virtualwebauthn.AuthenticatorOptions) *Passkey {
	t.Helper()
	p := &Passkey{Authenticator: virtualwebauthn.NewAuthenticatorWithOptions(o),
		Credential: NewCredential(kind), Origin: origin}
	private, err := x509.ParsePKCS8PrivateKey(p.Credential.Key.Data)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(private.(crypto.Signer).Public())
	if err == nil {
		p.Key, err = passkey.NewKey(name, origin, p.ID, spki)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Answer signs a text on the pages of the passkey's origin.
func (p *Passkey) Answer(t testing.TB, text string) string {
	t.Helper()
	return p.AnswerOn(t, p.Origin, text)
}

// AnswerOn signs a text on the pages of another origin.
func (p *Passkey) AnswerOn(t testing.TB, origin, text string) string {
	t.Helper()
	u, err := url.Parse(origin)
	if err != nil {
		t.Fatal(err)
	}
	p.Counter++
	sum := sha256.Sum256([]byte(text))
	said := virtualwebauthn.CreateAssertionResponse(virtualwebauthn.RelyingParty{ID: u.Hostname(), Origin: origin},
		p.Authenticator, p.Credential, virtualwebauthn.AssertionOptions{Challenge: sum[:]})
	var got struct {
		RawID    string
		Response struct{ AuthenticatorData, ClientDataJSON, Signature string }
	}
	if err := json.Unmarshal([]byte(said), &got); err != nil {
		t.Fatal(err)
	}
	var parts [4][]byte
	for i, text := range []string{got.RawID, got.Response.AuthenticatorData, got.Response.ClientDataJSON,
		got.Response.Signature} {
		if parts[i], err = base64.RawURLEncoding.DecodeString(text); err != nil {
			t.Fatal(err)
		}
	}
	return passkey.Answer(parts[0], parts[1], parts[2], parts[3])
}
