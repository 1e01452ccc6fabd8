package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The signature types of c2sp.org/signed-note used here. Both are Ed25519.
const (
	typeLog     = 0x01 // over the note's text
	typeWitness = 0x04 // a cosignature/v1, over a time and the note's text
)

// Key is the public key of a log or a witness, for signatures of checkpoints. It is a [note.Verifier] and is
// comparable. The zero Key verifies nothing.
type Key struct {
	name   string
	kind   byte
	public [ed25519.PublicKeySize]byte
}

// LogKey returns the key with which the log of that origin signs.
func LogKey(origin string, public ed25519.PublicKey) (Key, error) {
	return newKey(origin, typeLog, public)
}

// WitnessKey returns the key with which the witness of that name cosigns.
func WitnessKey(name string, public ed25519.PublicKey) (Key, error) {
	return newKey(name, typeWitness, public)
}

func newKey(name string, kind byte, public []byte) (Key, error) {
	if !validKeyName(name) {
		return Key{}, fmt.Errorf("%.80q is not a key name: use 1 to %d bytes of UTF-8 without space, plus or control character", name, maxKeyName)
	}
	if len(public) != ed25519.PublicKeySize {
		return Key{}, fmt.Errorf("an Ed25519 key has %d bytes, not %d", ed25519.PublicKeySize, len(public))
	}
	return Key{name, kind, [ed25519.PublicKeySize]byte(public)}, nil
}

// maxKeyName is more than "bailey/", a host of 253 characters and an origin need, in bytes.
const maxKeyName = 512

func validKeyName(name string) bool {
	return name != "" && len(name) <= maxKeyName && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return r == '+' || unicode.IsSpace(r) || unicode.IsControl(r)
		})
}

// ParseKey reads a verifier key (c2sp.org/signed-note): NAME+ID+BASE64.
func ParseKey(text string) (Key, error) {
	malformed := fmt.Errorf("%.200q is not a verifier key: use NAME+ID+KEY of an Ed25519 log or witness", text)
	if len(text) > maxKeyName+128 {
		return Key{}, malformed
	}
	last := strings.LastIndexByte(text, '+')
	name, _, ok := strings.Cut(text, "+")
	if !ok || last < len(name)+9 {
		return Key{}, malformed
	}
	raw, err := base64.StdEncoding.DecodeString(text[len(name)+len("+12345678+"):])
	if err != nil || len(raw) != 1+ed25519.PublicKeySize || raw[0] != typeLog && raw[0] != typeWitness {
		return Key{}, malformed
	}
	k, err := newKey(name, raw[0], raw[1:])
	if err != nil || k.String() != text {
		return Key{}, malformed
	}
	return k, nil
}

// String returns the verifier key.
func (k Key) String() string {
	return fmt.Sprintf("%s+%08x+%s", k.name, k.KeyHash(), base64.StdEncoding.EncodeToString(k.encodeKey()))
}

// MarshalText writes the verifier key.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText accepts only the output of MarshalText.
func (k *Key) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKey(string(text))
	return err
}

func (k Key) encodeKey() []byte { return append([]byte{k.kind}, k.public[:]...) }

// Name returns the key's name. For a log's key it is the origin.
func (k Key) Name() string { return k.name }

// Public returns the public key.
func (k Key) Public() ed25519.PublicKey { return ed25519.PublicKey(k.public[:]) }

// Witness reports whether the key is a witness's.
func (k Key) Witness() bool { return k.kind == typeWitness }

// KeyHash returns the key's ID.
func (k Key) KeyHash() uint32 {
	sum := sha256.Sum256(append([]byte(k.name+"\n"), k.encodeKey()...))
	return binary.BigEndian.Uint32(sum[:4])
}

// Verify reports whether sig is the key's signature of a note's text.
func (k Key) Verify(text, sig []byte) bool {
	switch k.kind {
	case typeLog:
		return ed25519.Verify(k.public[:], text, sig)
	case typeWitness:
		when, sig, ok := splitCosignature(sig)
		return ok && ed25519.Verify(k.public[:], cosignedBytes(when, text), sig)
	}
	return false
}

// maxTime is the beginning of the year 10000, in seconds since 1970. RFC 3339 has no form for later times.
const maxTime = 253402300800

// splitCosignature splits a cosignature/v1 into its time, in seconds since 1970, and the signature.
func splitCosignature(sig []byte) (when uint64, rest []byte, ok bool) {
	if len(sig) != 8+ed25519.SignatureSize {
		return 0, nil, false
	}
	when = binary.BigEndian.Uint64(sig)
	return when, sig[8:], when < maxTime
}

