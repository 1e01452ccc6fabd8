package audit

import (
	"fmt"
	"io"
	"slices"

	"bailey"
)

// Find reads a ledger's segments up to the first size entries. It returns, in ascending order, the numbers of the
// entries that belong to the portable receipt of id.
func Find(id bailey.ReceiptID, size uint64, segments ...io.Reader) ([]uint64, error) {
	plans := make(map[string]uint64)
	var list []uint64
	var intent bool
	err := eachEntry(size, segments, func(e Entry) error {
		switch {
		case e.Kind == KindKey:
			list = append(list, e.Seq)
		case e.Kind == KindPlan:
			if p, err := ParsePlan(e.Data); err == nil {
				plans[p.Digest] = e.Seq
			}
		case e.Receipt == id && (e.Kind == KindIntent || e.Kind == KindOutcome):
			intent = true
			list = append(list, e.Seq)
			if at := plans[e.Plan]; at != 0 {
				list = append(list, at)
			}
		}
		return nil
	})
	if err == nil && !intent {
		err = bailey.NotFound.Errorf("a receipt is portable once a checkpoint signs it: sign another, or look at the receipt's id",
			"receipt %s is not among the first %d entries", id, size)
	}
	slices.Sort(list)
	return list, err
}

// Prove reads a ledger's segments and returns the portable receipt of the entries numbered seqs, which must be
// ascending. signed is a signed checkpoint of that ledger; Prove does not verify its signature.
func Prove(signed []byte, seqs []uint64, segments ...io.Reader) (Receipt, error) {
	c, err := ReadCheckpoint(signed)
	if err != nil {
		return Receipt{}, err
	}
	p, err := NewProver(c.Size)
	if err != nil {
		return Receipt{}, err
	}
	for _, seq := range seqs {
		if err := p.WantInclusion(seq); err != nil {
			return Receipt{}, err
		}
	}
	r := Receipt{Checkpoint: signed}
	err = eachEntry(c.Size, segments, func(e Entry) error {
		p.Add(e.Leaf)
		if !slices.Contains(seqs, e.Seq) {
			return nil
		}
		line, _, err := Append(e.Prev, e) // its one encoding
		r.Entries = append(r.Entries, Proven{Seq: e.Seq, Line: line})
		return err
	})
	if err != nil {
		return Receipt{}, err
	}
	if root, err := p.Root(); err != nil || root != c.Root {
		return Receipt{}, &Bad{Entry: c.Size, Reason: Forked,
			Detail: fmt.Sprintf("the first %d entries are not those that were signed", c.Size)}
	}
	for i, e := range r.Entries {
		if r.Entries[i].Proof, err = p.Inclusion(e.Seq); err != nil {
			return Receipt{}, err
		}
	}
	return r, nil
}

// eachEntry calls see for each of the first size entries.
func eachEntry(size uint64, segments []io.Reader, see func(Entry) error) error {
	var head Head
	for i, r := range segments {
		s := newScanner(r, i+1, head)
		for head.Seq < size {
			e, err := s.nextEntry()
			if err == io.EOF {
				break
			}
			if err == nil {
				err = see(e)
			}
			if err != nil {
				return err
			}
			head = s.head
		}
	}
	return nil
}
