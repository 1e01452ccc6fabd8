package ledger

import (
	"regexp"
	"sync"
)

// lazyRegexp compiles a pattern when it is first used. Otherwise every start of the program would pay for it.
func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
