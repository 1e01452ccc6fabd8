package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"bailey"
)

// MaxCarried bounds the open receipts at the beginning of a segment. If more are open, a writer does not begin a
// segment. A line has room for so many names.
const MaxCarried = 512

// Start is the data of a "segment" entry, the first entry of every segment except a ledger's first. It describes the
// state after the segments before it. A writer that trusts its own disk continues from it and reads none of them.
type Start struct {
	Size uint64             `json:"size"` // number of entries before it
	Head Hash               `json:"head"` // of the last of them
	Root Hash               `json:"root"` // of the tree over them
	Edge []Hash             `json:"edge"` // of that tree: see [Tree.Edge]
	Open []bailey.ReceiptID `json:"open"` // receipts without an outcome, in the order of their intents
}

// parseStart parses the data of a segment entry, which must be in its one encoding, and checks the root against the
// edge.
func parseStart(data []byte) (Start, error) {
	var s Start
	if json.Unmarshal(data, &s) != nil {
		return Start{}, errors.New("a segment entry must have size, head, root, edge and the open receipts")
	}
	if same, err := json.Marshal(s); err != nil || !bytes.Equal(same, data) || s.Open == nil {
		return Start{}, errors.New("the segment entry is not in canonical form")
	}
	tree, err := NewTree(s.Size, s.Edge)
	switch {
	case err != nil:
		return Start{}, err
	case s.Size == 0 || tree.Root() != s.Root:
		return Start{}, errors.New("the edge does not give the root in the segment entry")
	case len(s.Open) > MaxCarried:
		return Start{}, fmt.Errorf("the segment begins with more than %d open receipts", MaxCarried)
	}
	seen := make(map[bailey.ReceiptID]bool)
	for _, id := range s.Open {
		if !validName(string(id), 64) || seen[id] {
			return Start{}, fmt.Errorf("receipt %.80q cannot be open", id)
		}
		seen[id] = true
	}
	return s, nil
}

// ReadStart parses a segment's first line, including the newline, by itself. It returns the Start, and checks that the
// hash and number of the line follow from it. Only the segments before it can show whether the Start is true.
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
		return Start{}, fmt.Errorf("a segment must begin with kind %s, not %s", KindSegment, e.Kind)
	}
	s, err := parseStart(e.Data)
	if err != nil {
		return Start{}, err
	}
	if e.Seq != s.Size+1 || hashEntry(s.Head, raw) != claimed {
		return Start{}, errors.New("the segment's first entry does not match the state that it holds")
	}
	return s, nil
}

// After returns the position at the end of the previous segments.
func (s Start) After() Head { return Head{Seq: s.Size, Hash: s.Head} }

// Tree returns the tree over the entries before this segment.
func (s Start) Tree() (Tree, error) { return NewTree(s.Size, s.Edge) }

// State returns the state for a writer that trusts the previous segments. It lacks the ledger's name and the plans and
// keys of those segments, so later entries that refer to them are accepted unchecked.
func (s Start) State() (State, error) {
	if s.Size == 0 {
		return State{}, nil
	}
	tree, err := s.Tree()
	state := State{Head: s.After(), Tree: tree, resumed: true}
	for i, id := range s.Open {
		if err == nil {
			err = state.Pairs.openReceipt(id, uint64(i)+1)
		}
	}
	return state, err
}

// checkFollows returns nil if s describes the state after the previous segments.
func (s Start) checkFollows(head Head, tree *Tree, open []bailey.ReceiptID) error {
	switch {
	case s.After() != head:
		return errors.New("the segment does not continue after the last entry of the previous one")
	case s.Root != tree.Root():
		return errors.New("the segment begins with another root than the entries before it have")
	case !slices.Equal(s.Open, open):
		return errors.New("the segment begins with other open receipts than the previous one left")
	}
	return nil
}
