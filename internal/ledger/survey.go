package ledger

import (
	"encoding/json"

	"bailey"
	"bailey/audit"
)

// firstPass collects the result of a first reading.
type firstPass struct {
	dir    string
	origin string
	head   audit.Head
	open   map[bailey.ReceiptID]openIntent
	late   map[uint64]linePlace // by intent: outcomes that come later than a queue waits; zero without an outcome
}

type openIntent struct {
	seq uint64
	end int64
}

// window is for how many bytes of the ledger an intent waits in memory for its outcome.
const window = 4 << 20

func (s *firstPass) addEntry(p placedEntry) error {
	s.head = audit.Head{Seq: p.Seq, Hash: p.Hash}
	switch p.Kind {
	case audit.KindGenesis:
		var g audit.Genesis
		err := json.Unmarshal(p.Data, &g)
		s.origin = g.Origin
		return err
	case audit.KindIntent:
		if _, twice := s.open[p.Receipt]; twice {
			return s.pairingError(p, "receipt "+string(p.Receipt)+" has an intent already")
		}
		s.open[p.Receipt] = openIntent{p.Seq, p.endOffset()}
	case audit.KindOutcome:
		o, ok := s.open[p.Receipt]
		if !ok {
			return s.pairingError(p, "receipt "+string(p.Receipt)+" is not open")
		}
		delete(s.open, p.Receipt)
		if p.endOffset()-o.end > window {
			s.late[o.seq] = p.at
		}
	}
	return nil
}

func (s *firstPass) pairingError(p placedEntry, why string) error {
	return damagedError(s.dir,
		&audit.Bad{Segment: p.at.segment, Entry: p.Seq, Offset: p.at.offset, Reason: audit.Pairing, Detail: why})
}

func (s *firstPass) markOpenLate() {
	for _, o := range s.open {
		s.late[o.seq] = linePlace{}
	}
	s.open = nil
}
