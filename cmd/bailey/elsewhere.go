package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"bailey/internal/policy"
)

// Where the platform has no cage (jail.Bare; never on Linux), every start of a door or a gateway says so, status
// and doctor too, and a rule of its own has to allow what runs without.

const disabled = "SANDBOX DISABLED: this platform has no cage; calls are held by policy alone"

// warn runs before a verb does.
func (a *app) warn(*cobra.Command, []string) {
	if a.bare {
		fmt.Fprintln(a.stderr, "bailey: "+disabled)
	}
}

// rules are the policy of a home: on a platform without a cage with the file that names this.
func rules(bare bool) []policy.Source {
	if bare {
		return []policy.Source{policy.Starter(), policy.Agents(), policy.Elsewhere()}
	}
	return []policy.Source{policy.Starter(), policy.Agents()}
}

// bareCage is what a call gets where there is no cage.
func bareCage() *cageStatus {
	return &cageStatus{Kind: "none", Layers: []string{}, Problems: []string{disabled}}
}

// bareFinding is the doctor's word on it. Calls do run, so it is no reason to fail.
func bareFinding() finding {
	return finding{"cage", warning, disabled, "use Linux, or a Linux virtual machine, for what reads other people's files"}
}
