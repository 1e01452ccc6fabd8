//go:build linux

package ledger

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/receipts"

	"golang.org/x/sys/unix"
)

// faulty is a disk that fails if its fields are set. Otherwise it is the disk behind it.
type faulty struct {
	Disk
	mu       sync.Mutex
	reserve  error
	write    error
	short    int // bytes that a failing write leaves; -1 hides the error of the short write
	sync     error
	truncate error
	free     func() (uint64, error)
	reserved int64 // the furthest reserved byte
	syncs    int
}

func (f *faulty) set(change func()) { f.mu.Lock(); defer f.mu.Unlock(); change() }

func (f *faulty) Reserve(off, n int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reserve != nil {
		return f.reserve
	}
	f.reserved = max(f.reserved, off+n)
	return f.Disk.Reserve(off, n)
}

func (f *faulty) Free() (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.free != nil {
		return f.free()
	}
	return f.Disk.Free()
}

func (f *faulty) WriteAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.write == nil {
		return f.Disk.WriteAt(p, off)
	}
	n, err := f.Disk.WriteAt(p[:min(f.short, len(p))], off)
	if err == nil && f.write != errSilent {
		err = f.write
	}
	return n, err
}

func (f *faulty) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncs++
	if f.sync != nil {
		return f.sync
	}
	return f.Disk.Sync()
}

func (f *faulty) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.truncate != nil {
		return f.truncate
	}
	return f.Disk.Truncate(size)
}

var errSilent = errors.New("a write that is short and says nothing")

// onFaulty opens a ledger on a faulty disk and makes one call.
func onFaulty(t *testing.T) (string, *Log, *faulty) {
	dir, disk := place(t), &faulty{}
	l := open(t, Config{Dir: dir, Wrap: func(d Disk) Disk { disk.Disk = d; return disk }})
	call(t, l)
	return dir, l, disk
}

// unavailableWith checks the kind and cause of an error, and that it has a hint.
func unavailableWith(t *testing.T, err, cause error) {
	t.Helper()
	if !errors.Is(err, bailey.Unavailable) || !errors.Is(err, cause) || bailey.HintOf(err) == "" {
		t.Errorf("%v (%s), want %v", err, bailey.HintOf(err), cause)
	}
}

// Case 5: the disk is full (ENOSPC); new calls are refused, and the outcomes of open ones are still written.
func TestNoSpaceRefusesIntents(t *testing.T) {
	dir, l, disk := onFaulty(t)
	var seals []func(bailey.Outcome) error
	for range 40 { // enough to use up the space reserved in advance
		seal, err := l.Open(context.Background(), intent())
		do(t, err)
		seals = append(seals, seal)
	}
	disk.set(func() { disk.reserve = unix.ENOSPC })
	before := content(first(dir))
	for {
		seal, err := l.Open(context.Background(), intent())
		if err != nil {
			unavailableWith(t, err, unix.ENOSPC)
			break
		}
		seals, before = append(seals, seal), content(first(dir))
		if len(seals) > 100 {
			t.Fatal("intents are taken without space for their outcomes")
		}
	}
	note := func() error {
		return l.Note(context.Background(), "big", map[string]string{"x": strings.Repeat("x", 60000)})
	}
	err := note()
	for n := 0; err == nil && n < 3; n++ { // the remaining space may hold one or two
		before, err = content(first(dir)), note()
	}
	unavailableWith(t, err, unix.ENOSPC)
	if content(first(dir)) != before {
		t.Error("a refused intent left something")
	}
	for _, seal := range seals { // each of maximum size, together with intents that must be refused
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.Open(context.Background(), intent()); err != nil {
				unavailableWith(t, err, unix.ENOSPC)
			}
		})
		if err := seal(bailey.Outcome{Status: bailey.OK, Reason: strings.Repeat("x", 60000)}); err != nil {
			t.Fatalf("an outcome whose space was reserved: %v", err)
		}
		wg.Wait()
	}
	disk.set(func() { disk.reserve = nil })
	call(t, l)
	verified(t, dir)
}

