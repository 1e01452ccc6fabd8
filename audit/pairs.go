package audit

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"bailey"
)

// Pairs keeps account of which receipts have an intent and which an outcome. The zero value is ready.
// Being exact about receipts long closed costs memory: some 40 bytes each.
type Pairs struct {
	open map[bailey.ReceiptID]uint64 // the intent's entry
	seen map[[16]byte]struct{}       // half a SHA-256 of each receipt that ever had an intent
}

// Add takes an intent or outcome into account, and says what is wrong with it. Others pass.
func (p *Pairs) Add(e Entry) error {
	switch e.Kind {
	case KindIntent:
		return p.Intent(e.Receipt, e.Seq)
	case KindOutcome:
		return p.Outcome(e.Receipt)
	}
	return nil
}

// Intent opens a receipt with the entry numbered seq. A receipt opens once.
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

// Outcome closes a receipt that is open.
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

// Len returns how many receipts have no outcome yet.
func (p *Pairs) Len() int { return len(p.open) }
