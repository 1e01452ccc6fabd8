package pack

import (
	"regexp"
	"sync"
)

// lazyRegexp compiles a pattern at its first use. Otherwise every start of the program would compile all patterns.
func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
