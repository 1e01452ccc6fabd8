// Package notary signs checkpoints of a log, keeps their cosignatures, and proves receipts under them. It only reads the
// ledger, and appends the changes of its own key.
package notary

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"slices"
	"sync"

	"golang.org/x/mod/sumdb/note"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
)

// Log is the log that a Notary signs for: a [ledger.Log].
type Log interface {
	// Durable returns the position after the last durable entry.
	Durable() ledger.Position
	// Entries yields the entries after a place up to a position, checked against the format and the chain.
	Entries(ctx context.Context, after ledger.Place, to ledger.Position) iter.Seq2[ledger.Placed, error]
	// RecordKey records durably with which key the log signs from now on.
	RecordKey(ctx context.Context, c audit.KeyChange) error
	// Disagrees returns the error for a ledger that contradicts its newest checkpoint.
	Disagrees(bad audit.Bad) error
}

// Config configures a Notary. All fields except the checkpoints are needed.
type Config struct {
	Log          Log
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
	c Config

	mu      sync.Mutex // one signature at a time; guards the fields below
	learned bool
	name    string // of the log
	keys    audit.Keys
	newest  []byte

	cosigned []byte
}

// New returns the notary of a log. It reads and creates nothing yet.
func New(c Config) *Notary {
	return &Notary{c: c, newest: c.Newest, cosigned: c.Cosigned}
}

// Key returns the key that the log signs with. If the log has no key yet, Key makes one and announces it in the log.
func (n *Notary) Key(ctx context.Context) (audit.Key, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ensureKey(ctx)
}

func (n *Notary) ensureKey(ctx context.Context) (audit.Key, error) {
	if err := n.loadKeys(ctx); err != nil {
		return audit.Key{}, err
	}
	if k, ok := n.keys.Last(); ok {
		return k, nil
	}
	c, err := n.announceKey(ctx, audit.Key{}, nil)
	return c.Key, err
}

// loadKeys reads once the name of the log and the keys that it announced.
func (n *Notary) loadKeys(ctx context.Context) error {
	if n.learned {
		return nil
	}
	var name string
	var keys audit.Keys
	for p, err := range n.entries(ctx) {
		if err == nil {
			err = keys.Add(p.Entry)
		}
		if err == nil && p.Kind == audit.KindGenesis {
			var g audit.Genesis
			err = json.Unmarshal(p.Data, &g)
			name = g.Name()
		}
		if err != nil {
			return err
		}
	}
	n.name, n.keys, n.learned = name, keys, true
	return nil
}

// entries yields the durable entries.
func (n *Notary) entries(ctx context.Context) iter.Seq2[ledger.Placed, error] {
	return n.c.Log.Entries(ctx, ledger.Place{}, n.c.Log.Durable())
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
	change, err := signKeyChange(old, next, by)
	if err != nil {
		return audit.KeyChange{}, err
	}
	if err := n.c.Log.RecordKey(ctx, change); err != nil {
		// If the error is Unavailable, the change may be in the log, and then this key signs.
		if !errors.Is(err, bailey.Unavailable) {
			err = errors.Join(err, n.c.Keys.Forget(public))
		}
		return audit.KeyChange{}, err
	}
	n.learned = false // it is in the log and is read from there
	return change, n.loadKeys(ctx)
}

