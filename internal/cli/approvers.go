package cli

import (
	"fmt"
	"strings"

	"bailey/internal/settings"
	"bailey/internal/terminal"
)

// approverChange describes the change of the approvers for the diff that init shows.
func approverChange(old, now []settings.Approver) string {
	words := terminal.Diff(approverLines(old), approverLines(now))
	if len(old) > 0 && len(now) == 0 {
		words += "  ! an answer needs no signature any more\n"
	}
	return words
}

func approverLines(approvers []settings.Approver) string {
	var b strings.Builder
	for _, a := range approvers {
		fmt.Fprintf(&b, "approver %s", a.Line())
		if len(a.Roles) > 0 {
			fmt.Fprintf(&b, " with %s", strings.Join(a.Roles, ", "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
