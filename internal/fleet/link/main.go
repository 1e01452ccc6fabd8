package link

import (
	"context"
	"os"

	"bailey/internal/fleet"
	"bailey/internal/fleet/pipe"
)

// Main is the program bailey-link: it reads a target from standard input, connects, and passes frames between standard
// input and output and the connection. It ends when either side does.
func Main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pipe.Relay(os.Stdin, os.Stdout, func(t pipe.Target) (fleet.Stream, error) { return Dial(ctx, t) })
}
