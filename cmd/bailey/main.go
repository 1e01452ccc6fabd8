// Command bailey is the gate between AI agents and the tools they use: the command line, and the gateway process that
// it starts.
package main

import (
	"bailey/internal/cli"
	"bailey/internal/cli/direct"
	"bailey/internal/jail"
)

func main() { cli.Main(direct.Work{}, jail.Bare) }
