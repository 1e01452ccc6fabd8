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

// NotaryConfig is what a Notary is made of. All of it is needed but the checkpoints.
type NotaryConfig struct {
	Log          *Log
	Keys         Keys
	Newest       []byte                    // the checkpoint that was kept last; nil is none
	Keep         func(signed []byte) error // keeps a checkpoint in Newest's place, durably; what it refuses is not shown to anybody
	Cosigned     []byte                    // the last before it that carries cosignatures; nil is none
	KeepCosigned func(signed []byte) error // keeps it in Cosigned's place, durably, before another takes Newest's
}

// Notary signs what a log holds. It never signs less than before, nor anything else: what it signed last is kept, and what
// it signs next is proved to go on from that, from the files as they are then. Its methods may be called from many goroutines.
type Notary struct {
	c NotaryConfig

	mu      sync.Mutex // one signature at a time; guards what follows
	learned bool
	name    string // of the log
	keys    audit.Keys
	newest  []byte

	cosigned []byte
}

// NewNotary returns the notary of a log. It reads and makes nothing yet.
func NewNotary(c NotaryConfig) *Notary {
	return &Notary{c: c, newest: c.Newest, cosigned: c.Cosigned}
}

// Key returns the key that the log signs with. It is made and announced in the log when there is none.
func (n *Notary) Key(ctx context.Context) (audit.Key, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.key(ctx)
}

func (n *Notary) key(ctx context.Context) (audit.Key, error) {
	if err := n.learn(); err != nil {
		return audit.Key{}, err
	}
	if k, ok := n.keys.Last(); ok {
		return k, nil
	}
	c, err := n.announce(ctx, audit.Key{}, nil)
	return c.Key, err
}

// learn reads once which keys the log announced, and what it is called.
func (n *Notary) learn() error {
	if n.learned {
		return nil
	}
	var name string
	var keys audit.Keys
	err := n.c.Log.each(n.c.Log.durable.Load(), func(e audit.Entry) error {
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

// announce makes a key and has the log say that it signs with it from now on; by signs for the one before it.
func (n *Notary) announce(ctx context.Context, old audit.Key, by crypto.Signer) (audit.KeyChange, error) {
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
	if err := n.c.Log.rekey(ctx, change); err != nil {
		if !errors.Is(err, bailey.Unavailable) { // else it may stand in the log, and the key is the one that signs
			err = errors.Join(err, n.c.Keys.Forget(public))
		}
		return audit.KeyChange{}, err
	}
	n.learned = false // it stands in the log, and is read from there
	return change, n.learn()
}

// Rotate has the log sign with another key from now on, and takes the private half of the one before away.
func (n *Notary) Rotate(ctx context.Context) (audit.KeyChange, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, err := n.key(ctx)
	if err != nil {
		return audit.KeyChange{}, err
	}
	by, err := n.c.Keys.Find(old.Public())
	if err != nil {
		return audit.KeyChange{}, err
	}
	change, err := n.announce(ctx, old, by)
	if err != nil {
		return change, err
	}
	var errs []error
	for _, k := range n.keys.All() { // a crash may have left more of them than one
		if k != change.Key {
			errs = append(errs, n.c.Keys.Forget(k.Public()))
		}
	}
	return change, errors.Join(errs...)
}

// rekey records a change of key.
func (l *Log) rekey(ctx context.Context, c audit.KeyChange) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	r, err := newRequest(audit.KindKey, data)
	if err != nil {
		return err
	}
	return l.submit(ctx, r)
}

// each shows the entries up to a place.
func (l *Log) each(to *position, see func(audit.Entry) error) error {
	files, err := l.dir.files()
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
				return damaged(l.dir.path, bad)
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

// Newest returns the checkpoint that was kept last, nil when there is none.
func (n *Notary) Newest() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.newest
}

// Cosigned keeps the newest checkpoint with signatures of witnesses added to it. Another checkpoint is refused, and one that
// the log did not sign.
func (n *Notary) Cosigned(ctx context.Context, signed []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.key(ctx); err != nil {
		return err
	}
	s, err := audit.Trust{Keys: n.keys.All()}.Open(signed)
	if err != nil {
		return &bailey.Error{Kind: bailey.Invalid, Message: "this is no checkpoint that the log signed", Err: err, Hint: "bailey audit checkpoint prints one"}
	}
	if last, err := audit.ReadCheckpoint(n.newest); err != nil || last != s.Checkpoint {
		return &bailey.Error{Kind: bailey.Conflict, Message: "this is not the newest checkpoint: another was signed meanwhile", Hint: "have the newest cosigned"}
	}
	if signed, err = audit.Join(n.newest, signed); err != nil { // another witness's came meanwhile
		return &bailey.Error{Kind: bailey.Invalid, Message: "the checkpoint is not kept with these signatures", Err: err, Hint: "ask the witnesses again, and fewer of them"}
	}
	return n.keep(signed)
}

// keep keeps a checkpoint as the newest. One that witnesses cosigned goes not with that: what they said of it nobody says of
// the next.
func (n *Notary) keep(signed []byte) error {
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
