package ledger

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"bailey"
)

// account records the open receipts, and the receipts that the current segment opened or began with. It forgets all
// others, so that memory does not grow with the ledger. An ID is 128 random bits; if an ID of an older segment comes
// again, only verification detects it. The zero value is ready to use. [Log.mu] guards it.
type account struct {
	open map[bailey.ReceiptID]uint64 // number of the intent's entry, or its place among the receipts carried over
	seen map[[16]byte]struct{}       // half of the SHA-256 of each ID
}

// move is a change of the account that can be undone.
type move struct {
	receipt bailey.ReceiptID
	seq     uint64 // of the intent
	closed  bool
}

// intent opens a receipt with the entry numbered seq.
func (a *account) intent(id bailey.ReceiptID, seq uint64) (move, error) {
	if a.seen == nil {
		a.open, a.seen = map[bailey.ReceiptID]uint64{}, map[[16]byte]struct{}{}
	}
	key := keyOf(id)
	if _, twice := a.seen[key]; twice {
		return move{}, fmt.Errorf("receipt %s has an intent already", id)
	}
	a.seen[key] = struct{}{}
	a.open[id] = seq
	return move{receipt: id, seq: seq}, nil
}

// outcome closes a receipt, which must be open.
func (a *account) outcome(id bailey.ReceiptID) (move, error) {
	seq, ok := a.open[id]
	if !ok {
		return move{}, fmt.Errorf("receipt %s is not open", id)
	}
	delete(a.open, id)
	return move{receipt: id, seq: seq, closed: true}, nil
}

// undo reverts moves, the last one first.
func (a *account) undo(moves []move) {
	for _, m := range slices.Backward(moves) {
		if m.closed {
			a.open[m.receipt] = m.seq
			continue
		}
		delete(a.open, m.receipt)
		delete(a.seen, keyOf(m.receipt))
	}
}

// list returns the open receipts in the order of their intents.
func (a *account) list() []bailey.ReceiptID {
	return slices.SortedFunc(maps.Keys(a.open), func(x, y bailey.ReceiptID) int { return cmp.Compare(a.open[x], a.open[y]) })
}

// carry returns the account at the beginning of a new segment.
func (a *account) carry() (next account) {
	for i, id := range a.list() {
		next.intent(id, uint64(i)+1) // each ID is open once
	}
	return next
}

func keyOf(id bailey.ReceiptID) [16]byte {
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:16])
}
