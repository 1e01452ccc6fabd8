package pack

import (
	"crypto/rand"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/mod/sumdb/note"

	"bailey"
)

// keyName is the grammar of key names. They are also file names, so no two of them differ only in case.
var keyName = lazyRegexp(`^[a-z0-9][a-z0-9.-]{0,63}$`)

// Key is a public key for bundle signatures: Ed25519, in the format of the Go checksum database and of C2SP logs,
// NAME+HASH+BASE64 on one line. The zero Key verifies nothing.
type Key struct {
	Name     string
	Text     string // the whole line
	verifier note.Verifier
}

// ID returns the name and hash of the key. It distinguishes keys of the same name, but does not replace the key.
func (k Key) ID() string {
	if k.verifier == nil {
		return ""
	}
	return fmt.Sprintf("%s+%08x", k.Name, k.verifier.KeyHash())
}

// ParseKey parses a public key.
func ParseKey(text string) (Key, error) {
	text = strings.TrimSuffix(text, "\n")
	if strings.HasPrefix(text, "PRIVATE+KEY+") {
		return Key{}, bailey.Invalid.New("this is a private key, but a public one is needed",
			"use the file NAME.pub beside it; keep the private key secret")
	}
	v, err := note.NewVerifier(text)
	k := Key{Text: text, verifier: v}
	if err == nil {
		k.Name = v.Name()
	}
	// Package note also accepts other spellings of a key.
	if err != nil || !keyName().MatchString(k.Name) || !strings.HasPrefix(text, k.ID()+"+") ||
		strings.ContainsFunc(text, unicode.IsSpace) {
		return Key{}, bailey.Invalid.New("this is not a public key of a pack's author",
			"use one line, NAME+HASH+BASE64: the file NAME.pub that bailey pack keygen NAME writes")
	}
	return k, nil
}

// GenerateKey returns a new private key for [Sign] and its public key, each as a line without newline.
func GenerateKey(name string) (private, public string, err error) {
	if !keyName().MatchString(name) {
		return "", "", bailey.Invalid.Errorf("use lower case letters, digits, . and -, at most 64",
			"a key cannot have the name \"%s\"", safeText(name))
	}
	return note.GenerateKey(rand.Reader, name)
}

// Sign signs an unsigned bundle.
func Sign(data []byte, private string) ([]byte, error) {
	b, err := ReadBundle(data)
	if err != nil {
		return nil, err
	}
	if b.Signer != "" {
		return nil, bailey.Conflict.New("the bundle is already signed, by "+b.Signer,
			"run bailey pack bundle DIR to create one without a signature")
	}
	s, err := note.NewSigner(strings.TrimSuffix(private, "\n"))
	if err != nil || !keyName().MatchString(s.Name()) {
		return nil, bailey.Invalid.New("this is not a private key for bundles",
			"use the file NAME.key that bailey pack keygen NAME writes")
	}
	signed, err := note.Sign(&note.Note{Text: b.index}, s)
	if err != nil {
		return nil, err
	}
	return append(signed, data[len(b.index)+1:]...), nil
}

// Verified is a bundle from a known author.
type Verified struct {
	Bundle
	Key string // ID of the signing key; "" if Dev
	Dev bool   // unsigned, from a directory of the user
}

// Verify reads a bundle that must be signed by one of keys. It checks the signature of the index, and then every file
// against the index, before any byte of the pack is parsed.
func Verify(data []byte, keys []Key) (*Verified, error) {
	b, _, err := readIndex(data)
	if err != nil {
		return nil, err
	}
	key, err := b.signedBy(keys)
	if err != nil {
		return nil, err
	}
	if b, err = ReadBundle(data); err != nil {
		return nil, err
	}
	return &Verified{Bundle: *b, Key: key.ID()}, nil
}

func (b *Bundle) signedBy(keys []Key) (Key, error) {
	if b.signature == "" {
		return Key{}, bailey.Denied.Errorf("run bailey pack sign BUNDLE --key FILE to sign it; for a directory of your own use bailey pack install --dev DIR",
			"the bundle of %s %s is not signed", b.Name, b.Version)
	}
	for _, k := range keys {
		if k.verifier == nil || k.Name != b.Signer {
			continue
		}
		n, err := note.Open([]byte(b.index+"\n"+b.signature), note.VerifierList(k.verifier))
		if err == nil && n.Text == b.index && len(n.Sigs) == 1 && len(n.UnverifiedSigs) == 0 {
			return k, nil
		}
	}
	known := "no trusted key has that name"
	for _, k := range keys {
		if k.Name == b.Signer {
			known = "it is not by " + k.ID() + ", or not of this index"
		}
	}
	return Key{}, bailey.Denied.Errorf("run bailey pack trust FILE to trust an author's key, after you got it from them; otherwise do not use this bundle",
		"the signature of %s %s claims to be by %s: %s", b.Name, b.Version, b.Signer, known)
}

// Dev accepts an unsigned bundle. Only a caller that knows by other means where the bundle comes from should use it.
// Its capabilities and their receipts are marked.
func (b *Bundle) Dev() *Verified { return &Verified{Bundle: *b, Dev: true} }

// Pack parses the manifest, which must have the name and version of the index. Errors use file as the file name.
func (v *Verified) Pack(file string) (*Pack, error) {
	var manifest []byte
	for _, f := range v.Files {
		if f.Path == ManifestName {
			manifest = f.bytes
		}
	}
	p, err := Parse(file, manifest)
	if err != nil {
		return nil, err
	}
	if p.Name != v.Name || p.Version != v.Version {
		return nil, bundleError("the index has %s %s, but %s has %s %s", v.Name, v.Version, ManifestName, p.Name,
			p.Version)
	}
	for _, c := range p.Capabilities {
		c.Dev = v.Dev
	}
	return p, nil
}
