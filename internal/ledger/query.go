package ledger

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

// Open is the status of a receipt that has no outcome yet. No outcome says so.
const Open bailey.Status = "open"

// Statuses are all that a receipt can have.
func Statuses() []bailey.Status {
	return []bailey.Status{bailey.OK, bailey.Refused, bailey.Pending, bailey.Failed, bailey.Interrupted, bailey.Killed, Open}
}

// Filter says which receipts are wanted. Zero fields want all, and several hold together.
type Filter struct {
	ID         bailey.ReceiptID    `json:"id,omitempty"`
	Session    bailey.SessionID    `json:"session,omitempty"`
	Capability bailey.CapabilityID `json:"capability,omitempty"`
	Agent      string              `json:"agent,omitempty"`
	Status     bailey.Status       `json:"status,omitempty"`
	Since      time.Time           `json:"since,omitzero"`   // started then or later, to the microsecond
	Until      time.Time           `json:"until,omitzero"`   // started before
	Before     uint64              `json:"before,omitempty"` // the intent's entry has a lower number
	After      uint64              `json:"after,omitempty"`  // the intent's entry has a higher number
	Size       uint64              `json:"size,omitempty"`   // of the ledger as it was with so many entries: what ended later is open. 0 is as it is
	Oldest     bool                `json:"oldest,omitempty"` // oldest first, by number; the newest otherwise
	Limit      int                 `json:"limit,omitempty"`  // at most MaxLimit; 0 is 50
}

// What one answer holds at most, and with it the memory that it needs.
const (
	MaxLimit = 1000
	maxPage  = 4 << 20 // bytes of lines, beyond the first receipt
)

// Record is a receipt and where its two halves stand in the ledger.
type Record struct {
	bailey.Receipt
	Hash        audit.Hash `json:"hash"`                 // of the intent's entry
	OutcomeSeq  uint64     `json:"outcomeSeq,omitempty"` // 0 while there is none
	OutcomeHash audit.Hash `json:"outcomeHash,omitzero"` // of the outcome's entry
}

// Page is an answer. Who wants more asks again, Before or After the number of its last record.
type Page struct {
	Records []Record   `json:"records"`
	More    bool       `json:"more"`
	Origin  string     `json:"origin"` // of the ledger, as its genesis has it
	Head    audit.Head `json:"head"`   // of the ledger when it was asked
}

// check says why nobody can want such receipts, and settles what was left open.
func (f *Filter) check() error {
	if f.Status != "" && !slices.Contains(Statuses(), f.Status) {
		var known []string
		for _, s := range Statuses() {
			known = append(known, string(s))
		}
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("no receipt has the status %q", f.Status), Hint: "there are " + strings.Join(known, ", ")}
	}
	if f.Limit <= 0 {
		f.Limit = 50
	}
	f.Limit = min(f.Limit, MaxLimit)
	return nil
}

// matches tells whether the filter wants a record. It is what both the index and the scan answer to.
func (f *Filter) matches(r Record) bool {
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

// mayWant looks at what an intent alone says, so that what nobody wants is not decoded.
func (f *Filter) mayWant(e audit.Entry) bool {
	return (f.ID == "" || f.ID == e.Receipt) && e.Seq > f.After && (f.Before == 0 || e.Seq < f.Before)
}

// Status is the outcome's, [Open] while there is none.
func (r Record) Status() bailey.Status {
	if r.Outcome == nil {
		return Open
	}
	return r.Outcome.Status
}

// order compares two records' numbers as the filter wants them listed.
func (f *Filter) order(a, b uint64) int {
	if f.Oldest {
		return cmp.Compare(a, b)
	}
	return cmp.Compare(b, a)
}

// record decodes the two halves. An outcome beyond size is not there yet.
func record(intent, outcome audit.Entry) (r Record, err error) {
	r.Seq, r.Hash = intent.Seq, intent.Hash
	if err := json.Unmarshal(intent.Data, &r.Intent); err != nil {
		return r, fmt.Errorf("entry %d of the ledger is no intent of this version: %w", r.Seq, err)
	}
	if outcome.Seq == 0 {
		return r, nil
	}
	r.OutcomeSeq, r.OutcomeHash = outcome.Seq, outcome.Hash
	if err := json.Unmarshal(outcome.Data, &r.Outcome); err != nil {
		return r, fmt.Errorf("the outcome of entry %d is none of this version: %w", r.Seq, err)
	}
	return r, nil
}
