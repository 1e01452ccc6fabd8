package guestclient

import (
	"io"
	"sync"

	"bailey"
)

// budget bounds what several writers write together.
type budget struct {
	mu   sync.Mutex
	left int64
	most int64
	name string
}

func newBudget(most int64, name string) *budget { return &budget{left: most, most: most, name: name} }

// limitWriter returns a writer to w, or one that drops all if w is nil.
func (b *budget) limitWriter(w io.Writer) io.Writer {
	if w == nil {
		w = io.Discard
	}
	return &bounded{b, w}
}

type bounded struct {
	budget *budget
	w      io.Writer
}

func (b *bounded) Write(p []byte) (int, error) {
	b.budget.mu.Lock()
	n := min(int64(len(p)), b.budget.left)
	b.budget.left -= n
	b.budget.mu.Unlock()
	written, err := b.w.Write(p[:n])
	if err == nil && n < int64(len(p)) {
		err = bailey.Invalid.Errorf("Ask for less, or raise the limit.", "%s has more than %d bytes", b.budget.name, b.budget.most)
	}
	return written, err
}
