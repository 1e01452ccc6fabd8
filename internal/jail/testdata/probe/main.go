// Command probe runs inside a cage for the tests of package jail. Each verb tries one operation and prints "ok" or the
// text of the errno; sees prints the properties of the cage as JSON.
//
// It would do real harm outside a cage. So it must find itself in the full cage (the host is called bailey, and the
// parent is PID 1 or outside the namespace) or in the lesser one (Landlock denies listing the root, and HOME is a
// nest). The verbs beat, exit, hoard and flood may have another parent.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	host, _ := os.Hostname()
	_, err := os.ReadDir("/")
	lesser := errors.Is(err, syscall.EACCES) && strings.Contains(os.Getenv("HOME"), "/bailey-cages-")
	// harmless, and also used outside a cage
	outside := len(os.Args) > 1 && (os.Args[1] == "crash" || os.Args[1] == "catch")
	if !lesser && !outside && (os.Getppid() > 1 && len(os.Args) > 1 && os.Args[1] != "beat" && os.Args[1] != "exit" && os.Args[1] != "hoard" && os.Args[1] != "flood" || host != "bailey") {
		fmt.Fprintln(os.Stderr, "probe: not in a cage")
		os.Exit(99)
	}
	verb, args := os.Args[1], os.Args[2:]
	v, ok := verbs[verb]
	if !ok {
		fmt.Println("no such verb")
		os.Exit(98)
	}
	v(args)
}

