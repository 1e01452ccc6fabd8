package packstore

import (
	"fmt"
	"strings"

	"bailey/internal/terminal"
	"bailey/pack"
)

// ChangeLines prints changes in full: a person must not confirm text without seeing it.
func ChangeLines(changes []pack.Change) string {
	var b strings.Builder
	for _, c := range changes {
		terminal.WriteLine(&b, '+', fmt.Sprintf("%s %s: %s", c.Capability, c.What, c.Text))
	}
	return b.String()
}
