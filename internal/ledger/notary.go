package ledger

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"bailey"
	"bailey/audit"
)

// NotaryConfig configures a Notary. All fields except the checkpoints are needed.
type NotaryConfig struct {
	Log          *Log
	Keys         Keys
	Newest       []byte                    // the checkpoint kept last, or nil
	Keep         func(signed []byte) error // durably replaces Newest; a checkpoint that it refuses is not given out
	Cosigned     []byte                    // the last one before it with cosignatures, or nil
	KeepCosigned func(signed []byte) error // durably replaces Cosigned, before Newest is replaced
}

// Notary signs the content of a log. It never signs fewer entries than before, or other ones: it keeps the checkpoint
// that it signed last, and proves from the current files that the next one extends it. Its methods are safe for
// concurrent use.
type Notary struct {
	c NotaryConfig

	mu      sync.Mutex // one signature at a time; guards the fields below
	learned bool
	name    string // of the log
	keys    audit.Keys
	newest  []byte

	cosigned []byte
}

// NewNotary returns the notary of a log. It reads and creates nothing yet.
func NewNotary(c NotaryConfig) *Notary {
	return &Notary{c: c, newest: c.Newest, cosigned: c.Cosigned}
}

// Key returns the key that the log signs with. If the log has no key yet, Key makes one and announces it in the log.
func (n *Notary) Key(ctx context.Context) (audit.Key, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ensureKey(ctx)
}

func (n *Notary) ensureKey(ctx context.Context) (audit.Key, error) {
	if err := n.loadKeys(); err != nil {
		return audit.Key{}, err
	}
	if k, ok := n.keys.Last(); ok {
		return k, nil
	}
	c, err := n.announceKey(ctx, audit.Key{}, nil)
	return c.Key, err
}

// loadKeys reads once the name of the log and the keys that it announced.
func (n *Notary) loadKeys() error {
	if n.learned {
		return nil
	}
	var name string
	var keys audit.Keys
	err := n.c.Log.eachEntry(n.c.Log.durable.Load(), func(e audit.Entry) error {
		var g audit.Genesis
		if e.Kind == audit.KindGenesis {
			err := json.Unmarshal(e.Data, &g)
			name = g.Name()
			return err
		}
		return keys.Add(e)
	})
	if err == nil {
		n.name, n.keys, n.learned = name, keys, true
	}
	return err
}

// announceKey makes a key and records in the log that it signs from now on. by signs the change for the previous key; if
// by is nil, the new key signs it.
func (n *Notary) announceKey(ctx context.Context, old audit.Key, by crypto.Signer) (audit.KeyChange, error) {
	private, err := n.c.Keys.Make()
	if err != nil {
		return audit.KeyChange{}, err
	}
	public := PublicOf(private)
	next, err := audit.LogKey(n.name, public)
	if err != nil {
		return audit.KeyChange{}, err
	}
	if by == nil {
		by = private
	}
	change, err := audit.NewKeyChange(old, next, by)
	if err != nil {
		return audit.KeyChange{}, err
	}
	if err := n.c.Log.recordKeyChange(ctx, change); err != nil {
		// If the error is Unavailable, the change may be in the log, and then this key signs.
		if !errors.Is(err, bailey.Unavailable) {
			err = errors.Join(err, n.c.Keys.Forget(public))
		}
		return audit.KeyChange{}, err
	}
	n.learned = false // it is in the log and is read from there
	return change, n.loadKeys()
}

// Rotate makes the log sign with another key from now on, and removes the previous private key.
func (n *Notary) Rotate(ctx context.Context) (audit.KeyChange, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, err := n.ensureKey(ctx)
	if err != nil {
		return audit.KeyChange{}, err
	}
	by, err := n.c.Keys.Find(old.Public())
	if err != nil {
		return audit.KeyChange{}, err
	}
	change, err := n.announceKey(ctx, old, by)
	if err != nil {
		return change, err
	}
	var errs []error
	for _, k := range n.keys.All() { // a crash may have left several
		if k != change.Key {
			errs = append(errs, n.c.Keys.Forget(k.Public()))
		}
	}
	return change, errors.Join(errs...)
}

// recordKeyChange records a change of key.
func (l *Log) recordKeyChange(ctx context.Context, c audit.KeyChange) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	r, err := newRequest(audit.KindKey, data)
	if err != nil {
		return err
	}
	return l.submitRequest(ctx, r)
}

// eachEntry calls see for the entries up to a position.
func (l *Log) eachEntry(to *position, see func(audit.Entry) error) error {
	files, err := l.dir.openSegments()
	if err != nil {
		return err
	}
	defer closeAll(files)
	var head audit.Head
	for i, r := range upTo(files, to) {
		for e, err := range audit.Scan(r, head) {
			var bad *audit.Bad
			if errors.As(err, &bad) {
				bad.Segment = i + 1
				return damagedError(l.dir.path, bad)
			}
			if err == nil {
				err = see(e)
			}
			if err != nil {
				return fmt.Errorf("reading the ledger: %w", err)
			}
			head = audit.Head{Seq: e.Seq, Hash: e.Hash}
		}
	}
	return nil
}

// Newest returns the checkpoint that was kept last, or nil.
func (n *Notary) Newest() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.newest
}

// Cosigned keeps the newest checkpoint with witness signatures added to it. It refuses any other checkpoint, and one
// that the log did not sign.
func (n *Notary) Cosigned(ctx context.Context, signed []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.ensureKey(ctx); err != nil {
		return err
	}
	s, err := audit.Trust{Keys: n.keys.All()}.Open(signed)
	if err != nil {
		return bailey.Invalid.Wrap(err, "this is no checkpoint that the log signed",
			"bailey audit checkpoint prints one")
	}
	if last, err := audit.ReadCheckpoint(n.newest); err != nil || last != s.Checkpoint {
		return bailey.Conflict.New("this is not the newest checkpoint: another was signed meanwhile",
			"have the newest cosigned")
	}
	if signed, err = audit.Join(n.newest, signed); err != nil { // another witness may have answered meanwhile
		return bailey.Invalid.Wrap(err, "the checkpoint is not kept with these signatures",
			"ask the witnesses again, and fewer of them")
	}
	return n.keepCheckpoint(signed)
}

// keepCheckpoint keeps a checkpoint as the newest. If the previous one is cosigned and this one is not, the previous one is also
// kept, because its cosignatures say nothing about the next one.
func (n *Notary) keepCheckpoint(signed []byte) error {
	if audit.Cosigned(n.newest) && !audit.Cosigned(signed) {
		if err := n.c.KeepCosigned(n.newest); err != nil {
			return err
		}
		n.cosigned = n.newest
	}
	if err := n.c.Keep(signed); err != nil {
		return err
	}
	n.newest = signed
	return nil
}
