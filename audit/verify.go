package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Report is the result of verification. All fields except FirstBad and Also describe the entries before FirstBad.
type Report struct {
	OK       bool   `json:"ok"`
	Entries  uint64 `json:"entries"`
	Segments int    `json:"segments"`
	Origin   string `json:"origin,omitempty"`
	Host     string `json:"host,omitempty"`
	Head     Hash   `json:"head"` // of the last good entry
	Root     Hash   `json:"root"` // of the tree over the good entries
	Intents  int    `json:"intents"`
	Outcomes int    `json:"outcomes"`
	Open     int    `json:"open"` // intents without an outcome; not an error
	// Plans counts the plans that the entries hold, each digest once.
	Plans PlanCount `json:"plans"`
	// Backward counts the entries whose wall clock is behind that of the previous entry. This is not an error.
	Backward int `json:"backward,omitempty"`
	// Held lists the given checkpoints that the ledger agrees with.
	Held     []Signed `json:"held,omitempty"`
	FirstBad *Bad     `json:"firstBad,omitempty"`
	// Also is the fault in the lines themselves, if FirstBad is a contradiction with a checkpoint or key.
	Also *Bad `json:"also,omitempty"`

	witnesses int // number of witnesses that were named
}

// PlanCount holds the number of plans whose text gave the digest again, and the number of plans that cannot be
// recomputed because their text is withheld.
type PlanCount struct {
	Recomputed int `json:"recomputed"`
	Redacted   int `json:"redacted"`
}

// Verify reads a ledger's segments in order and reports on them. It uses no keys or checkpoints: see [Check].
func Verify(segments ...io.Reader) (Report, error) { return Check{}.Verify(segments...) }

// Verify reads a ledger's segments in order and reports on them. The error is that of reading a segment. If the ledger
// is not in order, the report says so. A ledger without an entry is not in order.
func (c Check) Verify(segments ...io.Reader) (Report, error) {
	v := verifier{report: Report{Segments: len(segments), witnesses: len(c.Trust.Witnesses)},
		roots: c.checkpointSizes()}
	v.recordRoot()
	for i, r := range segments {
		err := v.verifySegment(r, i+1)
		var bad *Bad
		if errors.As(err, &bad) {
			if i+1 < len(segments) {
				bad.Tail = false // the next segment was written after these bytes
			}
			if bad.Reason == Torn && !bad.Tail {
				bad.Reason = Frame
			}
			v.report.FirstBad = bad
			break
		}
		if err != nil {
			return Report{}, fmt.Errorf("segment %d of the ledger: %w", i+1, err)
		}
	}
	if v.report.Entries == 0 && v.report.FirstBad == nil {
		v.report.FirstBad = &Bad{Segment: 1, Entry: 1, Reason: Empty, Detail: "there is no entry"}
	}
	v.checkAgainst(c)
	v.report.Root = v.Tree.Root()
	v.report.Open = v.Pairs.Len()
	v.report.Plans.Recomputed, v.report.Plans.Redacted = v.Plans.Count()
	v.report.OK = v.report.FirstBad == nil
	return v.report, nil
}

type verifier struct {
	State
	report Report
	last   time.Time
	roots  map[uint64]Hash // at the sizes that checkpoints name, as far as the ledger reaches
}

func (v *verifier) verifySegment(r io.Reader, number int) error {
	s := newScanner(r, number, v.Head)
	for {
		at := s.off
		e, err := s.nextEntry()
		if err == io.EOF && at == 0 && number > 1 {
			return &Bad{Segment: number, Entry: v.Head.Seq + 1, Reason: Started, Detail: "the segment holds no entry"}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if bad := v.Add(e, number > 1 && at == 0); bad != nil {
			bad.Segment, bad.Offset = number, at
			return bad
		}
		v.countEntry(e)
		v.recordRoot()
	}
}

// recordRoot records the root if a checkpoint names the current size.
func (v *verifier) recordRoot() {
	if _, ok := v.roots[v.Tree.Size()]; ok {
		v.roots[v.Tree.Size()] = v.Tree.Root()
	}
}

func (v *verifier) countEntry(e Entry) {
	r := &v.report
	r.Entries, r.Head = r.Entries+1, e.Hash
	switch e.Kind {
	case KindGenesis:
		var g Genesis
		if json.Unmarshal(e.Data, &g) == nil { // already checked by the scanner
			r.Origin, r.Host = g.Origin, g.Host
		}
	case KindIntent:
		r.Intents++
	case KindOutcome:
		r.Outcomes++
	}
	if e.Time.Before(v.last) {
		r.Backward++
	}
	v.last = e.Time
}