// cosignedBytes returns the bytes that a witness signs (c2sp.org/tlog-cosignature).
func cosignedBytes(when uint64, text []byte) []byte {
	return append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", when), text...)
}

// KeyChange is the data of a "key" entry. From that entry on, the log signs with Key.
type KeyChange struct {
	Key       Key    `json:"key"`
	Old       *Key   `json:"old,omitempty"` // the key that signed until then; nil if Key is the first
	Signature []byte `json:"signature"`     // by Old, or by Key if it is the first
}

// SignedText returns the text that Signature signs. It cannot be a checkpoint, because the third line of a checkpoint is not
// a key.
func (c KeyChange) SignedText() []byte {
	old := "none"
	if c.Old != nil {
		old = c.Old.String()
	}
	return fmt.Appendf(nil, "bailey.audit/key/v1\n%s\n%s\n", old, c.Key)
}

func (c KeyChange) checkChange() error {
	by := c.Key
	if c.Old != nil {
		by = *c.Old
	}
	switch {
	case c.Key.Witness() || by.Witness() || c.Key.Name() != by.Name():
		return errors.New("the log's key must be followed by a key of the same log")
	case c.Old != nil && c.Key.public == by.public:
		return errors.New("the log's key is followed by itself")
	case !ed25519.Verify(by.public[:], c.SignedText(), c.Signature):
		return fmt.Errorf("the change to the key %s is not signed by %s", c.Key, by)
	}
	return nil
}

// ParseKeyChange parses the data of a "key" entry, which must be in its one encoding, and verifies its signature.
func ParseKeyChange(data []byte) (KeyChange, error) {
	malformed := errors.New("a key entry must hold a verifier key, the previous key unless it is the first, and a signature")
	var c KeyChange
	if json.Unmarshal(data, &c) != nil {
		return KeyChange{}, malformed
	}
	if same, err := json.Marshal(c); err != nil || !bytes.Equal(same, data) {
		return KeyChange{}, malformed
	}
	return c, c.checkChange()
}

// Keys records the keys that a ledger's entries announce. The zero value is ready to use.
type Keys struct {
	changes []announcedKey
	used    map[[ed25519.PublicKeySize]byte]bool
}

type announcedKey struct {
	seq uint64
	key Key
}

// Add records a key entry, and returns an error if it does not fit. It ignores other kinds.
func (k *Keys) Add(e Entry) error {
	if e.Kind != KindKey {
		return nil
	}
	c, err := ParseKeyChange(e.Data)
	if err != nil {
		return err
	}
	now, any := k.Last()
	switch {
	case any != (c.Old != nil), any && *c.Old != now:
		return errors.New("the key is not signed by the previous key")
	case k.used[c.Key.public]:
		return errors.New("a key that was replaced cannot be used again")
	}
	if k.used == nil {
		k.used = make(map[[ed25519.PublicKeySize]byte]bool)
	}
	k.used[c.Key.public] = true
	k.changes = append(k.changes, announcedKey{e.Seq, c.Key})
	return nil
}

// Last returns the key that was announced last, and false if no key was announced.
func (k *Keys) Last() (Key, bool) {
	if len(k.changes) == 0 {
		return Key{}, false
	}
	return k.changes[len(k.changes)-1].key, true
}

// All returns the keys in the order of their announcement.
func (k *Keys) All() []Key {
	var list []Key
	for _, c := range k.changes {
		list = append(list, c.key)
	}
	return list
}

// keyAt returns the key that signs a tree of that size, if one was announced by then.
func (k *Keys) keyAt(size uint64) (Key, bool) {
	for i := len(k.changes) - 1; i >= 0; i-- {
		if k.changes[i].seq <= size {
			return k.changes[i].key, true
		}
	}
	return Key{}, false
}

// extendTrust returns t with the keys added to which a key in t leads.
func (k *Keys) extendTrust(t Trust) Trust {
	trusted := make(map[Key]bool)
	for _, key := range t.Keys {
		trusted[key] = true
	}
	list := append([]Key(nil), t.Keys...)
	for i, c := range k.changes {
		if i > 0 && trusted[k.changes[i-1].key] && !trusted[c.key] {
			trusted[c.key] = true
			list = append(list, c.key)
		}
	}
	t.Keys = list
	return t
}
