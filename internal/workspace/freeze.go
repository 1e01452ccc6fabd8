package workspace

import (
	"fmt"
	"sync"

	"bailey"
)

// An approval can cover at most maxFrozen bytes of one file. The snapshots of all pending calls have at most
// maxFrozenAll bytes, because they are in memory.
const (
	maxFrozen    = 10 << 20
	maxFrozenAll = 256 << 20
	minFrozen    = 4 << 10 // minimum per file, even an empty one, for its descriptor and page
)

// freezer counts the bytes of file snapshots for pending calls. Its zero value is ready.
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
