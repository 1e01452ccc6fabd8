package apitype

import (
	"fmt"
	"strings"
)

// List joins names, at most five of them.
func List(names []string) string {
	const shown = 5
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return strings.Join(names, ", ")
}
