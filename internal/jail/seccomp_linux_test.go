package jail

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// install installs a filter on this thread, which must end with the test.
func install(t testing.TB, p profile) {
	t.Helper()
	ktest.Require(t, "seccomp")
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	words := filterProgram(currentArch(), p)
	prog := unix.SockFprog{Len: uint16(len(words)), Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(words)))}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		t.Fatal(err)
	}
}

// bad is invalid as an argument of every call: a call that passes the filter fails otherwise, without effect.
const bad = "0xffffffffffffffff"

// newFlags lists the flags of clone that create a namespace.
var newFlags = []uint64{unix.CLONE_NEWNS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC, unix.CLONE_NEWUSER, unix.CLONE_NEWPID, unix.CLONE_NEWNET}

// TestDeniedCalls makes the denied calls in a cage.
func TestDeniedCalls(t *testing.T) {
	want := map[string]error{}
	var order []string
	expect := func(e error, format string, args ...any) {
		spec := fmt.Sprintf(format, args...)
		want[spec] = e
		order = append(order, spec)
	}
	for _, g := range alwaysDenied {
		for _, c := range g.calls {
			if n := c.numberOn(currentArch()); n != none {
				expect(unix.EPERM, "%d%s", n, strings.Repeat(","+bad, 6))
			}
		}
	}
	for _, family := range []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET, unix.AF_VSOCK, 99} {
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC} {
			expect(unix.EACCES, "%d,0xff0000000%x,%d,0", unix.SYS_SOCKET, family, kind)
		}
	}
	expect(unix.EACCES, "%d,1,2,0,0", unix.SYS_SOCKETPAIR)
	expect(unix.EFAULT, "%d,1,5,0,0", unix.SYS_SOCKETPAIR) // passes the filter; the address is invalid
	for _, flag := range newFlags {
		// without the filter, the kernel returns EINVAL for CLONE_THREAD alone
		expect(unix.EPERM, "%d,%#x", unix.SYS_CLONE, flag|unix.CLONE_THREAD)
		expect(unix.EPERM, "%d,%#x", unix.SYS_CLONE, flag|unix.CLONE_THREAD|1<<63)
		expect(unix.EINVAL, "%d,%#x", unix.SYS_CLONE, flag<<32|unix.CLONE_THREAD)
	}
	expect(unix.ENOSYS, "%d,0,0", unix.SYS_CLONE3) // without the filter, the kernel returns EINVAL
	expect(unix.EPERM, "%d,0x40000", unix.SYS_PERSONALITY)
	expect(unix.EPERM, "%d,0xff00000000000008", unix.SYS_PERSONALITY)
	for _, request := range []uint64{unix.TIOCSTI, tioclinux, unix.TIOCSETD, addKey, removeKey} {
		expect(unix.EPERM, "%d,%s,%#x", unix.SYS_IOCTL, bad, request)
		expect(unix.EPERM, "%d,%s,%#x", unix.SYS_IOCTL, bad, request|1<<40)
	}
	expect(unix.EBADF, "%d,%s,%#x", unix.SYS_IOCTL, bad, uint64(unix.TCGETS))
	expect(unix.ENOSYS, "%d", newest+1)
	expect(unix.ENOSYS, "400")
	expect(unix.ENOSYS, "600")
	r := ask(t, newJail(t, Config{}), bailey.Job{}, append([]string{"calls"}, order...)...).must(t)
	got := map[string]string{}
	for line := range strings.Lines(r.out) {
		spec, said, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[spec] = said
	}
	names := tabled(currentArch())
	for _, spec := range order {
		var n uint32
		if fmt.Sscan(spec[:strings.IndexByte(spec+",", ',')], &n); got[spec] != want[spec].Error() {
			t.Errorf("%s(%s): %q, want %q", names[n], spec, got[spec], want[spec])
		}
	}
}

// TestForeignTablesKill checks that a call through another table kills the process, since its numbers mean other calls.
func TestForeignTablesKill(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		ktest.Missing(t, "x86-64", errors.New("running on "+runtime.GOARCH))
	}
	j := newJail(t, Config{})
	for _, args := range [][]string{{"int80"}, {"calls", fmt.Sprint(1<<30 + unix.SYS_GETPID)}, {"calls", bad}} {
		r := ask(t, j, bailey.Job{}, args...).must(t)
		if args[0] == "int80" && r.exit.Code == 128+int(unix.SIGSEGV) {
			t.Log("the kernel has no table for 32-bit programs")
			continue
		}
		if r.exit.Code != 128+int(unix.SIGSYS) || r.out != "" {
			t.Errorf("%v: %+v, want the end by SIGSYS", args, r)
		}
	}
}

