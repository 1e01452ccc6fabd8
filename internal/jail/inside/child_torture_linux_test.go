package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"bailey/internal/ktest"
)

// tortureEnv names the duration of the torture test, for example 30s (time.ParseDuration).
const tortureEnv = "BAILEY_TORTURE"

// TestChildTorture checks that children walk their tables while the garbage collector frees the memory and moves the
// stacks they started with, and while signals arrive for their process group.
func TestChildTorture(t *testing.T) {
	ktest.Long(t)
	lasts := 3 * time.Second
	if d, err := time.ParseDuration(os.Getenv(tortureEnv)); err == nil {
		lasts = d
	}
	ktest.Require(t, "sh")
	if !Walks {
		ktest.Missing(t, "warm-helpers", errors.New("no child walks a table on this architecture"))
	}
	if ktest.RunInSubprocess(t) {
		return
	}
	// the signals must reach only these processes
	if err := syscall.Setpgid(0, 0); err != nil && syscall.Getpgrp() != os.Getpid() {
		t.Fatal(err)
	}
	time.AfterFunc(lasts+time.Minute, func() { panic("a child never ends") })
	begin := time.Now()
	debug.SetGCPercent(5)
	var over, storms atomic.Bool
	storms.Store(true)
	var others, makers sync.WaitGroup
	for _, f := range []func(){storm, runtime.GC, allocate, allocate, func() { var done sync.WaitGroup; done.Go(func() { deep(2000) }); done.Wait() }} {
		others.Go(func() {
			for storms.Load() {
				begin := time.Now()
				f()
				// all of them together must leave half of two cores to the makers
				time.Sleep(min(max(200*time.Microsecond, 4*time.Since(begin)), time.Second))
			}
		})
	}
	defer quiver(t, time.Millisecond)()
	var walked, became atomic.Int64
	enough := func() bool { return over.Load() && walked.Load() > 200 && became.Load() > 2 || t.Failed() }
	for n := range 4 {
		makers.Go(func() {
			m := newMaker(n)
			for !enough() {
				count, make := &walked, m.walks
				if m.seq%32 == 31 {
					count, make = &became, m.becomes
				}
				if err := make(); err != nil {
					t.Errorf("child %d of maker %d: %v", m.seq, n, err)
				}
				count.Add(1)
			}
		})
	}
	time.Sleep(lasts)
	over.Store(true)
	makers.Wait()
	storms.Store(false)
	others.Wait()
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG|syscall.WALL, nil); err != syscall.ECHILD {
		t.Errorf("after all children were waited for there is %d, %v", pid, err)
	}
	t.Logf("%d children walked and %d became programs in %v", walked.Load(), became.Load(), time.Since(begin))
}

// A maker starts children one after the other, on its own thread.
type maker struct {
	n, seq       int
	arena        *arena
	feed, result [2]int // pipes: the child waits for a byte on feed, and writes to result
}

func newMaker(n int) *maker {
	runtime.LockOSThread() // the thread ends with the goroutine
	m := &maker{n: n}
	m.arena, _ = newArena(512 << 10)
	syscall.Pipe2(m.feed[:], syscall.O_CLOEXEC)
	syscall.Pipe2(m.result[:], syscall.O_CLOEXEC)
	return m
}

// walks starts a child that makes many calls and writes a text that no other child writes.
func (m *maker) walks() error {
	var want [64]byte
	for i := range 8 {
		binary.LittleEndian.PutUint64(want[8*i:], uint64(m.n)<<56|uint64(m.seq)<<8|uint64(i))
	}
	return m.make(string(want[:]), func(t *syscallTable) {
		text := t.copyArgument("text", want[:])
		for range maxRows - len(t.rows) - 2 {
			t.addRow(must, syscall.SYS_GETPPID)
		}
		t.addRow(must, syscall.SYS_WRITE, uintptr(m.result[1]), text, uintptr(len(want)))
		t.addRow(must, syscall.SYS_EXIT_GROUP, m.code())
	})
}

