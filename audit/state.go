package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bailey"
)

// State is the sum of the entries of a ledger so far. The zero value is the state before the first entry.
type State struct {
	Head  Head
	Name  string // [Genesis.Name]
	Tree  Tree
	Pairs Pairs
	Plans Plans
	Keys  Keys

	resumed bool // the ledger's name, and the plans and keys of previous segments, are unknown
}

// Add records an entry that [Scan] yielded after Head. It returns a *Bad if the entry contradicts the entries before
// it; the state must not be used afterwards. begins tells whether the entry is the first of a segment that is not the
// ledger's first.
func (s *State) Add(e Entry, begins bool) *Bad {
	reason, err := s.applyEntry(e, begins)
	if err != nil {
		return &Bad{Entry: e.Seq, Reason: reason, Detail: err.Error()}
	}
	s.Head = Head{Seq: e.Seq, Hash: e.Hash}
	s.Tree.Add(e.Leaf)
	return nil
}

func (s *State) applyEntry(e Entry, begins bool) (Reason, error) {
	if begins != (e.Kind == KindSegment) {
		return Started, errors.New("every segment except the first must begin with an entry of kind " + KindSegment +
			", which is allowed nowhere else")
	}
	switch e.Kind {
	case KindGenesis:
		var g Genesis
		if err := json.Unmarshal(e.Data, &g); err != nil {
			return Origin, err
		}
		s.Name = g.Name()
	case KindSegment:
		return Started, s.checkSegmentStart(e)
	case KindIntent, KindOutcome:
		if err := s.Pairs.Add(e); err != nil {
			return Pairing, err
		}
		if s.resumed {
			return "", nil
		}
		return Planned, s.Plans.Add(e)
	case KindPlan:
		return Planned, s.Plans.Add(e)
	case KindKey:
		if s.resumed {
			_, err := ParseKeyChange(e.Data)
			return Rekeyed, err
		}
		return Rekeyed, s.addKeyChange(e)
	}
	return "", nil
}

func (s *State) checkSegmentStart(e Entry) error {
	start, err := parseStart(e.Data)
	if err != nil {
		return err
	}
	return start.checkFollows(s.Head, &s.Tree, s.Pairs.Open())
}

func (s *State) addKeyChange(e Entry) error {
	if err := s.Keys.Add(e); err != nil {
		return err
	}
	if k, _ := s.Keys.Last(); k.Name() != s.Name {
		return fmt.Errorf("the key must be one of %s, but is %s", k.Name(), s.Name)
	}
	return nil
}

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
		return p.openReceipt(e.Receipt, e.Seq)
	case KindOutcome:
		return p.closeReceipt(e.Receipt)
	}
	return nil
}

// openReceipt opens a receipt with the entry numbered seq. It fails if the receipt was ever opened before.
func (p *Pairs) openReceipt(id bailey.ReceiptID, seq uint64) error {
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

// closeReceipt closes a receipt, which must be open.
func (p *Pairs) closeReceipt(id bailey.ReceiptID) error {
	if _, ok := p.open[id]; ok {
		delete(p.open, id)
		return nil
	}
	sum := sha256.Sum256([]byte(id))
	if _, ok := p.seen[[16]byte(sum[:16])]; ok {
		return fmt.Errorf("second outcome of receipt %s", id)
	}
	return fmt.Errorf("outcome of receipt %s without an intent", id)
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

// Plan is the data of a "plan" note: the text for which a cage's plan digest stands, or the statement that the text is
// withheld because it holds a secret. Exactly one of Text and Redacted is set.
type Plan struct {
	Digest   string `json:"digest"` // SHA-256 of Text, 64 lower-case hexadecimal digits
	Text     string `json:"text,omitempty"`
	Redacted bool   `json:"redacted,omitempty"`
}

// Plans records the plans that notes hold. The zero value is ready to use. To be exact about every plan, it needs about
// 50 bytes for each.
type Plans struct {
	known map[Hash]bool // by digest; true if the text was present and matched
}

// Add records a plan note or an outcome, and returns an error if it does not fit. It ignores other kinds.
func (p *Plans) Add(e Entry) error {
	switch {
	case e.Kind == KindPlan:
		return p.addPlan(e.Data)
	case e.Kind == KindOutcome && e.Plan != "":
		digest, _ := parseHash([]byte(e.Plan)) // already checked by the scanner
		if _, ok := p.known[digest]; !ok {
			return fmt.Errorf("the outcome of receipt %s names the plan %s, which no earlier entry has", e.Receipt,
				e.Plan)
		}
	}
	return nil
}

// countPlans returns the number of plans whose text matched the digest, and the number of plans whose text is withheld.
func (p *Plans) countPlans() (recomputed, withheld int) {
	for _, whole := range p.known {
		if whole {
			recomputed++
		} else {
			withheld++
		}
	}
	return recomputed, withheld
}

func (p *Plans) addPlan(data []byte) error {
	plan, err := ParsePlan(data)
	if err != nil {
		return err
	}
	digest, _ := parseHash([]byte(plan.Digest))
	if !plan.Redacted && sha256.Sum256([]byte(plan.Text)) != digest {
		return fmt.Errorf("the text of the plan %s does not match that digest", plan.Digest)
	}
	if p.known == nil {
		p.known = map[Hash]bool{}
	}
	p.known[digest] = p.known[digest] || !plan.Redacted
	return nil
}

// ParsePlan parses the data of a plan note. It must have exactly two members with exactly these names. ParsePlan does
// not compare the text with the digest.
func ParsePlan(data []byte) (Plan, error) {
	malformed := errors.New("a plan entry must have a digest and either its text or \"redacted\":true")
	var member map[string]json.RawMessage // a struct would accept keys in any case
	if json.Unmarshal(data, &member) != nil || len(member) != 2 {
		return Plan{}, malformed
	}
	var plan Plan
	if json.Unmarshal(data, &plan) != nil || member["digest"] == nil {
		return Plan{}, malformed
	}
	if _, ok := parseHash([]byte(plan.Digest)); !ok {
		return Plan{}, malformed
	}
	if raw, ok := member["redacted"]; ok {
		if string(raw) != "true" {
			return Plan{}, malformed
		}
		return plan, nil
	}
	// This decoder reads text without a UTF-8 form, for example half a surrogate pair, as U+FFFD. Such a text is
	// ambiguous.
	const instead = "\ufffd"
	if raw, ok := member["text"]; !ok || plan.Text == "" ||
		strings.Count(plan.Text, instead) != bytes.Count(raw, []byte(instead)) {
		return Plan{}, malformed
	}
	return plan, nil
}