// TestSpaceIsReserved checks that each open intent has its slot reserved after the end of the file, also on the disk.
func TestSpaceIsReserved(t *testing.T) {
	dir, l, disk := onFaulty(t)
	const calls = 50
	for range calls {
		_, err := l.Open(context.Background(), intent())
		do(t, err)
	}
	long := int64(len(content(first(dir))))
	if need := long + calls*slot; onDisk(t, dir) < need || disk.reserved < need {
		t.Errorf("%d bytes long, %d on the disk, %d reserved, %d needed", long, onDisk(t, dir), disk.reserved, need)
	}
	do(t, l.Close())
	if b := onDisk(t, dir); b < long+calls*slot {
		t.Errorf("closed with open receipts, and %d bytes on the disk", b)
	}
	l = open(t, Config{Dir: dir})
	do(t, l.Close())
	long = int64(len(content(first(dir))))
	if b := onDisk(t, dir); b > long+64<<10 {
		t.Errorf("nothing is open, %d bytes long, and %d on the disk", long, b)
	}
}

// onDisk returns the size of the first segment on the disk, in bytes.
func onDisk(t *testing.T, dir string) int64 {
	var st unix.Stat_t
	do(t, unix.Stat(first(dir), &st))
	return st.Blocks * 512
}

// Case 7: a write is short, with or without an error; it is refused, and no partial line must stay.
func TestWriteFails(t *testing.T) {
	for name, short := range map[string]int{"nothing": 0, "one byte": 1, "half": 120, "all but one": 1 << 20} {
		for _, cause := range []error{unix.EIO, unix.ENOSPC, errSilent} {
			if cause == errSilent && short > 1000 {
				continue
			}
			t.Run(name+" "+cause.Error(), func(t *testing.T) {
				dir, l, disk := onFaulty(t)
				seal, err := l.Open(context.Background(), intent())
				do(t, err)
				before := content(first(dir))
				disk.set(func() { disk.write, disk.short = cause, short })
				if err := seal(bailey.Outcome{Status: bailey.OK}); !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
					t.Errorf("seal: %v", err)
				}
				if _, err := l.Open(context.Background(), intent()); !errors.Is(err, bailey.Unavailable) {
					t.Errorf("open: %v", err)
				}
				if content(first(dir)) != before {
					t.Error("something half written stays")
				}
				if b := onDisk(t, dir); b < int64(len(before))+slot {
					t.Errorf("%d bytes on the disk: the open receipt has lost its space", b)
				}
				disk.set(func() { disk.write = nil })
				call(t, l) // the content of the disk is known
				if r := verified(t, dir); r.Open != 1 || r.Intents != 3 {
					t.Errorf("%+v", r)
				}
				do(t, l.Close())
				open(t, Config{Dir: dir})
				if r := verified(t, dir); r.Open != 0 {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// Case 6: fsync fails with EIO; its group and all later ones are refused, until the ledger is opened again.
func TestSyncFails(t *testing.T) {
	dir, l, disk := onFaulty(t)
	seal, err := l.Open(context.Background(), intent())
	do(t, err)
	before := content(first(dir))
	disk.set(func() { disk.sync = unix.EIO })
	_, err = l.Open(context.Background(), intent())
	unavailableWith(t, err, unix.EIO)
	if content(first(dir)) != before {
		t.Error("a refused intent stays")
	}
	disk.set(func() { disk.sync = nil }) // the next sync would succeed although data is lost
	syncs := disk.syncs
	unavailableWith(t, seal(bailey.Outcome{Status: bailey.OK}), unix.EIO)
	_, err = l.Open(context.Background(), intent())
	unavailableWith(t, err, unix.EIO)
	unavailableWith(t, l.Note(context.Background(), "x", nil), unix.EIO)
	if disk.syncs != syncs || content(first(dir)) != before {
		t.Error("the log goes on after a failed sync")
	}
	if !strings.Contains(bailey.HintOf(err), "gateway stop") {
		t.Errorf("hint: %s", bailey.HintOf(err))
	}
	do(t, l.Close())
	open(t, Config{Dir: dir})
	if r := verified(t, dir); r.Open != 0 || r.Intents != 2 {
		t.Errorf("%+v", r)
	}
}

func TestRollbackFails(t *testing.T) {
	for name, fail := range map[string]func(*faulty){
		"truncate": func(f *faulty) { f.truncate = unix.EIO },
		"sync":     func(f *faulty) { f.sync = unix.EIO },
	} {
		t.Run(name, func(t *testing.T) {
			dir, l, disk := onFaulty(t)
			disk.set(func() { disk.write, disk.short = unix.ENOSPC, 100; fail(disk) })
			_, err := l.Open(context.Background(), intent())
			unavailableWith(t, err, unix.ENOSPC)
			disk.set(func() { disk.write, disk.truncate, disk.sync = nil, nil, nil })
			_, err = l.Open(context.Background(), intent())
			unavailableWith(t, err, unix.EIO)
			do(t, l.Close())
			open(t, Config{Dir: dir}) // removes the remainder
			verified(t, dir)
		})
	}
}

// TestGroup checks that one sync serves all waiting callers, and that if it fails, all of them are refused.
func TestGroup(t *testing.T) {
	dir, l, disk := onFaulty(t)
	long := len(content(first(dir)))
	gate := make(chan struct{})
	held := make(chan struct{})
	l.writer.disk = &holding{Disk: disk, first: held, gate: gate} // the writer is idle: its queue is empty
	const callers = 64
	errs := make(chan error, callers+1)
	go func() { _, err := l.Open(context.Background(), intent()); errs <- err }()
	<-held
	for range callers {
		go func() { errs <- l.Note(context.Background(), "more", nil) }()
	}
	for blocked() < callers+1 { // including the first
		time.Sleep(time.Millisecond)
	}
	if len(content(first(dir))) <= long {
		t.Error("nothing is being written")
	}
	if list, err := l.Receipts(receipts.Filter{}); err != nil || len(list) != 1 {
		t.Errorf("what is not durable yet is a receipt: %d, %v", len(list), err)
	}
	if r, err := l.Verify(); err != nil || !r.OK || r.Intents != 1 {
		t.Errorf("what is not durable yet is verified: %+v, %v", r, err)
	}
	before := disk.syncs
	close(gate)
	for range callers + 1 {
		do(t, <-errs)
	}
	if n := disk.syncs - before; n != 2 {
		t.Errorf("%d syncs for one intent and then %d", n, callers)
	}
	verified(t, dir)
}

// blocked returns the number of goroutines that wait to hand an entry to the writer.
func blocked() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "(*Log).submitRequest(")
}

// holding blocks its first sync at the gate.
type holding struct {
	Disk
	once        sync.Once
	first, gate chan struct{}
}

func (h *holding) Sync() error {
	h.once.Do(func() { close(h.first); <-h.gate })
	return h.Disk.Sync()
}

func TestLoggedForOperators(t *testing.T) {
	var said bytes.Buffer
	dir, disk := place(t), &faulty{}
	l := open(t, Config{Dir: dir, Log: logger(&said), Wrap: func(d Disk) Disk { disk.Disk = d; return disk }})
	disk.set(func() { disk.sync = unix.EIO })
	if err := l.Note(context.Background(), "x", nil); err == nil {
		t.Fatal("durable without a sync")
	}
	do(t, l.Close())
	if !strings.Contains(said.String(), "the ledger stopped") {
		t.Errorf("said %q", &said)
	}
	if _, err := os.Stat(first(dir)); err != nil {
		t.Error(err)
	}
}
