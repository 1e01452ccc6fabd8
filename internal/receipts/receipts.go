// Package receipts defines how receipts are selected and returned: the filter of a query, the parts of a receipt, and
// one page of an answer. The ledger answers such queries, the gateway passes them on, and the command line asks them.
package receipts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/audit"
)

// Open is the status of a receipt without an outcome. No outcome has this status.
const Open bailey.Status = "open"

// Statuses returns all statuses that a receipt can have.
func Statuses() []bailey.Status {
	return []bailey.Status{bailey.OK, bailey.Refused, bailey.Pending, bailey.Failed, bailey.Interrupted, bailey.Killed,
		Open}
}

// Filter selects receipts. A zero field selects all; if several fields are set, all must match.
type Filter struct {
	ID         bailey.ReceiptID    `json:"id,omitempty"`
	Session    bailey.SessionID    `json:"session,omitempty"`
	Capability bailey.CapabilityID `json:"capability,omitempty"`
	Agent      string              `json:"agent,omitempty"`
	Status     bailey.Status       `json:"status,omitempty"`
	Since      time.Time           `json:"since,omitzero"`   // started then or later, to the microsecond
	Until      time.Time           `json:"until,omitzero"`   // started before this time
	Before     uint64              `json:"before,omitempty"` // the intent's entry has a lower number
	After      uint64              `json:"after,omitempty"`  // the intent's entry has a higher number
	// the ledger when it had so many entries: receipts that ended later are open. 0 is the current one
	Size   uint64 `json:"size,omitempty"`
	Oldest bool   `json:"oldest,omitempty"` // oldest first, by number; otherwise newest first
	Limit  int    `json:"limit,omitempty"`  // at most MaxLimit; 0 is 50
}

// The parts of a call that are kept as bodies.
const (
	InputPart  = "input"
	StdoutPart = "stdout"
	StderrPart = "stderr"
)

// Limits of one answer, and so of the memory that it needs.
const (
	MaxLimit = 1000
	MaxPage  = 4 << 20 // bytes of lines, beyond the first receipt
)

// Forgotten names the bodies of a receipt that an operator has removed. It is the data of the ledger entry that records
// the removal.
type Forgotten struct {
	Receipt  bailey.ReceiptID `json:"receipt"`
	Parts    []string         `json:"parts"`
	Operator string           `json:"operator,omitempty"` // the right under which it was done
	Person   string           `json:"person,omitempty"`
}

// Record is a receipt with the places of its two halves in the ledger.
type Record struct {
	bailey.Receipt
	Hash        audit.Hash `json:"hash"`                 // of the intent's entry
	OutcomeSeq  uint64     `json:"outcomeSeq,omitempty"` // 0 without an outcome
	OutcomeHash audit.Hash `json:"outcomeHash,omitzero"` // of the outcome's entry
}

// Page is an answer. To get more, the caller asks again with Before or After set to the number of the last record.
type Page struct {
	Records []Record   `json:"records"`
	More    bool       `json:"more"`
	Origin  string     `json:"origin"` // of the ledger, from its genesis
	Head    audit.Head `json:"head"`   // of the ledger at the time of the query
}

// Check returns an error of the kind Invalid if no receipt can match, and sets the default limit.
func (f *Filter) Check() error {
	if f.Status != "" && !slices.Contains(Statuses(), f.Status) {
		var known []string
		for _, s := range Statuses() {
			known = append(known, string(s))
		}
		return bailey.Invalid.Errorf("there are "+strings.Join(known, ", "),
			"unknown status %q of receipts", f.Status)
	}
	if f.Limit <= 0 {
		f.Limit = 50
	}
	f.Limit = min(f.Limit, MaxLimit)
	return nil
}

// Matches reports whether the filter selects a record. The index and the scan must both agree with it.
func (f *Filter) Matches(r Record) bool {
	in, started := &r.Intent, r.Intent.StartedAt.UnixMicro()
	return (f.ID == "" || f.ID == in.Receipt) &&
		(f.Session == "" || f.Session == in.Session) &&
		(f.Capability == "" || f.Capability == in.Capability) &&
		(f.Agent == "" || f.Agent == in.Agent) &&
		(f.Status == "" || f.Status == r.Status()) &&
		(f.Since.IsZero() || started >= f.Since.UnixMicro()) &&
		(f.Until.IsZero() || started < f.Until.UnixMicro()) &&
		(f.Before == 0 || r.Seq < f.Before) && r.Seq > f.After
}

// MayMatch looks only at the intent, so that receipts that cannot match are not decoded.
func (f *Filter) MayMatch(e audit.Entry) bool {
	return (f.ID == "" || f.ID == e.Receipt) && e.Seq > f.After && (f.Before == 0 || e.Seq < f.Before)
}

// Status returns the outcome's status, or [Open] without an outcome.
func (r Record) Status() bailey.Status {
	if r.Outcome == nil {
		return Open
	}
	return r.Outcome.Status
}

// Order compares the numbers of two records in the order that the filter asks for.
func (f *Filter) Order(a, b uint64) int {
	if f.Oldest {
		return cmp.Compare(a, b)
	}
	return cmp.Compare(b, a)
}

// NewRecord decodes the two halves. If outcome is zero, the receipt is open.
func NewRecord(intent, outcome audit.Entry) (r Record, err error) {
	r.Seq, r.Hash = intent.Seq, intent.Hash
	if err := json.Unmarshal(intent.Data, &r.Intent); err != nil {
		return r, fmt.Errorf("entry %d of the ledger is not an intent of this version: %w", r.Seq, err)
	}
	if outcome.Seq == 0 {
		return r, nil
	}
	r.OutcomeSeq, r.OutcomeHash = outcome.Seq, outcome.Hash
	if err := json.Unmarshal(outcome.Data, &r.Outcome); err != nil {
		return r, fmt.Errorf("the outcome of entry %d is not of this version: %w", r.Seq, err)
	}
	return r, nil
}
