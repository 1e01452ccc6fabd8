package apitype

import (
	"fmt"
	"strings"

	"bailey/internal/redact"
)

// RuleCounts summarizes the custom rules, or returns "" if there are none.
func RuleCounts(c redact.Config) string {
	var parts []string
	count := func(n int, one, many string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	count(len(c.Patterns), "pattern", "patterns")
	count(len(c.Allow), "allowance", "allowances")
	count(len(c.Without), "category not hidden", "categories not hidden")
	if parts == nil {
		return ""
	}
	return strings.Join(parts, ", ") + ", beside what is built in"
}
