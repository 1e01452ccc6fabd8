// Command bailey is the gate between AI agents and the tools they use: the command line, and the gateway process that
// it starts.
package main

import (
	"os"

	"bailey/internal/cli"
	"bailey/internal/cli/direct"
	"bailey/internal/gitsign"
	"bailey/internal/jail"
)

func main() {
	if gitsign.IsRequest(os.Args[1:]) { // in a cage, started by git
		os.Exit(gitsign.Request(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	cli.Main(direct.Work{}, jail.Bare)
}
