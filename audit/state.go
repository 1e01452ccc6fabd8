package audit

import (
	"encoding/json"
	"errors"
	"fmt"
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
		return Started, errors.New("every segment but the first begins with an entry of kind " + KindSegment +
			", and none stands elsewhere")
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
	start, err := ParseStart(e.Data)
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
		return fmt.Errorf("the key is one of %s, and this is %s", k.Name(), s.Name)
	}
	return nil
}
