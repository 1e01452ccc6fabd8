package audit

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// MaxReceipt bounds a portable receipt in bytes. It has room for three lines of maximum length, and for more changes of
// key than a log sees.
const MaxReceipt = 1 << 20

const receiptHead = "bailey.audit/receipt/v1\n"

// Receipt is a portable receipt: entries of a ledger, each with the proof that leads from it to a signed checkpoint. A
// verifier that has the receipt and a key needs neither the ledger nor trust in Bailey.
type Receipt struct {
	Entries    []Proven // in ascending order
	Checkpoint []byte   // the signed note
}

// Proven is an entry with its proof of inclusion.
type Proven struct {
	Seq   uint64
	Proof []Hash
	Line  []byte // including the newline
}

// Verified holds the facts that a portable receipt proves.
type Verified struct {
	Signed
	Intent  Entry
	Outcome Entry // zero if the receipt holds no outcome, which does not prove that none exists
	Plan    Plan  // of the cage, if the outcome names one
}

// Text returns the receipt's one encoding.
func (r Receipt) Text() []byte {
	b := []byte(receiptHead)
	for _, e := range r.Entries {
		b = appendProven(b, e)
	}
	b = append(b, '\n')
	return append(b, r.Checkpoint...)
}

// appendProven appends the entry's lines: its number, its proof, and its line.
func appendProven(b []byte, p Proven) []byte {
	b = fmt.Appendf(b, "entry %d\n", p.Seq)
	for _, h := range p.Proof {
		b = append(hex.AppendEncode(b, h[:]), '\n')
	}
	return append(b, p.Line...)
}

// ParseReceipt accepts only the output of Text. It verifies nothing.
func ParseReceipt(text []byte) (Receipt, error) {
	if len(text) > MaxReceipt {
		return Receipt{}, fmt.Errorf("a receipt must have at most %d bytes", MaxReceipt)
	}
	rest, ok := bytes.CutPrefix(text, []byte(receiptHead))
	if !ok {
		return Receipt{}, fmt.Errorf("a receipt must begin with the line %q", receiptHead[:len(receiptHead)-1])
	}
	var r Receipt
	for !bytes.HasPrefix(rest, []byte("\n")) {
		e, left, err := parseProven(rest)
		if err != nil {
			return Receipt{}, fmt.Errorf("entry %d of the receipt: %w", len(r.Entries)+1, err)
		}
		r.Entries, rest = append(r.Entries, e), left
	}
	r.Checkpoint = bytes.Clone(rest[1:])
	if !bytes.Equal(r.Text(), text) {
		return Receipt{}, errors.New("the receipt is not in canonical form")
	}
	return r, nil
}

func parseProven(b []byte) (e Proven, rest []byte, err error) {
	number, rest, ok := cutBetween(b, "entry ", "\n")
	if !ok {
		return Proven{}, nil, errors.New("the receipt does not begin with its number, or has no checkpoint")
	}
	if e.Seq, err = strconv.ParseUint(string(number), 10, 64); err != nil {
		return Proven{}, nil, fmt.Errorf("the receipt's number %.40q is malformed", number)
	}
	for len(e.Proof) < 64 {
		line, left, ok := bytes.Cut(rest, []byte("\n"))
		h, isHash := parseHash(line)
		if !ok || !isHash {
			break
		}
		e.Proof, rest = append(e.Proof, h), left
	}
	end := bytes.IndexByte(rest, '\n') + 1
	if end == 0 || rest[0] != '{' {
		return Proven{}, nil, errors.New("a proof is not followed by a line of the ledger")
	}
	e.Line = bytes.Clone(rest[:end])
	return e, rest[end:], nil
}

// VerifyReceipt verifies a portable receipt: one intent, its outcome, the plan of its cage, and the changes of the
// log's key. Each entry must be proved to be in the ledger that the checkpoint signs. t needs one key: the log's first
// key or a later one.
func VerifyReceipt(text []byte, t Trust) (Verified, error) {
	r, err := ParseReceipt(text)
	if err != nil {
		return Verified{}, err
	}
	var v receiptVerifier
	for _, p := range r.Entries {
		if err := v.addProven(p); err != nil {
			return Verified{}, fmt.Errorf("entry %d of the ledger: %w", p.Seq, err)
		}
	}
	if v.found.Intent.Seq == 0 {
		return Verified{}, errors.New("the receipt has no intent")
	}
	if v.found.Plan.Digest != "" && v.found.Outcome.Plan != v.found.Plan.Digest {
		return Verified{}, errors.New("the receipt has a plan that none of its outcomes names")
	}
	if v.found.Signed, err = v.keys.extendTrust(t).Open(r.Checkpoint); err != nil {
		var bad *Bad
		if errors.As(err, &bad) {
			bad.Checkpoint = "its checkpoint"
		}
		return Verified{}, err
	}
	for _, p := range r.Entries {
		if err := v.found.Includes(p.Seq, Leaf(p.Line), p.Proof); err != nil {
			return Verified{}, err
		}
	}
	last, any := v.keys.Last()
	if any && !slices.Contains(v.found.Keys, last) {
		return Verified{}, newUnsignedBad("the log's key is %s, but another key signed the checkpoint", last)
	}
	return v.found, nil
}

// receiptVerifier collects the entries of a receipt.
type receiptVerifier struct {
	pairs Pairs
	plans Plans
	keys  Keys
	found Verified
	last  Head
}

func (v *receiptVerifier) addProven(p Proven) error {
	e, err := v.checkProven(p)
	if err != nil {
		return err
	}
	return v.keepEntry(e)
}

// checkProven parses an entry and checks it against those before it.
func (v *receiptVerifier) checkProven(p Proven) (Entry, error) {
	claimed, raw, err := parseLine(p.Line)
	if err != nil {
		return Entry{}, err
	}
	e, err := parseEntry(raw)
	if err != nil {
		return Entry{}, err
	}
	e.Hash = claimed
	switch {
	case e.Seq != p.Seq || e.Seq <= v.last.Seq:
		return Entry{}, errors.New("the entry's number is not the expected one")
	case e.Seq == v.last.Seq+1 && v.last.Seq > 0 && hashEntry(v.last.Hash, raw) != claimed:
		return Entry{}, errors.New("the entry's hash does not match the previous entry")
	}
	v.last = Head{Seq: e.Seq, Hash: e.Hash}
	return e, errors.Join(v.pairs.Add(e), v.plans.Add(e), v.keys.Add(e))
}

func (v *receiptVerifier) keepEntry(e Entry) error {
	twice := errors.New("a receipt must have one intent and at most one plan")
	switch e.Kind {
	case KindIntent:
		if v.found.Intent.Seq != 0 {
			return twice
		}
		v.found.Intent = e
	case KindOutcome:
		v.found.Outcome = e
	case KindPlan:
		if v.found.Plan.Digest != "" {
			return twice
		}
		v.found.Plan, _ = ParsePlan(e.Data) // already checked by plans.Add
	case KindKey:
	default:
		return fmt.Errorf("an entry of kind %s cannot be part of a receipt", e.Kind)
	}
	return nil
}