// signKeyChange returns the announcement of the log's next key, signed by private, the private key of old. If old is the
// zero key, next is the first key, and private must be its private key. No ledger can prove that the first key belongs
// to the log.
func signKeyChange(old, next audit.Key, private crypto.Signer) (c audit.KeyChange, err error) {
	c.Key = next
	if old != (audit.Key{}) {
		c.Old = &old
	}
	if c.Signature, err = private.Sign(nil, c.SignedText(), crypto.Hash(0)); err != nil {
		return audit.KeyChange{}, err
	}
	data, err := json.Marshal(c)
	if err != nil {
		return audit.KeyChange{}, err
	}
	return audit.ParseKeyChange(data)
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
		return bailey.Invalid.Wrap(err, "this is not a checkpoint signed by the log",
			"run bailey audit checkpoint to print one")
	}
	if last, err := audit.ReadCheckpoint(n.newest); err != nil || last != s.Checkpoint {
		return bailey.Conflict.New("this is no longer the newest checkpoint: another was signed meanwhile",
			"have the newest one cosigned")
	}
	if signed, err = audit.Join(n.newest, signed); err != nil { // another witness may have answered meanwhile
		return bailey.Invalid.Wrap(err, "the checkpoint with these signatures was not stored",
			"ask the witnesses again, or fewer of them")
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

// Sign signs the current content of the log, keeps the checkpoint in place of the one signed last, and returns it. If
// nothing was added since, Sign returns the kept checkpoint with its witness signatures.
func (n *Notary) Sign(ctx context.Context) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key, err := n.ensureKey(ctx)
	if err != nil {
		return nil, err
	}
	private, err := n.c.Keys.Find(key.Public())
	if err != nil {
		return nil, err
	}
	by, err := newSigner(n.name, private)
	if err != nil {
		return nil, err
	}
	last, err := n.lastCheckpoint()
	if err != nil {
		return nil, err
	}
	to := n.c.Log.Durable()
	now := audit.Checkpoint{Origin: n.name, Size: to.Tree.Size(), Root: to.Tree.Root()}
	if now == last {
		return n.newest, nil
	}
	proof, err := n.proveExtends(ctx, last, to)
	if err != nil {
		return nil, err
	}
	signed, err := signCheckpoint(now, last, proof, by)
	if err != nil {
		return nil, err
	}
	// If it is not kept, the log could sign less after a crash than another party holds.
	if err := n.keepCheckpoint(signed); err != nil {
		return nil, err
	}
	return signed, nil
}

// signer signs with a log's key. The private key may be anywhere, because it is asked for each signature.
type signer struct {
	audit.Key
	private crypto.Signer
}

func newSigner(name string, private crypto.Signer) (signer, error) {
	k, err := audit.LogKey(name, PublicOf(private))
	return signer{k, private}, err
}

// Sign returns the signature of a note's text.
func (s signer) Sign(text []byte) ([]byte, error) { return s.private.Sign(nil, text, crypto.Hash(0)) }

// signCheckpoint returns c as a note signed by by. It signs only if proof shows that c extends last, the checkpoint
// signed last, and only in the log's own name.
func signCheckpoint(c, last audit.Checkpoint, proof []audit.Hash, by note.Signer) ([]byte, error) {
	if err := c.Extends(last, proof); err != nil {
		return nil, bailey.Conflict.Wrap(err, "the checkpoint is not signed: it does not extend the last signed one",
			"the ledger was cut, restored or replaced: keep it, find out which, then start a new one")
	}
	if _, err := audit.ParseCheckpoint(c.Text()); err != nil || by.Name() != c.Origin {
		return nil, bailey.Invalid.Wrap(err, "the checkpoint is not signed: it belongs to another log than this key",
			"the name in a log's key must be the origin of the log")
	}
	return note.Sign(&note.Note{Text: c.Text()}, by)
}

// lastCheckpoint returns the checkpoint that was signed last, or the zero Checkpoint. If the log's keys did not sign the kept
// checkpoint, last refuses it, because it could let the log sign less than before.
func (n *Notary) lastCheckpoint() (audit.Checkpoint, error) {
	if n.newest == nil {
		return audit.Checkpoint{}, nil
	}
	s, err := audit.Trust{Keys: n.keys.All()}.Open(n.newest)
	if err != nil {
		return s.Checkpoint, bailey.Conflict.Wrap(err, "the newest checkpoint is not signed by a key of this log",
			"restore it from where checkpoints are kept, after finding out who replaced it")
	}
	return s.Checkpoint, nil
}