// TestNoProgramNoCage checks that nothing runs if the machine has no table, or the kernel refuses the filter.
func TestNoProgramNoCage(t *testing.T) {
	j := newJail(t, Config{})
	for hint, words := range map[string][]uint64{"no table of system calls": nil, "CONFIG_SECCOMP_FILTER": {opLoad}} {
		planned, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"exit", "0"}})
		if err != nil {
			t.Fatal(err)
		}
		r := planned.(*run)
		for i := range r.plan.steps {
			if r.plan.steps[i].Op == inside.Filter {
				r.plan.steps[i].N = words
			}
		}
		exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{})
		wants(t, err, "seccomp", hint)
		if exit.Code != bailey.NeverRan {
			t.Errorf("without a filter the tool ended with %+v", exit)
		}
		r.Close()
	}
}

func TestOrdinaryCalls(t *testing.T) {
	ktest.Long(t)
	r := ask(t, newJail(t, Config{}), bailey.Job{}, "ordinary").must(t)
	for line := range strings.Lines(r.out) {
		if !strings.HasSuffix(line, " ok\n") {
			t.Error(strings.TrimSpace(line))
		}
	}
	if n := strings.Count(r.out, "\n"); n != 18 || r.exit.Code != 0 {
		t.Errorf("%d tries, then %+v", n, r)
	}
}

func TestProgramsRunInTheCage(t *testing.T) {
	j := newJail(t, Config{})
	run := func(name, want string, job bailey.Job) {
		t.Run(name, func(t *testing.T) {
			ktest.Require(t, "/usr/bin/"+name)
			if r := ask(t, j, job).must(t); r.exit.Code != 0 || r.out != want {
				t.Errorf("%+v, want %q", r, want)
			}
		})
	}
	run("sh", "a\n3\n", bailey.Job{Command: "sh", Exec: []string{"cat", "expr"},
		Args: []string{"-c", "echo a | cat; (sleep=1; expr 1 + 2) & wait; kill -0 $$; trap 'exit 0' TERM; kill $$; exit 1"}})
	run("git", "", bailey.Job{Command: "git", Args: []string{"init", "-q", "/tmp/x"}})
	run("python3", "done 3\n", bailey.Job{Command: "python3", Exec: []string{"true"}, Read: pythonLibrary(t), Args: []string{"-c", python}})
}

const python = `
import os, select, signal, subprocess, tempfile, threading, socket
t = threading.Thread(target=lambda: None); t.start(); t.join()
subprocess.run(["/usr/bin/true"], check=True)
with tempfile.NamedTemporaryFile() as f: os.chmod(f.name, 0o600); os.utime(f.name)
select.epoll().close()
a, b = socket.socketpair(); a.send(b"abc")
p = os.fork()
if p == 0: signal.pause()
os.kill(p, signal.SIGTERM); os.waitpid(p, 0)
try: socket.socket()
except PermissionError: print("done", len(b.recv(9)))
`

// pythonLibrary returns the directory of the system interpreter's modules, or nil without an interpreter.
func pythonLibrary(t *testing.T) []string {
	out, err := exec.Command("/usr/bin/python3", "-c", "import os; print(os.path.dirname(os.__file__))").Output()
	if dir := strings.TrimSpace(string(out)); err == nil && filepath.IsAbs(dir) {
		return []string{dir}
	}
	return nil
}