var verbs = map[string]func([]string){
	"sees": func([]string) { sees() },
	"read": func(a []string) { _, err := os.ReadFile(a[0]); say(err) },
	"show": func(a []string) {
		b, err := os.ReadFile(a[0])
		os.Stdout.Write(b)
		say(err)
	},
	"write":   func(a []string) { say(os.WriteFile(a[0], []byte("written inside"), 0o644)) },
	"move":    func(a []string) { say(os.Rename(a[0], a[0]+".moved")) },
	"exec":    func(a []string) { say(syscall.Exec(a[0], a, os.Environ())) },
	"mount":   func(a []string) { say(syscall.Mount("tmpfs", a[0], "tmpfs", 0, "")) },
	"sethost": func([]string) { say(syscall.Sethostname([]byte("evil"))) },
	"list": func(a []string) {
		e, err := os.ReadDir(a[0])
		say(err)
		for _, f := range e {
			fmt.Println(f.Name())
		}
	},
	"stat": func(a []string) {
		var st syscall.Stat_t
		err := syscall.Stat(a[0], &st)
		say(err)
		fmt.Println(st.Uid, st.Gid)
	},
	"dial": func(a []string) { _, err := net.DialTimeout(a[0], a[1], time.Second); say(err) },
	"talk": talk,
	"idle": func(a []string) { // opens a connection and leaves a process
		_, err := net.Dial(a[0], a[1])
		say(err)
		say(spawn(nil, "beat", a[2]))
		waitFor(a[2])
	},
	"datagram": datagram,
	"exit":     func(a []string) { var n int; fmt.Sscan(a[0], &n); os.Exit(n) },
	"cat":      func([]string) { b := make([]byte, 1<<16); n, _ := os.Stdin.Read(b); os.Stdout.Write(b[:n]) },
	"crash":    crash,
	"catch":    func(a []string) { os.WriteFile(a[0], []byte("a crash came here"), 0o644) },
	"die":      func([]string) { syscall.Kill(os.Getpid(), syscall.SIGKILL) },
	"sleep":    func([]string) { time.Sleep(time.Minute) },
	"flood":    flood,
	"beat":     beat,
	"daemon":   func(a []string) { say(spawn(nil, "beat", a[0])); waitFor(a[0]) },
	"hold":     func(a []string) { say(spawn(os.Stdout, "beat", a[0])); waitFor(a[0]) },
	"deaf":     func(a []string) { signal.Ignore(syscall.SIGTERM); beat(a) },
	"deafsaid": func(a []string) { signal.Ignore(syscall.SIGTERM); fmt.Println("waiting"); beat(a) },
	"tidy":     tidy,
	"saysandstays": func([]string) { // long enough that its output is still being written when it ends
		fmt.Println("said")
		time.Sleep(20 * time.Millisecond)
	},
	"attack":  func([]string) { attack() },
	"bomb":    func([]string) { bomb() },
	"killall": func([]string) { say(syscall.Kill(-1, syscall.SIGKILL)) },
	"killone": func([]string) {
		for sig := syscall.Signal(1); sig <= 64; sig++ {
			if sig < 32 || sig > 34 { // reserved by the C library: see signals in package inside
				syscall.Kill(1, sig)
			}
		}
		time.Sleep(50 * time.Millisecond)
		say(nil)
	},
	"calls":    calls,
	"int80":    int80,
	"ordinary": ordinary,
	"tty":      func([]string) { terminal() },
	"key":      func(a []string) { say(findKey(a[0])) },
	"pair":     func(a []string) { say(pair(a[0])) },
	"eat":      func(a []string) { say(eat(a[0])) },
	"crowd":    crowd,
	"hoard": func(a []string) {
		if _, err := fill(a[0], a[1] == "shared"); err != nil {
			say(err)
			return
		}
		fmt.Println("full")
		time.Sleep(time.Minute)
	},
	"fork": fork,

	"signal": func(a []string) { say(syscall.Kill(pid(a[0]), 0)) },
	"trace":  func(a []string) { trace(pid(a[0])) },
	"stay":   func(a []string) { say(spawn(nil, "beat", a[0])); waitFor(a[0]); time.Sleep(time.Minute) },
	"forks":  func([]string) { forks(false) },
	"flees":  func([]string) { forks(true) },
	"meta":   func(a []string) { meta(a[0]) },
	"watch":  func(a []string) { _, err := syscall.InotifyInit1(0); say(err) },
	"sysv":   func([]string) { sysv() },
	"mess":   func([]string) { say(mess()) },
	"run": func(a []string) {
		p, err := os.StartProcess(a[0], a, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
		say(err)
		finish(p)
	},
	"count": count,
	"floods": func(a []string) {
		done := make(chan error)
		go func() { done <- flow(os.Stderr, a[0]) }()
		if flow(os.Stdout, a[0]) != nil || <-done != nil {
			os.Exit(5)
		}
	},
	"words":  func(a []string) { fmt.Printf("%q", a) },
	"state":  func([]string) { state() },
	"litter": litter,
	"lent":   func(a []string) { lent(os.Getenv(a[0])) },
	"parent": func([]string) { fmt.Println(os.Getppid()) },
	"breed":  func(a []string) { breed(a[0]) },

	"leaveflood": leaveflood, "packets": packets, "brood": brood, "steer": steer, "tick": tick,
}

// say prints ok, or the errno of the error if it has one.
func say(err error) {
	var no syscall.Errno
	switch {
	case err == nil:
		fmt.Println("ok")
	case errors.As(err, &no):
		fmt.Println(no.Error())
	default:
		fmt.Println(err)
	}
}

func sees() {
	var head = [2]uint32{0x20080522, 0}
	var caps [6]uint32
	syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&caps)), 0)
	bounding := 0
	for c := uintptr(0); c < 41; c++ {
		r, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, 23, c, 0) // PR_CAPBSET_READ
		if e == 0 && r == 1 {
			bounding++
		}
	}
	nnp, _, _ := syscall.RawSyscall6(syscall.SYS_PRCTL, 39, 0, 0, 0, 0, 0)
	bits, _, _ := syscall.RawSyscall(syscall.SYS_PRCTL, 27, 0, 0)
	var fds []int
	for fd := range 2048 {
		var st syscall.Stat_t
		if syscall.Fstat(fd, &st) == nil {
			fds = append(fds, fd)
		}
	}
	sid, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	_, tty := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	groups, _ := os.Getgroups()
	cwd, _ := os.Getwd()
	host, _ := os.Hostname()
	nics, _ := net.Interfaces()
	up := 0
	for _, n := range nics {
		if n.Flags&net.FlagUp != 0 {
			up++
		}
	}
	umask := syscall.Umask(0)
	var ignored []int
	for sig := uintptr(1); sig <= 64; sig++ {
		if signal.Ignored(syscall.Signal(sig)) {
			ignored = append(ignored, int(sig))
		}
	}
	limits := map[string]syscall.Rlimit{}
	for name, r := range map[string]int{"core": 4, "nofile": 7, "fsize": 1, "nproc": 6} {
		var l syscall.Rlimit
		syscall.Getrlimit(r, &l)
		limits[name] = l
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"uid": os.Getuid(), "euid": os.Geteuid(), "gid": os.Getgid(), "groups": len(groups), "pid": os.Getpid(),
		"leader": int(sid) == os.Getpid(),
		"caps":   caps, "bounding": bounding, "nnp": nnp, "securebits": bits, "env": os.Environ(), "fds": fds,
		"root": names("/"), "dev": names("/dev"), "etc": names("/etc"), "home": names("/home/bailey"),
		"tmp": names("/tmp"),
		"cwd": cwd, "host": host, "up": up, "tty": tty == nil, "umask": umask, "limits": limits, "argv": os.Args,
		"ignored": ignored,
	})
}

