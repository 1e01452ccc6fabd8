package cli

import (
	"fmt"
	"os"

	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
	"bailey/internal/terminal"
)

// brokerChange describes a change of the broker, for the difference that init shows.
func brokerChange(old, now *settings.Broker) string {
	words := terminal.Diff(brokerLine(old), brokerLine(now))
	if now != nil && now.UID == os.Geteuid() {
		words += "  ! " + apitype.SameUser + "\n"
	}
	return words
}

func brokerLine(b *settings.Broker) string {
	if b == nil {
		return ""
	}
	line := fmt.Sprintf("credentials come from the broker of uid %d at %s\n", b.UID, b.Socket)
	if b.CheckpointKey {
		line += fmt.Sprintf("the ledger's checkpoints are signed by a key of the broker of uid %d at %s\n", b.UID, b.Socket)
	}
	return line
}