// Consistency returns the proof that a signed checkpoint begins with the log's first old entries.
func (n *Notary) Consistency(ctx context.Context, old uint64, signed []byte) ([]audit.Hash, error) {
	c, err := audit.ReadCheckpoint(signed)
	if err != nil {
		return nil, err
	}
	if old > c.Size {
		return nil, bailey.Invalid.Errorf("check that number first: if a witness saw that many entries, the log was rolled back; bailey audit verify --against that checkpoint shows it",
			"the checkpoint has %d entries, but %d were reportedly seen", c.Size, old)
	}
	proof, _, err := n.proveConsistency(ctx, old, c.Size, n.c.Log.Durable())
	return proof, err
}

// proveExtends proves that the files up to a position extend last and match the tree in memory.
func (n *Notary) proveExtends(ctx context.Context, last audit.Checkpoint, to ledger.Position) ([]audit.Hash, error) {
	if last == (audit.Checkpoint{}) || last.Size > to.Tree.Size() {
		return nil, nil // Sign refuses the latter with its own error
	}
	proof, root, err := n.proveConsistency(ctx, last.Size, to.Tree.Size(), to)
	if err == nil && root != to.Tree.Root() {
		err = n.c.Log.Disagrees(audit.Bad{Within: to.Tree.Size(), Reason: audit.Forked,
			Detail: "the files contain other entries than were written"})
	}
	return proof, err
}

// proveConsistency returns the proof from the first old entries to the first size entries, and the root over the latter.
func (n *Notary) proveConsistency(ctx context.Context, old, size uint64,
	to ledger.Position) (proof []audit.Hash, root audit.Hash, err error) {
	p, err := newProver(size)
	if err == nil {
		err = p.wantConsistency(old)
	}
	if err != nil {
		return nil, root, err
	}
	for e, err := range n.c.Log.Entries(ctx, ledger.Place{}, to) {
		if err != nil {
			return nil, root, err
		}
		p.addLeaf(e.Leaf)
	}
	if root, err = p.treeRoot(); err == nil {
		proof, err = p.consistencyWith(old)
	}
	return proof, root, err
}

// Prove returns the portable receipt of id under a kept checkpoint that covers it, preferably a cosigned one. If no
// kept checkpoint covers it, Prove signs one.
func (n *Notary) Prove(ctx context.Context, id bailey.ReceiptID) ([]byte, error) {
	_, last, err := n.findEntries(ctx, id, math.MaxUint64)
	if err != nil {
		return nil, err
	}
	signed, err := n.findCovering(ctx, last)
	if err == nil && signed == nil {
		signed, err = n.Sign(ctx)
	}
	if err != nil {
		return nil, err
	}
	c, err := audit.ReadCheckpoint(signed)
	if err != nil {
		return nil, err
	}
	seqs, _, err := n.findEntries(ctx, id, c.Size)
	if err != nil {
		return nil, err
	}
	r, err := n.proveEntries(ctx, signed, seqs)
	return r.Text(), err
}

// findCovering returns the newest kept checkpoint that covers an entry, or nil. Cosigned checkpoints come first.
func (n *Notary) findCovering(ctx context.Context, seq uint64) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.loadKeys(ctx); err != nil {
		return nil, err
	}
	list := [][]byte{n.cosigned, n.newest}
	if audit.Cosigned(n.newest) {
		slices.Reverse(list)
	}
	for _, signed := range list {
		if c, err := audit.ReadCheckpoint(signed); signed == nil || err == nil && c.Origin != n.name {
			continue // missing, or of a previous ledger
		}
		s, err := audit.Trust{Keys: n.keys.All()}.Open(signed)
		if err != nil {
			return nil, bailey.Conflict.Wrap(err, "a stored checkpoint is not signed by a key of this log",
				"restore it from where checkpoints are kept, after finding out who replaced it")
		}
		if s.Size >= seq {
			return signed, nil
		}
	}
	return nil, nil
}
