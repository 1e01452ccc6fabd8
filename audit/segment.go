package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"bailey"
)

// MaxCarried bounds the open receipts that a segment may begin with: with more of them a writer does not
// begin one. So many names fit a line.
const MaxCarried = 512

// Start is the data of a "segment" entry, the first of every segment but a ledger's first: what the segments
// before it add up to. A writer that trusts its own disk goes on from there and reads nothing before it.
type Start struct {
	Size uint64             `json:"size"` // how many entries there are before it
	Head Hash               `json:"head"` // of the last of them
	Root Hash               `json:"root"` // of the tree over them
	Edge []Hash             `json:"edge"` // of that tree: see [Tree.Edge]
	Open []bailey.ReceiptID `json:"open"` // receipts without outcome, in the order of their intents
}

// NewStart returns what a segment begins with after head.
func NewStart(head Head, tree Tree, open []bailey.ReceiptID) (Start, error) {
	switch {
	case head.Seq == 0 || head.Seq != tree.Size():
		return Start{}, fmt.Errorf("a segment begins after the tree's %d entries, not after entry %d", tree.Size(), head.Seq)
	case len(open) > MaxCarried:
		return Start{}, fmt.Errorf("no segment begins with %d receipts open, more than %d", len(open), MaxCarried)
	}
	return Start{head.Seq, head.Hash, tree.Root(), tree.Edge(), append([]bailey.ReceiptID{}, open...)}, nil
}

// ParseStart reads the data of a segment entry in its one encoding, and checks the root against the edge.
func ParseStart(data []byte) (Start, error) {
	var s Start
	if json.Unmarshal(data, &s) != nil {
		return Start{}, errors.New("a segment entry holds size, head, root, edge and the open receipts")
	}
	if same, err := json.Marshal(s); err != nil || !bytes.Equal(same, data) || s.Open == nil {
		return Start{}, errors.New("the segment entry is not in its one encoding")
	}
	tree, err := NewTree(s.Size, s.Edge)
	switch {
	case err != nil:
		return Start{}, err
	case s.Size == 0 || tree.Root() != s.Root:
		return Start{}, errors.New("the edge does not lead to the root that the segment entry holds")
	case len(s.Open) > MaxCarried:
		return Start{}, fmt.Errorf("the segment begins with more than %d receipts open", MaxCarried)
	}
	seen := make(map[bailey.ReceiptID]bool)
	for _, id := range s.Open {
		if !validName(string(id), 64) || seen[id] {
			return Start{}, fmt.Errorf("%.80q cannot be open once", id)
		}
		seen[id] = true
	}
	return s, nil
}

// ReadStart reads a segment's first line, newline included, by itself: what it carries, and that its hash
// and number follow from that. Whether what it carries is so, the segments before it tell.
func ReadStart(line []byte) (Start, error) {
	claimed, raw, err := parseLine(line)
	if err != nil {
		return Start{}, err
	}
	e, err := parseEntry(raw)
	if err != nil {
		return Start{}, err
	}
	if e.Kind != KindSegment {
		return Start{}, fmt.Errorf("a segment begins with an entry of kind %s, not %s", KindSegment, e.Kind)
	}
	s, err := ParseStart(e.Data)
	if err != nil {
		return Start{}, err
	}
	if e.Seq != s.Size+1 || next(s.Head, raw) != claimed {
		return Start{}, errors.New("the segment's first entry does not follow from what it carries")
	}
	return s, nil
}

// After returns where the segments before this one end.
func (s Start) After() Head { return Head{Seq: s.Size, Hash: s.Head} }

// Tree returns the tree over the entries before.
func (s Start) Tree() (Tree, error) { return NewTree(s.Size, s.Edge) }

// State returns the state that a writer goes on from which trusts what stands before: the names of plans and keys there
// are not in it, and what is said of them later passes.
func (s Start) State() (State, error) {
	if s.Size == 0 {
		return State{}, nil
	}
	tree, err := s.Tree()
	state := State{Head: s.After(), Tree: tree, resumed: true}
	for i, id := range s.Open {
		if err == nil {
			err = state.Pairs.Intent(id, uint64(i)+1)
		}
	}
	return state, err
}

// follows tells whether the segments before s add up to it.
func (s Start) follows(head Head, tree *Tree, open []bailey.ReceiptID) error {
	switch {
	case s.After() != head:
		return errors.New("the segment begins after another entry than the one before it")
	case s.Root != tree.Root():
		return errors.New("the segment begins with another root than that of the entries before it")
	case !slices.Equal(s.Open, open):
		return errors.New("the segment begins with other receipts open than those before it left")
	}
	return nil
}
