package apitype

import (
	"errors"
	"io/fs"

	"bailey"
	"bailey/audit"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

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
	keyStays    = "the log's key is a file of the home still, and signs no checkpoint: bailey audit key --rotate"
)