// TestSharedCalls makes the calls that only a Landlock cage denies, on this thread, in a separate process.
func TestSharedCalls(t *testing.T) {
	ktest.Require(t, "seccomp")
	if ktest.RunInSubprocess(t, probeEnv+"="+probe) {
		return
	}
	runtime.LockOSThread() // must not be unlocked: the filter ends with the thread
	file := filepath.Join(t.TempDir(), "file")
	fd, err := unix.Open(file, unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	bad := ^uintptr(0)
	pid := uintptr(unix.Getpid())
	install(t, profile{Shared: true, NoSignals: true})
	want := func(name string, want syscall.Errno, n uint16, args ...uintptr) {
		a := append(args, 0, 0, 0, 0, 0, 0)
		if _, _, got := unix.RawSyscall6(uintptr(n), a[0], a[1], a[2], a[3], a[4], a[5]); got != want {
			t.Errorf("%s(%#x): %v, want %v", name, args, got, want)
		}
	}
	for _, g := range append(shared, signalling, watching) {
		for _, c := range g.calls {
			if n := c.numberOn(currentArch()); n != none {
				want(c.name, unix.EPERM, n, bad, bad, bad, bad, bad, bad)
			}
		}
	}
	var old unix.Rlimit
	want("prlimit64", 0, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, 0, uintptr(unsafe.Pointer(&old)))
	want("prlimit64", unix.EPERM, unix.SYS_PRLIMIT64, pid, unix.RLIMIT_CORE, 0, uintptr(unsafe.Pointer(&old)))
	want("setpriority", 0, unix.SYS_SETPRIORITY, 0, 0, 19)
	want("setpriority", unix.EPERM, unix.SYS_SETPRIORITY, 0, pid, 19)
	want("setpriority", unix.EPERM, unix.SYS_SETPRIORITY, unix.PRIO_USER, 0, 19)
	want("ioprio_set", unix.EPERM, unix.SYS_IOPRIO_SET, 1, pid, 0)
	want("sched_setaffinity", unix.EPERM, unix.SYS_SCHED_SETAFFINITY, pid, 0, 0)
	want("kill", 0, unix.SYS_KILL, 0, 0)
	want("kill", unix.EPERM, unix.SYS_KILL, pid, 0)
	want("kill", unix.EPERM, unix.SYS_KILL, bad, 0)
	want("fcntl", unix.EPERM, unix.SYS_FCNTL, uintptr(fd), unix.F_SETOWN, pid)
	want("fcntl", 0, unix.SYS_FCNTL, uintptr(fd), unix.F_GETFL)
	want("fcntl", unix.EPERM, unix.SYS_FCNTL, uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	// a second listener would answer execve before the keeper
	want("seccomp", unix.EPERM, unix.SYS_SECCOMP, 1, newListener, 0)
	want("seccomp", unix.EFAULT, unix.SYS_SECCOMP, 1, 0, 0)
	want("ioctl", unix.EPERM, unix.SYS_IOCTL, uintptr(fd), setFlags)
	want("ioctl", unix.EPERM, unix.SYS_IOCTL, uintptr(fd), 0x5000940e)
	for _, c := range attributes {
		if n := c.numberOn(currentArch()); n != none {
			want(c.name, unix.ENOTSUP, n, bad, bad, bad, bad, bad, bad)
		}
	}
	want("memfd_create", unix.EPERM, unix.SYS_MEMFD_CREATE, bad, bad)
	want("write", 0, unix.SYS_WRITE, uintptr(fd), 0, 0)
	if err := exec.Command("/proc/self/exe", "-test.run=^$").Run(); err != nil {
		t.Errorf("a Go program: %v", err)
	}
	ktest.Require(t, "/usr/bin/python3")
	var exit *exec.ExitError
	err = exec.Command("/usr/bin/python3", "-c", "import os; os.abort()").Run()
	if !errors.As(err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("an abort without signals: %v", err)
	} else {
		t.Log("an abort without signals:", err)
	}
	if out, err := exec.Command("/usr/bin/python3", "-c", `
import signal
try: signal.raise_signal(signal.SIGTERM)
except PermissionError: print("refused")`).Output(); err != nil || string(out) != "refused\n" {
		t.Errorf("a raise without signals: %q, %v", out, err)
	}
}

// alone runs f on a thread that ends with it, including everything f installed there.
func alone(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// BenchmarkInstall measures a thread with a filter and one without.
func BenchmarkInstall(b *testing.B) {
	b.Run("none", func(b *testing.B) {
		for b.Loop() {
			alone(func() {})
		}
	})
	b.Run("filter", func(b *testing.B) {
		for b.Loop() {
			alone(func() { install(b, profile{}) })
		}
	})
}

// BenchmarkCall measures a call decided by its number, and one decided by its arguments.
func BenchmarkCall(b *testing.B) {
	for _, filtered := range []bool{false, true} {
		for name, n := range map[string]uintptr{"getppid": unix.SYS_GETPPID, "ioctl": unix.SYS_IOCTL} {
			b.Run(fmt.Sprintf("%s filtered %v", name, filtered), func(b *testing.B) {
				alone(func() {
					if filtered {
						install(b, profile{})
					}
					for b.Loop() {
						unix.RawSyscall(n, ^uintptr(0), 0, 0)
					}
				})
			})
		}
	}
}
