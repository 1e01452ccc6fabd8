// Command bailey is the gate between AI agents and the tools they use: the command line, and the gateway process that
// it starts.
package main

import "bailey/internal/jail"

func main() { Main(direct{}, jail.Bare) }