// terminal reports whether each of the three streams is the controlling terminal of this session, and whether /dev/tty
// exists.
func terminal() {
	sid, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	for fd := range uintptr(3) {
		var of, group int32
		_, _, e := syscall.RawSyscall(syscall.SYS_IOCTL, fd, syscall.TIOCGSID, uintptr(unsafe.Pointer(&of)))
		_, _, e2 := syscall.RawSyscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
		fmt.Println("stream", fd, e == 0 && e2 == 0 && int(of) == int(sid) && int(group) == syscall.Getpgrp())
	}
	_, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	fmt.Println("tty", err == nil)
}

func names(dir string) []string {
	list := []string{}
	e, _ := os.ReadDir(dir)
	for _, f := range e {
		list = append(list, f.Name())
	}
	return list
}

// spawn starts this program again in a new session, and does not wait for it.
func spawn(out *os.File, args ...string) error {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if out == nil {
		out = null
	}
	_, err = os.StartProcess(os.Args[0], append(os.Args[:1:1], args...), &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{null, out, null}, Sys: &syscall.SysProcAttr{Setsid: true}})
	return err
}

// waitFor returns when the file is not empty.
func waitFor(path string) {
	for range 3000 {
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("it never began")
}

// beat appends to a file as long as it lives.
func beat(a []string) {
	signal.Ignore(syscall.SIGTERM)
	f, err := os.OpenFile(a[0], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		say(err)
		return
	}
	for range 6000 {
		f.WriteString(".")
		time.Sleep(10 * time.Millisecond)
	}
}

// count appends one byte to a file for each run, and ends after the given time.
func count(a []string) {
	f, err := os.OpenFile(a[0], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err == nil {
		_, err = f.WriteString(".")
	}
	if err != nil {
		os.Exit(9)
	}
	if len(a) > 1 {
		d, _ := time.ParseDuration(a[1])
		time.Sleep(d)
	}
}

func tidy([]string) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	fmt.Println("waiting")
	<-c
	fmt.Println("tidied")
	os.Exit(7)
}

func flood(a []string) {
	if flow(os.Stdout, a[0]) != nil {
		os.Exit(5)
	}
}

func flow(to *os.File, bytes string) error {
	var n int
	fmt.Sscan(bytes, &n)
	b := []byte(strings.Repeat("x", 64<<10))
	for ; n > 0; n -= len(b) {
		if _, err := to.Write(b[:min(n, len(b))]); err != nil {
			return err
		}
	}
	return nil
}

// attack tries every way to read or control PID 1.
func attack() {
	try := func(name string, e syscall.Errno) { fmt.Println(name, e == 0, e) }
	_, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, syscall.PTRACE_ATTACH, 1, 0, 0, 0, 0)
	try("attach", e)
	_, _, e = syscall.RawSyscall6(syscall.SYS_PTRACE, 0x4206, 1, 0, 0, 0, 0) // PTRACE_SEIZE
	try("seize", e)
	var b [8]byte
	iov := struct {
		p *byte
		n uint64
	}{&b[0], 8}
	readv := map[string]uintptr{"amd64": 310, "arm64": 270}
	_, _, e = syscall.RawSyscall6(readv[runtime.GOARCH], 1, uintptr(unsafe.Pointer(&iov)), 1,
		uintptr(unsafe.Pointer(&iov)), 1, 0)
	try("vmread", e)
	pidfd, _, e := syscall.RawSyscall(434, 1, 0, 0)
	fmt.Println("pidfd", e)
	_, _, e = syscall.RawSyscall(438, pidfd, 3, 0)
	try("getfd", e)
	for _, f := range []string{"mem", "environ", "maps", "fd", "root", "cwd", "exe"} {
		_, err := os.Open("/proc/1/" + f)
		fmt.Println("proc-"+f, err == nil, err)
	}
}

