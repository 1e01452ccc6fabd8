package policy

import (
	"regexp"
	"sync"
)

// lazyRegexp compiles a pattern on first use; otherwise every start of the program would pay for it.
func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
