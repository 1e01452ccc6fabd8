package apitype

import (
	"bailey/internal/receipts"
)

// ForgetCommand is the verb of the operator command `receipts forget`.
const ForgetCommand = "forget"

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
