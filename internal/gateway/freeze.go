package gateway

import (
	"fmt"
	"sync"

	"bailey"
)

// Of a file that a call names a person can be asked about maxFrozen bytes, and of all files of the calls that wait
// maxFrozenAll: they lie in memory.
const (
	maxFrozen    = 10 << 20
	maxFrozenAll = 256 << 20
	minFrozen    = 4 << 10 // counts for each, also for an empty one: it costs a descriptor and a page
)

// freezer counts the bytes of files that are kept for calls which wait. Its zero value is ready.
type freezer struct {
	mu   sync.Mutex
	held int64 // guarded by mu
}

func (z *freezer) take(n int64) (release func(), err error) {
	n = max(n, minFrozen)
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.held+n > maxFrozenAll {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("calls that wait for a person hold %d bytes of files, and there is no room for %d more", z.held, n),
			Hint: "call again when some of them are answered"}
	}
	z.held += n
	return sync.OnceFunc(func() {
		z.mu.Lock()
		z.held -= n
		z.mu.Unlock()
	}), nil
}
