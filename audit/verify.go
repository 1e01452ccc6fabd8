package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Report is what verification found. Everything but FirstBad is about the entries before it.
type Report struct {
	OK       bool   `json:"ok"`
	Entries  uint64 `json:"entries"`
	Segments int    `json:"segments"`
	Origin   string `json:"origin,omitempty"`
	Host     string `json:"host,omitempty"`
	Head     Hash   `json:"head"` // of the last good entry
	Intents  int    `json:"intents"`
	Outcomes int    `json:"outcomes"`
	Open     int    `json:"open"` // intents without outcome: not an error
	// Plans counts those that outcomes name by their digest.
	Plans PlanCount `json:"plans"`
	// Backward counts entries whose wall clock is behind that of the entry before: not an error.
	Backward int  `json:"backward,omitempty"`
	FirstBad *Bad `json:"firstBad,omitempty"`
}

// PlanCount says of how many plans the text gave the digest again, and of how many it cannot be told
// since the text is withheld.
type PlanCount struct {
	Recomputed int `json:"recomputed"`
	Redacted   int `json:"redacted"`
}

// Verify reads a ledger's segments in order and reports on them. The error is what reading returned;
// that a ledger is not in order stands in the report. Without an entry a ledger is not in order.
func Verify(segments ...io.Reader) (Report, error) {
	v := verifier{report: Report{Segments: len(segments)}}
	for i, r := range segments {
		err := v.segment(r, i+1)
		var bad *Bad
		if errors.As(err, &bad) {
			if bad.Reason == Torn && i+1 < len(segments) {
				bad.Reason = Frame // what follows in the next segment was written after it
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
	v.report.Open = v.pairs.Len()
	v.report.Plans.Recomputed, v.report.Plans.Redacted = v.plans.Count()
	v.report.OK = v.report.FirstBad == nil
	return v.report, nil
}

type verifier struct {
	report Report
	head   Head
	pairs  Pairs
	plans  Plans
	last   time.Time
}

func (v *verifier) segment(r io.Reader, number int) error {
	s := newScanner(r, number, v.head)
	for {
		at := s.off
		e, err := s.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := v.pairs.Add(e); err != nil {
			return &Bad{Segment: number, Entry: e.Seq, Offset: at, Reason: Pairing, Detail: err.Error()}
		}
		if err := v.plans.Add(e); err != nil {
			return &Bad{Segment: number, Entry: e.Seq, Offset: at, Reason: Planned, Detail: err.Error()}
		}
		v.count(e)
		v.head = s.head
	}
}

func (v *verifier) count(e Entry) {
	r := &v.report
	r.Entries, r.Head = r.Entries+1, e.Hash
	switch e.Kind {
	case KindGenesis:
		var g Genesis
		if json.Unmarshal(e.Data, &g) == nil { // it was checked by the scanner
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
