package pack

import (
	"regexp"
	"sync"
)

// lazy compiles a pattern when it is first used: every start of the program would pay for it otherwise.
func lazy(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
