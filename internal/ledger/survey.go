package ledger

import (
	"encoding/json"

	"bailey"
	"bailey/audit"
)

// survey collects the result of a first reading.
type survey struct {
	dir    string
	origin string
	head   audit.Head
	open   map[bailey.ReceiptID]opened
	late   map[uint64]line // by intent: outcomes that come later than a queue waits; zero without an outcome
}

type opened struct {
	seq uint64
	end int64
}

// window is for how many bytes of the ledger an intent waits in memory for its outcome.
const window = 4 << 20

func (s *survey) add(p placed) error {
	s.head = audit.Head{Seq: p.Seq, Hash: p.Hash}
	switch p.Kind {
	case audit.KindGenesis:
		var g audit.Genesis
		err := json.Unmarshal(p.Data, &g)
		s.origin = g.Origin
		return err
	case audit.KindIntent:
		if _, twice := s.open[p.Receipt]; twice {
			return s.unpaired(p, "receipt "+string(p.Receipt)+" has an intent already")
		}
		s.open[p.Receipt] = opened{p.Seq, p.end()}
	case audit.KindOutcome:
		o, ok := s.open[p.Receipt]
		if !ok {
			return s.unpaired(p, "receipt "+string(p.Receipt)+" is not open")
		}
		delete(s.open, p.Receipt)
		if p.end()-o.end > window {
			s.late[o.seq] = p.at
		}
	}
	return nil
}

func (s *survey) unpaired(p placed, why string) error {
	return damaged(s.dir, &audit.Bad{Segment: p.at.segment, Entry: p.Seq, Offset: p.at.offset, Reason: audit.Pairing, Detail: why})
}

func (s *survey) finish() {
	for _, o := range s.open {
		s.late[o.seq] = line{}
	}
	s.open = nil
}
