package apitype

import (
	"fmt"
	"strings"

	"bailey"
)

// Possible reports whether id has the form of a receipt id, so that the ledger is not searched for other text.
func Possible(id bailey.ReceiptID) bool {
	return len(id) == len("r-")+26 && strings.HasPrefix(string(id), "r-")
}

func NoReceipt(id bailey.ReceiptID) error {
	return &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no receipt %q", id), Hint: "bailey receipts list shows them"}
}
