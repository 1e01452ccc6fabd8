package apitype

import (
	"bailey"
	"bailey/audit"
)

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
