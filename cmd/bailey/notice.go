package main

import (
	"fmt"
	"os"
	"time"

	"bailey/internal/wire"
)

// waits says of a call that waits for a person who can let it run, and how. A terminal's bell rings unless NO_BELL is set.
func (a *app) waits(n wire.Notice) {
	bell := ""
	if os.Getenv("NO_BELL") == "" && isTerminal(os.Stderr) {
		bell = "\a"
	}
	id := shown(string(n.Approval))
	fmt.Fprintf(a.stderr, "%sbailey: waits for approval %s: bailey approve %s (digest %.12s…) until %s\n", bell, id, id, shown(n.Digest), n.Expires.Local().Format(time.TimeOnly))
}
