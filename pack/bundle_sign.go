package pack

import (
	"crypto/rand"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/mod/sumdb/note"

	"bailey"
)

// keyName is the grammar of keys' names, which are files' names too: no two differ in case alone.
var keyName = lazy(`^[a-z0-9][a-z0-9.-]{0,63}$`)

// Key is a public key that signs bundles: Ed25519, in the form that Go's checksum database and C2SP's logs have,
// NAME+HASH+BASE64 on one line. The zero Key verifies nothing.
type Key struct {
	Name     string
	Text     string // the line
	verifier note.Verifier
}

// ID is the key's name and hash. It tells keys of one name apart, and is no substitute for the key.
func (k Key) ID() string {
	if k.verifier == nil {
		return ""
	}
	return fmt.Sprintf("%s+%08x", k.Name, k.verifier.KeyHash())
}

// ParseKey reads a public key.
func ParseKey(text string) (Key, error) {
	text = strings.TrimSuffix(text, "\n")
	if strings.HasPrefix(text, "PRIVATE+KEY+") {
		return Key{}, &bailey.Error{Kind: bailey.Invalid, Message: "this is a private key, and the public one is wanted", Hint: "it is the file NAME.pub beside it; a private key goes to nobody"}
	}
	v, err := note.NewVerifier(text)
	k := Key{Text: text, verifier: v}
	if err == nil {
		k.Name = v.Name()
	}
	// note reads a key that is spelt in other ways too.
	if err != nil || !keyName().MatchString(k.Name) || !strings.HasPrefix(text, k.ID()+"+") || strings.ContainsFunc(text, unicode.IsSpace) {
		return Key{}, &bailey.Error{Kind: bailey.Invalid, Message: "this is no public key of a pack's author", Hint: "it is one line, NAME+HASH+BASE64: the file NAME.pub that bailey pack keygen NAME writes"}
	}
	return k, nil
}

// GenerateKey makes a key: the private half, which [Sign] takes, and the public one. Each is a line without its newline.
func GenerateKey(name string) (private, public string, err error) {
	if !keyName().MatchString(name) {
		return "", "", &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("a key cannot have the name \"%s\"", show(name)), Hint: "small letters, digits, . and -, at most 64"}
	}
	return note.GenerateKey(rand.Reader, name)
}

// Sign signs a bundle that nobody signed yet.
func Sign(data []byte, private string) ([]byte, error) {
	b, err := ReadBundle(data)
	if err != nil {
		return nil, err
	}
	if b.Signer != "" {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: "the bundle is signed already, by " + b.Signer, Hint: "bailey pack bundle DIR makes one without a signature"}
	}
	s, err := note.NewSigner(strings.TrimSuffix(private, "\n"))
	if err != nil || !keyName().MatchString(s.Name()) {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "this is no private key for bundles", Hint: "it is the file NAME.key that bailey pack keygen NAME writes"}
	}
	signed, err := note.Sign(&note.Note{Text: b.index}, s)
	if err != nil {
		return nil, err
	}
	return append(signed, data[len(b.index)+1:]...), nil
}

// Verified is a bundle of which it is known who made it.
type Verified struct {
	Bundle
	Key string // the ID of the key that signed it, "" where Dev
	Dev bool   // nobody signed it: a directory of one's own
}

// Verify reads a bundle that one of keys has to have signed. The signature is held against the index, and the index against
// every file, before a byte of the pack is parsed.
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
		return Key{}, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("the bundle of %s %s is not signed", b.Name, b.Version),
			Hint: "bailey pack sign BUNDLE --key FILE signs it; a directory of your own goes with bailey pack install --dev DIR"}
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
	return Key{}, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("the signature of %s %s claims to be by %s: %s", b.Name, b.Version, b.Signer, known),
		Hint: "bailey pack trust FILE trusts an author's key, once you have it from them; otherwise do not use this bundle"}
}

// Dev takes a bundle without a signature, for who knows by other means that it is what they wrote. Its capabilities are
// marked, and with them each receipt.
func (b *Bundle) Dev() *Verified { return &Verified{Bundle: *b, Dev: true} }

// Pack parses the manifest, which has to be the pack that the index names. Errors show file as the file's name.
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
		return nil, broken("the index says %s %s, and %s says %s %s", v.Name, v.Version, ManifestName, p.Name, p.Version)
	}
	for _, c := range p.Capabilities {
		c.Dev = v.Dev
	}
	return p, nil
}
