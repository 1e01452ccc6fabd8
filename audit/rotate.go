package audit

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
)

// KeyChange is the data of a "key" entry: from that entry on the log signs with Key.
type KeyChange struct {
	Key       Key    `json:"key"`
	Old       *Key   `json:"old,omitempty"` // which signed till then; nil says that Key is the first
	Signature []byte `json:"signature"`     // by Old, or by Key when it is the first
}

// NewKeyChange announces the log's next key, signed by private, which is old's. With the zero old key next is
// the first, and private is its own: that it is the log's no ledger can say.
func NewKeyChange(old, next Key, private crypto.Signer) (KeyChange, error) {
	c := KeyChange{Key: next}
	if old != (Key{}) {
		c.Old = &old
	}
	sig, err := private.Sign(nil, c.text(), crypto.Hash(0))
	if err != nil {
		return KeyChange{}, err
	}
	c.Signature = sig
	return c, c.check()
}

// text is what Signature signs. No checkpoint reads so: the third line of one is no key.
func (c KeyChange) text() []byte {
	old := "none"
	if c.Old != nil {
		old = c.Old.String()
	}
	return fmt.Appendf(nil, "bailey.audit/key/v1\n%s\n%s\n", old, c.Key)
}

func (c KeyChange) check() error {
	by := c.Key
	if c.Old != nil {
		by = *c.Old
	}
	switch {
	case c.Key.Witness() || by.Witness() || c.Key.Name() != by.Name():
		return errors.New("a log's key is followed by another of the same log")
	case c.Old != nil && c.Key.public == by.public:
		return errors.New("the log's key is followed by itself")
	case !ed25519.Verify(by.public[:], c.text(), c.Signature):
		return fmt.Errorf("the change to the key %s is not signed by %s", c.Key, by)
	}
	return nil
}

// ParseKeyChange reads the data of a "key" entry in its one encoding and verifies its signature.
func ParseKeyChange(data []byte) (KeyChange, error) {
	malformed := errors.New("a key entry holds a verifier key, the one before it unless it is the first, and a signature")
	var c KeyChange
	if json.Unmarshal(data, &c) != nil {
		return KeyChange{}, malformed
	}
	if same, err := json.Marshal(c); err != nil || !bytes.Equal(same, data) {
		return KeyChange{}, malformed
	}
	return c, c.check()
}

// Keys keeps account of the keys that a ledger's entries announce. The zero value is ready.
type Keys struct {
	changes []change
	used    map[[ed25519.PublicKeySize]byte]bool
}

type change struct {
	seq uint64
	key Key
}

// Add takes a key entry into account, and says what is wrong with it. Others pass.
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
	k.changes = append(k.changes, change{e.Seq, c.Key})
	return nil
}

// Last returns the key that was announced last.
func (k *Keys) Last() (Key, bool) {
	if len(k.changes) == 0 {
		return Key{}, false
	}
	return k.changes[len(k.changes)-1].key, true
}

// All returns the keys in the order in which they were announced.
func (k *Keys) All() []Key {
	var list []Key
	for _, c := range k.changes {
		list = append(list, c.key)
	}
	return list
}

// at returns the key that signs a tree of that size, when one was announced by then.
func (k *Keys) at(size uint64) (Key, bool) {
	for i := len(k.changes) - 1; i >= 0; i-- {
		if k.changes[i].seq <= size {
			return k.changes[i].key, true
		}
	}
	return Key{}, false
}

// follow adds to t the keys that a key in t led to.
func (k *Keys) follow(t Trust) Trust {
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