// becomes starts a child that executes a program. Signals stay blocked, since some may be pending.
func (m *maker) becomes() error {
	want := fmt.Sprintf("maker %d, child %d", m.n, m.seq)
	return m.make(want, func(t *syscallTable) {
		box := t.arena.allocBytes(MailSize)
		argv := []string{"sh", "-c", `printf "$1, $CHILD"; exit $2`, "sh", fmt.Sprintf("maker %d", m.n), strconv.Itoa(int(m.code()))}
		mail, _ := Mail(uint64(sliceAddress(box)), argv, []string{fmt.Sprintf("CHILD=child %d", m.seq)})
		copy(box, mail)
		t.addRow(must, syscall.SYS_DUP3, uintptr(m.result[1]), 1, 0)
		t.addRow(must, syscall.SYS_EXECVE, t.copyArgument("program", []byte("/bin/sh\x00")), sliceAddress(box)+argvAt, sliceAddress(box)+envAt)
	})
}

func (m *maker) code() uintptr { return uintptr(m.seq%100 + 1) }

// make starts a child that waits first, moves the stack on which it was cloned, continues it, and checks its output and
// end.
func (m *maker) make(want string, rest func(*syscallTable)) error {
	defer func() { m.seq++ }()
	m.arena.freeAfter(0)
	t := newTable(m.arena)
	t.addRow(must, syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL)) // so that no child stays behind
	t.addRow(some, syscall.SYS_READ, uintptr(m.feed[0]), t.copyWords("byte", 0), 1)
	rest(t)
	if t.finishTable() == nil {
		return fmt.Errorf("the table did not fit")
	}
	pid, e := spawnChild(t.arena, t.rows, t.progress)
	if e != 0 {
		return e
	}
	deep(m.seq % 500)
	if m.seq%8 == 0 {
		runtime.GC()
	}
	got := make([]byte, len(want))
	if _, err := syscall.Write(m.feed[1], []byte{1}); err != nil {
		return err
	}
	read := make(chan int, 1)
	go func() { // if the child is lost, it writes nothing
		n, _ := syscall.Read(m.result[0], got)
		read <- n
	}()
	var status syscall.WaitStatus
	if e := waitChild(pid, &status); e != 0 {
		return e
	}
	if at, e, failed := t.progress.endingRow(t.rows, status); failed || at != len(t.rows)-1 || status.ExitStatus() != int(m.code()) {
		return fmt.Errorf("it ended at row %d of %d, %v, %x", at, len(t.rows), e, status)
	}
	if n := <-read; string(got[:n]) != want {
		return fmt.Errorf("it wrote %q, want %q", got[:n], want)
	}
	return nil
}

// deep makes the stack grow, so that the runtime moves it.
func deep(n int) byte {
	var frame [256]byte
	frame[n%256] = byte(n)
	if n > 0 {
		frame[0] += deep(n - 1)
	}
	return frame[n%256]
}

var kept atomic.Pointer[[][]*int]

// allocate creates many objects with pointers, and keeps some of them.
func allocate() {
	lists := make([][]*int, 64)
	for i := range lists {
		lists[i] = make([]*int, 256)
		for k := range lists[i] {
			lists[i][k] = new(int)
		}
	}
	kept.Store(&lists)
}

// storm sends the process group signals that the Go runtime sends itself, that a child's end sends, and that usually
// end a process.
func storm() {
	for _, s := range []syscall.Signal{syscall.SIGURG, syscall.SIGUSR1, syscall.SIGCHLD, syscall.SIGURG} {
		syscall.Kill(0, s)
	}
}

// quiver lets timers send this process SIGALRM, SIGVTALRM and SIGPROF, which it ignores, until end.
func quiver(t *testing.T, every time.Duration) (end func()) {
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, syscall.SIGUSR1, syscall.SIGCHLD, syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGPROF)
	set := func(every time.Duration) {
		interval := syscall.NsecToTimeval(int64(every))
		timer := [2]syscall.Timeval{interval, interval}
		for which := range uintptr(3) { // ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF
			if e := rawSyscall(syscall.SYS_SETITIMER, which, uintptr(unsafe.Pointer(&timer)), 0); e != 0 {
				t.Fatal(e)
			}
		}
	}
	set(every)
	return func() { set(0) }
}
