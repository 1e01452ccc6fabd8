//go:build linux

package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"bailey"

	"golang.org/x/sys/unix"
)

// stuck blocks its first write at the gate and then fails it.
type stuck struct {
	Disk
	once        sync.Once
	first, gate chan struct{}
	err         error
}

func (s *stuck) WriteAt(p []byte, off int64) (n int, err error) {
	s.once.Do(func() {
		close(s.first)
		<-s.gate
		n, err = s.Disk.WriteAt(p[:len(p)/2], off)
		err = errors.Join(err, s.err)
	})
	if err != nil {
		return n, err
	}
	return s.Disk.WriteAt(p, off)
}

// TestBehindAFailedGroup checks that entries that were chained after a group that fails are chained again and become
// durable. This must include their plans and receipts that the failed group had opened too.
func TestBehindAFailedGroup(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	seal, err := l.Open(context.Background(), intent())
	do(t, err)
	s := &stuck{Disk: l.writer.disk, first: make(chan struct{}), gate: make(chan struct{}), err: unix.ENOSPC}
	l.writer.disk = s // the writer is idle
	cage := func(n int) *bailey.Cage {
		text := fmt.Sprintf("plan %d\n", n)
		return &bailey.Cage{PlanDigest: digestOf(text), Plan: text}
	}
	failed := make(chan error, 1)
	refusedOnce := intent()
	go func() {
		_, err := l.Open(context.Background(), refusedOnce)
		failed <- err
	}()
	<-s.first
	const callers = 20
	errs := make(chan error, callers+1)
	for n := range callers {
		go func() { errs <- l.NoteCaged(context.Background(), "behind", nil, cage(n%3)) }()
	}
	go func() { errs <- seal(bailey.Outcome{Status: bailey.OK, Cage: cage(0)}) }()
	for blocked() < callers+2 {
		time.Sleep(time.Millisecond)
	}
	close(s.gate)
	unavailableWith(t, <-failed, unix.ENOSPC)
	for range callers + 1 {
		do(t, <-errs)
	}
	// the first attempt left nothing, so this is no duplicate intent
	again, err := l.Open(context.Background(), refusedOnce)
	do(t, err)
	do(t, again(bailey.Outcome{Status: bailey.OK}))
	do(t, l.Close())
	if r := verified(t, dir); r.Entries != 1+2+2+callers+3 || r.Open != 0 || l.chain.tree.Root() != r.Root {
		t.Errorf("%+v", r)
	}
}
