package apitype

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// ReceiptRow is a receipt in a list.
type ReceiptRow struct {
	ID         bailey.ReceiptID    `json:"id"`
	Seq        uint64              `json:"seq"`
	Capability bailey.CapabilityID `json:"capability"`
	Outcome    bailey.Status       `json:"outcome"` // "open" if it has not ended
	Decision   string              `json:"decision"`
	Rule       string              `json:"rule"`
	Layers     []string            `json:"layers"`
	Executed   *bool               `json:"executed"` // null if it is not known
	Agent      string              `json:"agent"`
	Session    bailey.SessionID    `json:"session"`
	Door       string              `json:"door"`
	Reason     string              `json:"reason,omitempty"`
	DryRun     bool                `json:"dryRun"`
	Within     bailey.ReceiptID    `json:"within,omitempty"` // the workflow of which it is a step
	Step       string              `json:"step,omitempty"`
	StartedAt  time.Time           `json:"startedAt"`
}

// ReceiptList is one page of receipts.
type ReceiptList struct {
	Receipts []ReceiptRow `json:"receipts"`
	Next     uint64       `json:"next,omitempty"` // set if there are more: --before NEXT
}

// NewReceiptList returns the JSON form of a page. Next is the number of its last receipt if there are more, else 0.
func NewReceiptList(p receipts.Page) ReceiptList {
	out := ReceiptList{Receipts: []ReceiptRow{}}
	for _, r := range p.Records {
		out.Receipts = append(out.Receipts, newReceiptRow(r))
	}
	if p.More {
		out.Next = p.Records[len(p.Records)-1].Seq
	}
	return out
}

func newReceiptRow(r receipts.Record) ReceiptRow {
	row := ReceiptRow{
		ID: r.Intent.Receipt, Seq: r.Seq, Capability: r.Intent.Capability, Outcome: r.Status(), Layers: []string{},
		Agent: r.Intent.Agent, Session: r.Intent.Session, Door: r.Intent.Door, DryRun: r.Intent.DryRun,
		Within: r.Intent.Within, Step: r.Intent.Step,
		StartedAt: r.Intent.StartedAt,
	}
	o := r.Outcome
	if o == nil {
		return row
	}
	row.Decision, row.Executed, row.Reason = o.Decision, o.Executed, o.Reason
	if len(o.Rules) > 0 {
		row.Rule = string(o.Rules[0].ID)
	}
	if o.Cage != nil && o.Executed != nil && *o.Executed {
		row.Layers = o.Cage.Layers
	}
	return row
}

// Status returns the outcome for a list. It marks dry runs, so that they are not mistaken for executed calls.
func (r ReceiptRow) Status() string { return string(r.Outcome) + DryRun(r.DryRun) }

// DryRun returns the suffix that marks a dry run, or "" if dry is false.
func DryRun(dry bool) string { return map[bool]string{true: " (dry run)"}[dry] }

// Below names the workflow of which the call is a step.
func (r ReceiptRow) Below() string {
	if r.Within == "" {
		return ""
	}
	return fmt.Sprintf(" (step %s of %s)", r.Step, r.Within)
}

// Why returns the last column of a list: the rule if the call succeeded, else the reason.
func (r ReceiptRow) Why() string {
	if r.Outcome == bailey.OK {
		return r.Rule
	}
	return cmp.Or(r.Reason, r.Rule)
}

// ShownReceipt is a receipt with its bodies, which are stored outside the ledger.
type ShownReceipt struct {
	receipts.Record
	Bodies []ShownBody `json:"bodies,omitempty"`
}

// ShownBody is one part, as text or bytes, or the reason why it is not available.
type ShownBody struct {
	Part   string `json:"part"`
	Length int    `json:"length"`
	Text   string `json:"text,omitempty"`
	Bytes  []byte `json:"bytes,omitempty"` // if it is not UTF-8
	Why    string `json:"why,omitempty"`
}

// Possible reports whether id has the form of a receipt id, so that the ledger is not searched for other text.
func Possible(id bailey.ReceiptID) bool {
	return len(id) == len("r-")+26 && strings.HasPrefix(string(id), "r-")
}

// NoReceipt returns the error, of the kind NotFound, for a receipt that does not exist.
func NoReceipt(id bailey.ReceiptID) error {
	return bailey.NotFound.Errorf("run bailey receipts list to show them", "no receipt %q", id)
}

// KeptNote returns a checkpoint of the home, or nil if the file does not exist.
func KeptNote(file string) ([]byte, error) {
	signed, err := safefile.ReadNamed(file, audit.MaxNote)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, Unread(file, err)
	}
	return signed, nil
}

// Unread wraps err, the reason why the named file cannot be read, in an error of the kind Invalid.
func Unread(name string, err error) error {
	return bailey.Invalid.Wrap(err, "the file "+terminal.Shown(name)+" cannot be read",
		"name a file that bailey audit wrote, or - for stdin")
}

// CheckpointRequest asks for a checkpoint.
type CheckpointRequest struct {
	// Since is the number of entries that a witness saw; 0 if it saw none. If it is set, the answer has the request for
	// this witness.
	Since *uint64 `json:"since,omitempty"`
}

// CosignedCheckpoint is the newest checkpoint with signatures of witnesses.
type CosignedCheckpoint struct {
	Signed string `json:"signed"` // the signed note
}

// Replies of the gateway to the audit commands.
type (
	CheckpointReply struct {
		OK      bool             `json:"ok"`
		Signed  string           `json:"signed"` // the signed note
		Says    audit.Checkpoint `json:"checkpoint"`
		Key     audit.Key        `json:"key"`
		Request string           `json:"request,omitempty"` // request for a witness
	}
	KeyReply struct {
		OK      bool       `json:"ok"`
		Key     audit.Key  `json:"key"`
		Old     *audit.Key `json:"old,omitempty"`
		Changed bool       `json:"changed"`
	}
	ProofReply struct {
		OK      bool             `json:"ok"`
		ID      bailey.ReceiptID `json:"receiptId"`
		Receipt string           `json:"receipt"`
	}
)

// RotateCommand is the operator command of `audit key --rotate`, and the ledger event that records the operator.
const RotateCommand = "audit.rotate"

// The location of the log's key, if the settings place it at the broker.
const (
	KeyAtBroker = "broker"
	KeyAtHome   = "home" // not moved yet
	keyStays    = "the log's key is still a file of the home, and signs no checkpoint: bailey audit key --rotate"
)
