// Command bailey-server is the control plane for teams: people, organisations, and the gateways and hosts that belong to
// them. docs/team.md describes the setup.
package main

import "bailey/internal/control/process"

func main() { process.Main() }
