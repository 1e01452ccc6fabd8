package ledger

import (
	"regexp"
	"sync"
)

// lazy compiles a pattern when it is first used. Otherwise every start of the program would pay for it.
func lazy(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
