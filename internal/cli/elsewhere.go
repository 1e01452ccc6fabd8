package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"bailey/internal/localapi/apitype"
)

// Warn prints the warning before a command runs.
func (a *App) Warn(*cobra.Command, []string) {
	if a.Bare {
		fmt.Fprintln(a.Stderr, "bailey: "+apitype.Disabled)
	}
}
