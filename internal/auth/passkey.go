package auth

import (
	"encoding/json"
	"encoding/pem"
	"net/url"
	"time"

	"bailey"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
	"github.com/go-webauthn/webauthn/webauthn"
)

// CeremonyLife is how long a person has to use a passkey after the page asked for it.
const CeremonyLife = 5 * time.Minute

// Passkeys checks WebAuthn credentials. User verification (a PIN, a fingerprint) is always required, so that a passkey
// is two factors, and the credential must be one that the authenticator finds without a name.
type Passkeys struct{ web *webauthn.WebAuthn }

// NewPasskeys returns a checker for the server at a URL: credentials are bound to its name and origin.
func NewPasskeys(public *url.URL) (*Passkeys, error) {
	life := webauthn.TimeoutConfig{Enforce: true, Timeout: CeremonyLife, TimeoutUVD: CeremonyLife}
	required := true
	w, err := webauthn.New(&webauthn.Config{RPID: public.Hostname(), RPDisplayName: "Bailey",
		RPOrigins:             []string{public.Scheme + "://" + public.Host},
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{RequireResidentKey: &required,
			ResidentKey: protocol.ResidentKeyRequirementRequired, UserVerification: protocol.VerificationRequired},
		Timeouts: webauthn.TimeoutsConfig{Login: life, Registration: life}})
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, "passkeys cannot be bound to the public URL", "use a name as public_url")
	}
	return &Passkeys{w}, nil
}

// A PasskeyOwner is the account of passkeys.
type PasskeyOwner struct {
	ID, Email, Name string
	Records         []string // of its passkeys, as RegisteredPasskey has them
}

// A RegisteredPasskey is what is stored of a passkey.
type RegisteredPasskey struct {
	ID     string // of the credential, in base64url
	Record string // JSON
	Count  uint32 // the authenticator's counter
}

// owner is a PasskeyOwner as the library wants it.
type owner struct {
	PasskeyOwner
	keys []webauthn.Credential
}

func (o *owner) WebAuthnID() []byte                         { return []byte(o.ID) }
func (o *owner) WebAuthnName() string                       { return o.Email }
func (o *owner) WebAuthnDisplayName() string                { return o.Name }
func (o *owner) WebAuthnCredentials() []webauthn.Credential { return o.keys }

func readOwner(p PasskeyOwner) (*owner, error) {
	o := &owner{PasskeyOwner: p, keys: make([]webauthn.Credential, len(p.Records))}
	for i, record := range p.Records {
		if err := json.Unmarshal([]byte(record), &o.keys[i]); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Options is what a page gives to the browser, and the state that the server keeps until the answer.
type Options struct {
	Browser json.RawMessage
	State   string
}

func newOptions(browser any, state *webauthn.SessionData, err error) (o Options, _ error) {
	if err != nil {
		return o, err
	}
	text, err := json.Marshal(state)
	if err != nil {
		return o, err
	}
	o.State = string(text)
	o.Browser, err = json.Marshal(browser)
	return o, err
}

// BeginRegistration begins the registration of another passkey.
func (p *Passkeys) BeginRegistration(of PasskeyOwner) (Options, error) {
	o, err := readOwner(of)
	if err != nil {
		return Options{}, err
	}
	var known []protocol.CredentialDescriptor
	for _, k := range o.keys {
		known = append(known, k.Descriptor())
	}
	creation, state, err := p.web.BeginRegistration(o, webauthn.WithExclusions(known))
	return newOptions(creation, state, err)
}

// EndRegistration checks the browser's answer.
func (p *Passkeys) EndRegistration(of PasskeyOwner, state string, answer []byte) (k RegisteredPasskey, err error) {
	o, err := readOwner(of)
	if err != nil {
		return k, err
	}
	var session webauthn.SessionData
	if err := json.Unmarshal([]byte(state), &session); err != nil {
		return k, err
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(answer)
	if err != nil {
		return k, passkeyFault(err)
	}
	c, err := p.web.CreateCredential(o, session, parsed)
	if err != nil {
		return k, passkeyFault(err)
	}
	return registeredPasskey(c)
}

func registeredPasskey(c *webauthn.Credential) (RegisteredPasskey, error) {
	record, err := json.Marshal(c)
	return RegisteredPasskey{protocol.URLEncodedBase64(c.ID).String(), string(record), c.Authenticator.SignCount}, err
}

// PasskeyPublic returns the id of a stored passkey, and its public key as SubjectPublicKeyInfo.
func PasskeyPublic(record string) (id, spki []byte, err error) {
	var c webauthn.Credential
	if err := json.Unmarshal([]byte(record), &c); err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode([]byte(webauthncose.DisplayPublicKey(c.PublicKey)))
	if block == nil {
		return nil, nil, bailey.Invalid.New("the public key of the passkey is of an unknown kind", "")
	}
	return c.ID, block.Bytes, nil
}

// passkeyFault does not repeat what the browser sent, and gives one answer for every cause.
func passkeyFault(err error) error {
	return bailey.Denied.Wrap(err, "the passkey was not accepted", "try again; it must verify you, by a PIN or a fingerprint")
}

// BeginLogin begins to sign in with any passkey.
func (p *Passkeys) BeginLogin() (Options, error) {
	assertion, state, err := p.web.BeginDiscoverableLogin()
	return newOptions(assertion, state, err)
}

// EndLogin checks the browser's answer. find returns the owner whose id the authenticator names. The caller must store
// the passkey, whose counter must have grown.
func (p *Passkeys) EndLogin(state string, answer []byte, find func(id string) (PasskeyOwner, error)) (id string,
	k RegisteredPasskey, err error) {
	var session webauthn.SessionData
	if err := json.Unmarshal([]byte(state), &session); err != nil {
		return "", k, err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(answer)
	if err != nil {
		return "", k, passkeyFault(err)
	}
	c, err := p.web.ValidateDiscoverableLogin(func(_, handle []byte) (webauthn.User, error) {
		of, err := find(string(handle))
		if err != nil {
			return nil, err
		}
		id = of.ID
		return readOwner(of)
	}, session, parsed)
	if err != nil || c.Authenticator.CloneWarning {
		return "", k, passkeyFault(err)
	}
	k, err = registeredPasskey(c)
	return id, k, err
}
