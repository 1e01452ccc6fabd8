package localapi

import (
	"fmt"
	"io"
	"time"

	"bailey/internal/terminal"
)

// Tell writes that a call waits for an approval, and how to approve it.
func (n Notice) Tell(w io.Writer) {
	id := terminal.Shown(string(n.Approval))
	fmt.Fprintf(w, "%sbailey: waits for approval %s: bailey approve %s (digest %.12s…) until %s\n", terminal.Bell(), id, id, terminal.Shown(n.Digest), n.Expires.Local().Format(time.TimeOnly))
}
