package inside

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"bailey/internal/ktest"
)

// newTestTable returns an empty table, and locks the test to its thread, as spawn requires.
func newTestTable(t testing.TB) *syscallTable {
	t.Helper()
	if !Walks {
		ktest.Missing(t, "warm-helpers", errors.New("no child walks a table on this architecture"))
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	return newTable(newTestArena(t, 512<<10))
}

func newTestArena(t testing.TB, size int) *arena {
	t.Helper()
	a, e := newArena(size)
	if e != 0 {
		t.Fatal(e)
	}
	t.Cleanup(func() { syscall.Munmap(a.b) })
	return a
}

func (t *syscallTable) start(tb testing.TB) (pid int) {
	tb.Helper()
	pid, e := spawnChild(t.arena, t.rows, t.progress)
	if e != 0 {
		tb.Fatal(e)
	}
	return pid
}

func (t *syscallTable) run(tb testing.TB) (status syscall.WaitStatus) {
	tb.Helper()
	if e := waitChild(t.start(tb), &status); e != 0 {
		tb.Fatal(e)
	}
	return status
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// own opens this process's memory, in which lseek(2) returns any requested offset: a row can have any result.
func own(t testing.TB) (fd uintptr) {
	t.Helper()
	f, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f.Fd()
}

// TestChild runs rows of every mode with every kind of result, and checks at which row, and how, the child ends.
func TestChild(t *testing.T) {
	modes := map[uintptr]string{must: "must", some: "some", again: "again", leave: "leave"}
	const enosys, eperm, eagain = -int(syscall.ENOSYS), -int(syscall.EPERM), -int(syscall.EAGAIN)
	memory := own(t)
	for mode, name := range modes {
		for _, result := range []int{0, 1, 2, 38, 4096, 1<<63 - 1, eperm, -2, eagain, -37, enosys, -39, -4094, -4095, -4096, -4097, -1 << 63} {
			isError := result < 0 && result >= -4095
			ends := map[uintptr]bool{must: isError, some: result <= 0, leave: isError && result != enosys && result != eperm}[mode]
			want := syscall.Errno(0)
			switch {
			case ends && result == 0:
				want = syscall.EPIPE
			case ends:
				want = syscall.Errno(-result)
			}
			tab := newTestTable(t)
			tab.addRow(must, syscall.SYS_GETPID)
			tab.addRow(mode, syscall.SYS_LSEEK, memory, uintptr(result), io.SeekStart, 0, 0, uintptr(unsafe.Pointer(&tab.rows[:4][3])))
			tab.addRow(must, syscall.SYS_EXIT_GROUP, 3) // the next row
			tab.addRow(must, syscall.SYS_EXIT_GROUP, 4) // the row to which again leads
			status := tab.run(t)
			at, e, failed := tab.progress.endingRow(tab.rows, status)
			switch next := map[bool]int{false: 2, true: 3}[mode == again]; {
			case ends && (!failed || at != 1 || e != want || status.ExitStatus() != childFailed):
				t.Errorf("%s with %d: row %d, %v, failed %v, %v; want row 1, %v", name, result, at, e, failed, status, want)
			case !ends && (failed || at != next || status.ExitStatus() != next+1):
				t.Errorf("%s with %d: row %d, %v, failed %v, exit %d; want row %d", name, result, at, e, failed, status.ExitStatus(), next)
			}
		}
	}
}

// TestChildArguments checks that each of six arguments reaches the kernel at its position.
func TestChildArguments(t *testing.T) {
	r, w := pipe(t)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fmt.Fprint(file, "0123456789abcdefghij")
	tab := newTestTable(t)
	from := tab.copyWords("from", 3)
	// ESPIPE if the fourth argument were wrong, EINVAL if the sixth were
	tab.addRow(must, syscall.SYS_SPLICE, file.Fd(), from, w.Fd(), 0, 16, 0)
	tab.addRow(must, syscall.SYS_PWRITE64, file.Fd(), tab.copyArgument("text", []byte("xyz")), 3, 20)
	tab.addRow(must, syscall.SYS_EXIT_GROUP, 5)
	if status := tab.run(t); status.ExitStatus() != 5 {
		at, e, _ := tab.progress.endingRow(tab.rows, status)
		t.Fatalf("row %d: %v", at, e)
	}
	w.Close()
	spliced, _ := io.ReadAll(r)
	whole, _ := os.ReadFile(file.Name())
	if string(spliced) != "3456789abcdefghi" || string(whole) != "0123456789abcdefghijxyz" {
		t.Errorf("%q was spliced, %q written", spliced, whole)
	}
}

// TestChildGoesRound checks that again leads back to its row, until some finds that the other end is gone.
func TestChildGoesRound(t *testing.T) {
	in, feed := pipe(t)
	out, back := pipe(t)
	tab := newTestTable(t)
	tab.addRow(must, syscall.SYS_CLOSE, feed.Fd()) // the child's own copy
	b := tab.copyWords("byte", 0)
	tab.addRow(some, syscall.SYS_READ, in.Fd(), b, 1)
	tab.addRow(must, syscall.SYS_WRITE, back.Fd(), b, 1)
	tab.addRow(again, syscall.SYS_CLOSE, ^uintptr(0), 0, 0, 0, 0, uintptr(unsafe.Pointer(&tab.rows[1])))
	pid := tab.start(t)
	back.Close()
	for _, c := range []byte("round and round") {
		var got [1]byte
		feed.Write([]byte{c})
		if n, err := out.Read(got[:]); n != 1 || got[0] != c {
			t.Fatalf("%q came back as %q, %v", c, got, err)
		}
	}
	feed.Close()
	var status syscall.WaitStatus
	if e := waitChild(pid, &status); e != 0 {
		t.Fatal(e)
	}
	if at, e, failed := tab.progress.endingRow(tab.rows, status); at != 1 || e != syscall.EPIPE || !failed {
		t.Errorf("row %d, %v, failed %v; want the reading row, EPIPE", at, e, failed)
	}
}

// TestChildProgress checks that progress names the row at which a child waits, and that a child's own exit is not taken
// for the failure of a row.
func TestChildProgress(t *testing.T) {
	in, _ := pipe(t)
	tab := newTestTable(t)
	tab.addRow(must, syscall.SYS_EXIT_GROUP, childFailed)
	status := tab.run(t)
	if at, e, failed := tab.progress.endingRow(tab.rows, status); failed || at != 0 || e != 0 || status.ExitStatus() != childFailed {
		t.Errorf("a child that leaves with %d of itself: row %d, %v, failed %v", childFailed, at, e, failed)
	}
	tab = newTestTable(t)
	tab.addRow(must, syscall.SYS_GETPID)
	tab.addRow(must, syscall.SYS_GETPPID)
	tab.addRow(some, syscall.SYS_READ, in.Fd(), tab.copyWords("byte", 0), 1)
	tab.addRow(must, syscall.SYS_EXIT_GROUP, 1)
	pid := tab.start(t)
	asleep(t, pid)
	if at := tab.progress.currentRow(tab.rows); at != 2 {
		t.Errorf("it waits at row %d, want 2", at)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	if e := waitChild(pid, &status); e != 0 {
		t.Fatal(e)
	}
	if at, _, failed := tab.progress.endingRow(tab.rows, status); at != 2 || failed || status.Signal() != syscall.SIGKILL {
		t.Errorf("killed: row %d, failed %v, %v", at, failed, status)
	}
}

// asleep waits until the process sleeps in the kernel.
func asleep(t testing.TB, pid int) {
	t.Helper()
	for range 10_000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(stat), ") S ") {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("%d does not come to wait", pid)
}

// TestSpawnRestoresSignals checks that the caller's signals are blocked only for the clone, and not at all if there is
// no clone.
func TestSpawnRestoresSignals(t *testing.T) {
	tab := newTestTable(t)
	var before, after uint64
	setSignalMask(nil, &before)
	tab.addRow(must, syscall.SYS_EXIT_GROUP, 0)
	tab.run(t)
	if setSignalMask(nil, &after); after != before {
		t.Errorf("after a child %x is blocked, before %x", after, before)
	}
	tab.arena.allocBytes(len(tab.arena.b) - tab.arena.used)
	if pid, e := spawnChild(tab.arena, tab.rows, tab.progress); e != syscall.ENOMEM {
		t.Fatalf("in a full arena: child %d, %v", pid, e)
	}
	blocked := ^uint64(0)
	setSignalMask(nil, &blocked)
	setSignalMask(&before, nil)
	if blocked != before {
		t.Errorf("without a child %x is blocked, before %x", blocked, before)
	}
}

// TestChildBecomes checks that the tool's table ends in a program with exactly the mailed strings and streams, and
// nothing of this process.
func TestChildBecomes(t *testing.T) {
	ktest.Require(t, "sh", "cat")
	if ktest.RunInSubprocess(t) {
		return
	}
	var slack uintptr = 1e6 // timer slack of a helper's thread; must differ from the default
	tab := newTestTable(t)
	if rawSyscall(syscall.SYS_PRCTL, setTimerSlack, slack, 0) != 0 || setSignalHandlers(toDefault) != 0 {
		t.Fatal("this thread could not be made a helper's")
	}
	const script = `echo up; cat; printf '<%s>' "$0" "$@" "$A" "${B-none}" "${HOME-none}"; ulimit -d
		read -r _ _ _ _ _ session _ </proc/$$/stat; [ $session = $$ ] && echo leads
		cat /proc/self/status /proc/self/timerslack_ns >&2; exit 9`
	const memory = 100 << 20
	h := &warmHelper{arena: tab.arena, mailbox: tab.arena.allocBytes(MailSize),
		steps: []Step{{Op: Undump}, {Op: Exec, N: []uint64{0, memory}, S: []string{"/bin/sh"}}}}
	box, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	tool := h.toolTable(box[1])
	if tool == nil {
		t.Fatal("the table did not fit")
	}
	pid := tool.start(t)
	syscall.Close(box[1])
	asleep(t, pid)
	if at := tool.progress.currentRow(tool.rows); tool.rows[at].trap != syscall.SYS_RECVMSG {
		t.Fatalf("it is parked at row %d", at)
	}
	stdin, in := pipe(t)
	out, stdout := pipe(t)
	log, stderr := pipe(t)
	theirs := [3]*os.File{stdin, stdout, stderr}
	mail, ok := Mail(uint64(sliceAddress(h.mailbox)), []string{"sh", "-c", script, "zero", "a b", "", "ü\n"}, []string{"A=1=2", "B="})
	if !ok {
		t.Fatal("the mail did not fit")
	}
	fds := syscall.UnixRights(int(theirs[0].Fd()), int(theirs[1].Fd()), int(theirs[2].Fd()))
	if err := syscall.Sendmsg(box[0], mail, fds, nil, 0); err != nil {
		t.Fatal(err)
	}
	for _, f := range theirs {
		f.Close()
	}
	var up [3]byte
	if _, err := io.ReadFull(out, up[:]); err != nil {
		t.Fatal(err)
	}
	if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err != nil || len(fds) != len(theirs) {
		t.Errorf("it has open %v, %v", fds, err)
	}
	io.WriteString(in, "what comes in;")
	in.Close()
	said, _ := io.ReadAll(out)
	var noted bytes.Buffer
	noted.ReadFrom(log)
	var status syscall.WaitStatus
	if e := waitChild(pid, &status); e != 0 {
		t.Fatal(e)
	}
	want := fmt.Sprintf("what comes in;<zero><a b><><ü\n><1=2><><none>%d\nleads\n", memory>>10)
	if string(said) != want || status.ExitStatus() != 9 {
		t.Errorf("%q, %d, want %q\n%s", said, status.ExitStatus(), want, noted.String())
	}
	for _, line := range []string{"SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "SigPnd:\t0000000000000000", "ShdPnd:\t0000000000000000", "50000"} {
		if !strings.Contains(noted.String(), "\n"+line+"\n") {
			t.Errorf("its state is not %q:\n%s", line, noted.String())
		}
	}
	if at, _, failed := tool.progress.endingRow(tool.rows, status); at != len(tool.rows)-1 || failed {
		t.Errorf("it ended at row %d of %d, failed %v", at, len(tool.rows), failed)
	}
}

func TestArena(t *testing.T) {
	a := newTestArena(t, 4096)
	var last uintptr
	for n := range 40 {
		b := a.allocBytes(n)
		if b == nil || len(b) != n || cap(b) != n || sliceAddress(b)%16 != 0 {
			t.Fatalf("%d bytes: %d of %d at %x", n, len(b), cap(b), sliceAddress(b))
		}
		if n > 0 {
			if sliceAddress(b) < last {
				t.Fatalf("%d bytes lie over what was taken before", n)
			}
			last = sliceAddress(b) + uintptr(n)
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("%d bytes are not clear", n)
			}
			b[i] = 0xff
		}
	}
	mark := a.used
	for _, n := range []int{-1, len(a.b) - mark + 1, 1<<63 - 1, -1 << 63} {
		if b := a.allocBytes(n); b != nil || a.used != mark {
			t.Errorf("%d bytes of %d were given", n, len(a.b)-mark)
		}
	}
	rest := a.allocBytes(len(a.b) - mark)
	if rest == nil || a.allocBytes(1) != nil || take1[uint64](a) != nil {
		t.Error("the last bytes were not given, or more than there are")
	}
	for i := range rest {
		rest[i] = 0xff
	}
	a.freeAfter(mark)
	if a.used != mark || bytes.Count(rest, []byte{0}) != len(rest) {
		t.Error("a reset left something behind its mark")
	}
	if a.b[mark-16] != 0xff {
		t.Error("a reset cleared something before its mark")
	}
	// the next address divisible by 16 is the end
	if odd := newTestArena(t, 4096); odd.allocBytes(4095) == nil || odd.allocBytes(1) != nil {
		t.Error("what lies behind the end was given")
	}
}

// TestTableFull checks that a table is invalid if something does not fit, and that nothing is written beyond it.
func TestTableFull(t *testing.T) {
	ktest.Long(t)
	tab := newTestTable(t)
	behind := tab.arena.allocBytes(64)
	for n := range maxRows {
		if tab.addRow(must, uintptr(n), 1, 2, 3, 4, 5, 6); tab.finishTable() == nil {
			t.Fatalf("row %d of %d does not fit", n, maxRows)
		}
	}
	tab.addRow(must, 1, 1)
	if tab.finishTable() != nil || len(tab.rows) != maxRows || len(tab.steps) != maxRows || bytes.Count(behind, []byte{0}) != len(behind) {
		t.Errorf("%d rows of %d, and behind them %x", len(tab.rows), maxRows, behind)
	}
	tab = newTestTable(t)
	room := tab.arena.allocBytes(len(tab.arena.b) - tab.arena.used - 32)
	if tab.copyArgument("fits", make([]byte, 32)) == 0 || tab.finishTable() == nil {
		t.Error("what fits does not")
	}
	if tab.copyWords("one more", 1) != 0 || tab.finishTable() != nil || len(room) == 0 {
		t.Error("what does not fit was kept")
	}
	if newTable(tab.arena) != nil || newTable(newTestArena(t, 1024)) != nil {
		t.Error("a table was made where there is no room for its rows")
	}
	steps := []Step{{Op: Narrow, N: make([]uint64, 4096)}, {Op: Caps}, {Op: Exec, N: []uint64{0, 1}, S: []string{"/bin/true"}}}
	all, size := newTestArena(t, 64<<10), 0
	for ; size <= len(all.b); size += 8 {
		h := &warmHelper{arena: &arena{b: all.b[:size]}, steps: steps}
		if h.toolTable(5) != nil {
			break
		}
		if len(bytes.TrimRight(all.b, "\x00")) > size {
			t.Fatalf("with %d bytes something was written beyond", size)
		}
		clear(all.b[:size])
	}
	if least := 8*4096 + maxRows*int(rowSize); size < least || size > least+512 {
		t.Errorf("a table that takes some %d bytes fits from %d on", least, size)
	}
}

// TestTableIsOutsideTheHeap checks that the garbage collector neither owns nor changes a table.
func TestTableIsOutsideTheHeap(t *testing.T) {
	const size = 8 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a := newTestArena(t, size)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > size/2 {
		t.Errorf("the heap gave %d bytes for an arena", grown)
	}
	tab := newTable(a)
	word := tab.copyWords("word", 0x0123456789abcdef)
	tab.addRow(must, 17, word)
	for _, at := range []uintptr{word, uintptr(unsafe.Pointer(tab.progress)), uintptr(unsafe.Pointer(&tab.rows[0]))} {
		if at < sliceAddress(a.b) || at >= sliceAddress(a.b)+size {
			t.Errorf("%x lies outside of the arena", at)
		}
	}
	for range 3 {
		runtime.GC()
		debug.FreeOSMemory()
	}
	if tab.rows[0] != (syscallRow{trap: 17, args: [6]uintptr{word}, mode: must}) || *(*uint64)(unsafe.Pointer(&a.b[word-sliceAddress(a.b)])) != 0x0123456789abcdef {
		t.Errorf("the collector changed %+v", tab.rows[0])
	}
}