// bomb starts children until this fails, and prints their number.
func bomb() {
	n := 0
	for ; n < 500; n++ {
		if err := spawn(nil, "beat", os.TempDir()+"/bomb"); err != nil {
			break
		}
	}
	fmt.Println(n)
}

func finish(p *os.Process) {
	if p != nil {
		p.Wait()
	}
}

// pid parses a pid, or returns that of the parent.
func pid(word string) int {
	if word == "parent" {
		return os.Getppid()
	}
	n, err := strconv.Atoi(word)
	if err != nil {
		panic(err)
	}
	return n
}

// trace tries to read and control another process.
func trace(pid int) {
	try := func(name string, e syscall.Errno) { fmt.Println(name, e == 0, e) }
	_, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, 0x4206, uintptr(pid), 0, 0, 0, 0) // PTRACE_SEIZE
	try("seize", e)
	_, _, e = syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), 4, 0, 0, 0, 0)
	try("limits", e)
	for _, f := range []string{"mem", "environ", "maps", "fd/0", "status", "cmdline"} {
		_, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, f))
		fmt.Println("proc-"+f, err == nil, err)
	}
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	fmt.Println("cwd", err == nil, err)
}

// meta tries to change the metadata of a file, by path and by descriptor.
func meta(path string) {
	try := func(name string, err error) { fmt.Println(name, err == nil, err) }
	try("chmod", os.Chmod(path, 0o600))
	try("chown", os.Chown(path, os.Getuid(), os.Getgid()))
	try("utimes", os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
	try("setxattr", syscall.Setxattr(path, "user.bailey", []byte("x"), 0))
	fd, err := syscall.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return
	}
	try("fchmod", syscall.Fchmod(fd, 0o600))
	try("futimes", syscall.Futimes(fd, []syscall.Timeval{{Sec: 1}, {Sec: 1}}))
}

// sysv requests a shared memory segment, a semaphore and a message queue.
func sysv() {
	numbers := map[string][3]uintptr{"amd64": {29, 64, 68}, "arm64": {194, 190, 186}}[runtime.GOARCH]
	for i, name := range []string{"shm", "sem", "msg"} {
		args := [3][3]uintptr{{0, 4096, 0o600}, {0, 1, 0o600}, {0, 0o600, 0}}[i]
		id, _, e := syscall.RawSyscall(numbers[i], args[0], args[1], args[2])
		fmt.Println(name, e == 0, e)
		if e == 0 { // if a cage allows it, a test must not leave the object
			remove := map[string][3]uintptr{"amd64": {31, 66, 71}, "arm64": {195, 191, 187}}[runtime.GOARCH]
			syscall.RawSyscall(remove[i], id, 0, 0) // IPC_RMID is 0
		}
	}
}

// mess leaves files in HOME that are hard to remove, for example a tree deeper than any path, directories without
// rights, links that lead elsewhere, and unusual names.
func mess() error {
	home := os.Getenv("HOME")
	for name, to := range map[string]string{"out": "/etc", "up": "..", "self": "self", "file": "/etc/passwd"} {
		if err := os.Symlink(to, home+"/"+name); err != nil {
			return err
		}
	}
	for i := range 600 {
		if err := os.WriteFile(fmt.Sprintf("%s/%03d\n\x01-rf", home, i), nil, 0); err != nil {
			return err
		}
	}
	syscall.Mkfifo(home+"/pipe", 0)
	if err := os.Chdir(home); err != nil {
		return err
	}
	for range 3000 { // 600 KB of path
		if err := os.Mkdir(strings.Repeat("d", 200), 0o700); err != nil {
			return err
		}
		if err := os.Chdir(strings.Repeat("d", 200)); err != nil {
			return err
		}
		os.WriteFile("f", nil, 0)
		os.Symlink("..", "s")
	}
	closed := home + "/closed"
	if err := os.MkdirAll(closed+"/in", 0o700); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(closed+"/in/f", nil, 0), shut(closed+"/in"), shut(closed))
}

