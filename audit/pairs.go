package audit

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"bailey"
)

// Pairs records which receipts have an intent and which have an outcome. The zero value is ready to use. To stay exact
// about receipts that were closed long ago, it needs about 40 bytes for each.
type Pairs struct {
	open map[bailey.ReceiptID]uint64 // number of the intent's entry
	seen map[[16]byte]struct{}       // half of the SHA-256 of each receipt that ever had an intent
}

// Add records an intent or outcome, and returns an error if it does not fit. It ignores other kinds.
func (p *Pairs) Add(e Entry) error {
	switch e.Kind {
	case KindIntent:
		return p.Intent(e.Receipt, e.Seq)
	case KindOutcome:
		return p.Outcome(e.Receipt)
	}
	return nil
}

// Intent opens a receipt with the entry numbered seq. It fails if the receipt was ever opened before.
func (p *Pairs) Intent(id bailey.ReceiptID, seq uint64) error {
	if p.seen == nil {
		p.open, p.seen = make(map[bailey.ReceiptID]uint64), make(map[[16]byte]struct{})
	}
	sum := sha256.Sum256([]byte(id))
	key := [16]byte(sum[:16])
	if _, twice := p.seen[key]; twice {
		return fmt.Errorf("second intent of receipt %s", id)
	}
	p.seen[key] = struct{}{}
	p.open[id] = seq
	return nil
}

// Outcome closes a receipt, which must be open.
func (p *Pairs) Outcome(id bailey.ReceiptID) error {
	if _, ok := p.open[id]; ok {
		delete(p.open, id)
		return nil
	}
	sum := sha256.Sum256([]byte(id))
	if _, ok := p.seen[[16]byte(sum[:16])]; ok {
		return fmt.Errorf("second outcome of receipt %s", id)
	}
	return fmt.Errorf("outcome of receipt %s, which has no intent", id)
}

// Open returns the receipts that have no outcome yet, in the order of their intents.
func (p *Pairs) Open() []bailey.ReceiptID {
	return slices.SortedFunc(maps.Keys(p.open), func(a, b bailey.ReceiptID) int {
		if p.open[a] < p.open[b] {
			return -1
		}
		return 1
	})
}

// Len returns the number of receipts that have no outcome yet.
func (p *Pairs) Len() int { return len(p.open) }
