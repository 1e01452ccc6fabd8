package ledger

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"bailey"
)

// openReceipts records the open receipts, and the receipts that the current segment opened or began with. It forgets all
// others, so that memory does not grow with the ledger. An ID is 128 random bits; if an ID of an older segment comes
// again, only verification detects it. The zero value is ready to use. [Log.mu] guards it.
type openReceipts struct {
	open map[bailey.ReceiptID]uint64 // number of the intent's entry, or its place among the receipts carried over
	seen map[[16]byte]struct{}       // half of the SHA-256 of each ID
}

// undoEntry is a change of the account that can be undone.
type undoEntry struct {
	receipt bailey.ReceiptID
	seq     uint64 // of the intent
	closed  bool
}

// addIntent opens a receipt with the entry numbered seq.
func (a *openReceipts) addIntent(id bailey.ReceiptID, seq uint64) (undoEntry, error) {
	if a.seen == nil {
		a.open, a.seen = map[bailey.ReceiptID]uint64{}, map[[16]byte]struct{}{}
	}
	key := keyOf(id)
	if _, twice := a.seen[key]; twice {
		return undoEntry{}, fmt.Errorf("receipt %s has an intent already", id)
	}
	a.seen[key] = struct{}{}
	a.open[id] = seq
	return undoEntry{receipt: id, seq: seq}, nil
}

// addOutcome closes a receipt, which must be open.
func (a *openReceipts) addOutcome(id bailey.ReceiptID) (undoEntry, error) {
	seq, ok := a.open[id]
	if !ok {
		return undoEntry{}, fmt.Errorf("receipt %s is not open", id)
	}
	delete(a.open, id)
	return undoEntry{receipt: id, seq: seq, closed: true}, nil
}

// undoChanges reverts moves, the last one first.
func (a *openReceipts) undoChanges(moves []undoEntry) {
	for _, m := range slices.Backward(moves) {
		if m.closed {
			a.open[m.receipt] = m.seq
			continue
		}
		delete(a.open, m.receipt)
		delete(a.seen, keyOf(m.receipt))
	}
}

// orderedIDs returns the open receipts in the order of their intents.
func (a *openReceipts) orderedIDs() []bailey.ReceiptID {
	return slices.SortedFunc(maps.Keys(a.open),
		func(x, y bailey.ReceiptID) int { return cmp.Compare(a.open[x], a.open[y]) })
}

// copyOpen returns the account at the beginning of a new segment.
func (a *openReceipts) copyOpen() (next openReceipts) {
	for i, id := range a.orderedIDs() {
		next.addIntent(id, uint64(i)+1) // each ID is open once
	}
	return next
}

func keyOf(id bailey.ReceiptID) [16]byte {
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:16])
}