// shut removes all rights from a directory. If chmod is denied, as in its cage, it creates a directory under a umask
// instead.
func shut(dir string) error {
	if os.Chmod(dir, 0) == nil {
		return nil
	}
	defer syscall.Umask(syscall.Umask(0o777))
	return os.Mkdir(dir+"-made", 0o777)
}

// pair creates a pair of stream sockets. If path is not empty, it creates datagram sockets and sends a datagram to
// path.
func pair(path string) error {
	if path == "" {
		_, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		return err
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	return syscall.Sendto(fds[0], []byte("out of the cage"), 0, &syscall.SockaddrUnix{Name: path})
}

// eat allocates this many MiB of private writable memory. It first waits until the limit is in force: PID 1 sets it as
// soon as the tool runs, which may be late on a busy machine.
func eat(mib string) error {
	time.Sleep(300 * time.Millisecond)
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	_, err = syscall.Mmap(-1, 0, n<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	return err
}

// fill allocates this many MiB and writes to every page, so that they are in memory. Shared pages belong to no single
// process.
func fill(mib string, shared bool) ([]byte, error) {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return nil, err
	}
	flags := syscall.MAP_ANON | syscall.MAP_PRIVATE
	if shared {
		flags = syscall.MAP_ANON | syscall.MAP_SHARED
	}
	b, err := syscall.Mmap(-1, 0, n<<20, syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return b, nil
}

// crowd starts n children, each of which fills this many MiB and stays. It reports whether all succeeded.
func crowd(a []string) {
	n, _ := strconv.Atoi(a[0])
	r, w, err := os.Pipe()
	if err != nil {
		say(err)
		return
	}
	for range n {
		p, err := os.StartProcess(os.Args[0], []string{os.Args[0], "hoard", a[1], a[2]},
			&os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, w, nil}})
		if err != nil {
			say(err)
			return
		}
		go func() { // the group may end only one child: then not all fit
			state, err := p.Wait()
			fmt.Println("one ended:", state, err)
			os.Exit(9)
		}()
	}
	var b [5]byte
	for range n {
		if _, err := io.ReadFull(r, b[:]); err != nil || string(b[:]) != "full\n" {
			fmt.Println("one said", string(b[:]), err)
			os.Exit(8)
		}
	}
	time.Sleep(300 * time.Millisecond) // a watcher checks only periodically
	fmt.Println("all fit")
}

// fork fills this many MiB, and starts children that share the pages and write to none.
func fork(a []string) {
	if _, err := fill(a[1], false); err != nil {
		say(err)
		return
	}
	n, _ := strconv.Atoi(a[0])
	for range n {
		pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if e != 0 {
			say(e)
			return
		}
		for pid == 0 { // no Go code can run here
			syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	time.Sleep(300 * time.Millisecond)
	fmt.Println("all fit")
}

// findKey searches the session keyring for a key.
func findKey(name string) error {
	kind, _ := syscall.BytePtrFromString("user")
	desc, _ := syscall.BytePtrFromString(name)
	session := ^uintptr(2) // KEY_SPEC_SESSION_KEYRING is -3
	_, _, e := syscall.RawSyscall6(syscall.SYS_KEYCTL, 10, session, uintptr(unsafe.Pointer(kind)),
		uintptr(unsafe.Pointer(desc)), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// breed starts itself again and again, in new sessions and ignoring SIGTERM, and so does each child.
func breed(token string) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	for {
		if spawn(nil, "breed", token) != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// forks forks forever with raw system calls, since a forked child has no working Go runtime. All children do the same,
// or each process ends after its fork, so that only the first lives long.
func forks(flee bool) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	nap := syscall.Timespec{Nsec: 1e6}
	first := true
	for {
		pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		switch {
		case e != 0:
			syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&nap)), 0, 0)
		case pid == 0:
			first = false
		case flee && first:
			for {
				syscall.RawSyscall(syscall.SYS_WAIT4, ^uintptr(0), 0, 0)
				syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&nap)), 0, 0)
			}
		case flee:
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
}

// crash ends so that the kernel would dump its memory. If limits are given, it first sets the core limit to each.
func crash(limits []string) {
	for _, l := range limits {
		var n uint64
		fmt.Sscan(l, &n)
		syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{Cur: n, Max: n})
	}
	debug.SetTraceback("crash")
	panic("on purpose")
}
