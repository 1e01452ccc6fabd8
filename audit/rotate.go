package audit

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
)

// KeyChange is the data of a "key" entry. From that entry on, the log signs with Key.
type KeyChange struct {
	Key       Key    `json:"key"`
	Old       *Key   `json:"old,omitempty"` // the key that signed until then; nil if Key is the first
	Signature []byte `json:"signature"`     // by Old, or by Key if it is the first
}

// NewKeyChange announces the log's next key, signed by private, the private key of old. If old is the zero key, next is
// the first key, and private must be its private key. No ledger can prove that the first key belongs to the log.
func NewKeyChange(old, next Key, private crypto.Signer) (KeyChange, error) {
	c := KeyChange{Key: next}
	if old != (Key{}) {
		c.Old = &old
	}
	sig, err := private.Sign(nil, c.signedText(), crypto.Hash(0))
	if err != nil {
		return KeyChange{}, err
	}
	c.Signature = sig
	return c, c.checkChange()
}

// signedText returns the text that Signature signs. It cannot be a checkpoint, because the third line of a checkpoint is not
// a key.
func (c KeyChange) signedText() []byte {
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
		return errors.New("a log's key is followed by another of the same log")
	case c.Old != nil && c.Key.public == by.public:
		return errors.New("the log's key is followed by itself")
	case !ed25519.Verify(by.public[:], c.signedText(), c.Signature):
		return fmt.Errorf("the change to the key %s is not signed by %s", c.Key, by)
	}
	return nil
}

// ParseKeyChange parses the data of a "key" entry, which must be in its one encoding, and verifies its signature.
func ParseKeyChange(data []byte) (KeyChange, error) {
	malformed := errors.New("a key entry holds a verifier key, the one before it unless it is the first, and a signature")
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
		return errors.New("the key is not announced by the one before it")
	case k.used[c.Key.public]:
		return errors.New("a key that was replaced does not come back")
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
