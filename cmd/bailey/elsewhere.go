package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"bailey/internal/policy"
)

// If the platform has no cage (jail.Bare; never on Linux), every start of an interface or a gateway prints a warning.
// status and doctor report it too, and a separate rule must permit calls that run without a cage.

const disabled = "SANDBOX DISABLED: this platform has no cage; calls are held by policy alone"

// warn prints the warning before a command runs.
func (a *app) warn(*cobra.Command, []string) {
	if a.bare {
		fmt.Fprintln(a.stderr, "bailey: "+disabled)
	}
}

// rules returns the built-in policy of a home. On a platform without a cage it includes the rules for that case.
func rules(bare bool) []policy.Source {
	if bare {
		return []policy.Source{policy.Starter(), policy.Agents(), policy.Elsewhere()}
	}
	return []policy.Source{policy.Starter(), policy.Agents()}
}

// bareCage returns the cage status on a platform without a cage.
func bareCage() *cageStatus {
	return &cageStatus{Kind: "none", Layers: []string{}, Problems: []string{disabled}}
}

// bareFinding returns the finding of the doctor. It is only a warning, because calls do run.
func bareFinding() finding {
	return finding{"cage", warning, disabled, "use Linux, or a Linux virtual machine, for what reads other people's files"}
}
