package audit

import (
	"crypto"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"bailey"
)

// The functions of this file build what the package verifies. They are a second implementation: the product's own is in
// internal/ledger, internal/ledger/notary and internal/witness, whose tests compare it with testdata/signed.

// testSigner signs for a log, or for a witness if now is set.
type testSigner struct {
	Key
	private ed25519.PrivateKey
	now     func() time.Time
}

func newSigner(origin string, private ed25519.PrivateKey) (note.Signer, error) {
	k, err := LogKey(origin, private.Public().(ed25519.PublicKey))
	return testSigner{k, private, nil}, err
}

func newCosigner(name string, private ed25519.PrivateKey, now func() time.Time) (note.Signer, error) {
	k, err := WitnessKey(name, private.Public().(ed25519.PublicKey))
	return testSigner{k, private, now}, err
}

func (s testSigner) Sign(text []byte) ([]byte, error) {
	if s.now == nil {
		return ed25519.Sign(s.private, text), nil
	}
	when := uint64(s.now().Unix())
	return append(binary.BigEndian.AppendUint64(nil, when), ed25519.Sign(s.private, cosignedBytes(when, text))...), nil
}

func signNote(c Checkpoint, by note.Signer) ([]byte, error) {
	return note.Sign(&note.Note{Text: c.Text()}, by)
}

// cosignNote adds a signature to a note, and verifies none.
func cosignNote(signed []byte, by note.Signer) ([]byte, error) {
	var unverified *note.UnverifiedNoteError
	if _, err := note.Open(signed, note.VerifierList()); !errors.As(err, &unverified) {
		return nil, err
	}
	return note.Sign(unverified.Note, by)
}

func newKeyChange(old, next Key, private crypto.Signer) (KeyChange, error) {
	c := KeyChange{Key: next}
	if old != (Key{}) {
		c.Old = &old
	}
	sig, err := private.Sign(nil, c.SignedText(), crypto.Hash(0))
	c.Signature = sig
	return c, err
}

func newStart(head Head, tree Tree, open []bailey.ReceiptID) Start {
	return Start{head.Seq, head.Hash, tree.Root(), tree.Edge(), append([]bailey.ReceiptID{}, open...)}
}

// eachEntry calls see for each of the first size entries.
func eachEntry(t testing.TB, size uint64, segments []io.Reader, see func(Entry)) {
	t.Helper()
	var head Head
	for _, r := range segments {
		for e, err := range Scan(r, head) {
			do(t, err)
			if e.Seq > size {
				return
			}
			see(e)
			head = Head{e.Seq, e.Hash}
		}
	}
}

// find returns the numbers of the entries that belong to the portable receipt of id.
func (b *book) find(id bailey.ReceiptID, size int) (seqs []uint64) {
	b.t.Helper()
	plans := map[string]uint64{}
	eachEntry(b.t, uint64(size), b.readers(), func(e Entry) {
		if p, err := ParsePlan(e.Data); e.Kind == KindPlan && err == nil {
			plans[p.Digest] = e.Seq
		}
		if at := plans[e.Plan]; e.Receipt == id && at > 0 {
			seqs = append(seqs, at)
		}
		if e.Kind == KindKey || e.Receipt == id {
			seqs = append(seqs, e.Seq)
		}
	})
	slices.Sort(seqs)
	return seqs
}

// prove returns the portable receipt of the entries numbered seqs.
func (b *book) prove(signed []byte, seqs ...uint64) Receipt {
	b.t.Helper()
	c, err := ReadCheckpoint(signed)
	do(b.t, err)
	r := Receipt{Checkpoint: signed}
	eachEntry(b.t, c.Size, b.readers(), func(e Entry) {
		if slices.Contains(seqs, e.Seq) {
			line, _, err := Append(e.Prev, e)
			do(b.t, err)
			r.Entries = append(r.Entries, Proven{e.Seq, inclusion(b.t, b.leaves(), c.Size, e.Seq), line})
		}
	})
	return r
}

// storedHashes returns the nodes of the tree over leaves.
func storedHashes(t testing.TB, leaves []Hash) tlog.HashReaderFunc {
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) (list []tlog.Hash, err error) {
		for _, i := range indexes {
			list = append(list, stored[i])
		}
		return list, nil
	})
	for n, leaf := range leaves {
		more, err := tlog.StoredHashesForRecordHash(int64(n), tlog.Hash(leaf), read)
		do(t, err)
		stored = append(stored, more...)
	}
	return read
}

// inclusion returns the proof that the tree over the first size leaves holds the entry numbered seq.
func inclusion(t testing.TB, leaves []Hash, size, seq uint64) (proof []Hash) {
	list, err := tlog.ProveRecord(int64(size), int64(seq-1), storedHashes(t, leaves))
	do(t, err)
	return fromTlog(list)
}

// consistency returns the proof that the tree over the first size leaves begins with the first old.
func consistency(t testing.TB, leaves []Hash, size, old uint64) []Hash {
	if old == 0 || old == size {
		return nil
	}
	list, err := tlog.ProveTree(int64(size), int64(old), storedHashes(t, leaves))
	do(t, err)
	return fromTlog(list)
}

func fromTlog(list []tlog.Hash) (out []Hash) {
	for _, h := range list {
		out = append(out, Hash(h))
	}
	return out
}
