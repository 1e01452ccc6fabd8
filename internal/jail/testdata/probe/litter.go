package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What litter leaves, and state looks for.
const (
	litterKey  = 0x4c495454
	litterName = "litter"
	abstract   = "@litter"
)

var keyrings = map[string]int{"thread": unix.KEY_SPEC_THREAD_KEYRING, "process": unix.KEY_SPEC_PROCESS_KEYRING, "session": unix.KEY_SPEC_SESSION_KEYRING,
	"user": unix.KEY_SPEC_USER_KEYRING, "user-session": unix.KEY_SPEC_USER_SESSION_KEYRING}

// state prints, as JSON, all that a call before this one might have changed, by name.
func state() {
	s := map[string]string{"env": fmt.Sprint(os.Environ()), "groups": fmt.Sprint(os.Getgroups()), "umask": fmt.Sprint(syscall.Umask(0))}
	syscall.Umask(0o022)
	number := func(name string, trap uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		r, _, e := syscall.RawSyscall6(trap, a[0], a[1], a[2], a[3], a[4], a[5])
		if s[name] = fmt.Sprint(r); e != 0 {
			s[name] = e.Error()
		}
	}
	for _, root := range []string{"/tmp", "/home", "/dev", "/run", "/var"} {
		filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			var st syscall.Stat_t
			syscall.Lstat(path, &st)
			s["file "+path] = fmt.Sprintf("%o %d %d %d %v", st.Mode, st.Uid, st.Nlink, st.Size, err)
			return nil
		})
	}
	s["/"] = fmt.Sprint(names("/"))
	s["cwd"], _ = os.Getwd()
	s["host"], _ = os.Hostname()
	s["ids"] = fmt.Sprint(os.Getpid() > 1, os.Getpid() == syscall.Getpgrp(), os.Getuid(), os.Getgid())
	number("session is the process", unix.SYS_GETSID)
	s["session is the process"] = fmt.Sprint(s["session is the process"] == strconv.Itoa(os.Getpid()))
	s["others"] = fmt.Sprint(syscall.Kill(-1, 0))
	for r := range 16 {
		var l unix.Rlimit
		unix.Getrlimit(r, &l)
		s[fmt.Sprint("rlimit ", r)] = fmt.Sprint(l)
	}
	for name, option := range map[string]uintptr{"timer slack": 30, "dumpable": 3, "keep capabilities": 7, "no new privileges": 39, "huge pages": 42} {
		number(name, unix.SYS_PRCTL, option)
	}
	var word int32
	number("death signal", unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&word)))
	s["death signal"] += fmt.Sprint(" ", word)
	number("subreaper", unix.SYS_PRCTL, unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&word)))
	s["subreaper"] += fmt.Sprint(" ", word)
	number("nice", unix.SYS_GETPRIORITY)
	number("scheduler", unix.SYS_SCHED_GETSCHEDULER)
	number("io priority", unix.SYS_IOPRIO_GET, 1)
	number("personality", unix.SYS_PERSONALITY, 0xffffffff)
	var cpus unix.CPUSet
	unix.SchedGetaffinity(0, &cpus)
	s["processors"] = fmt.Sprint(cpus)
	var timer [4]int64
	number("timer", unix.SYS_GETITIMER, 0, uintptr(unsafe.Pointer(&timer)))
	s["timer"] += fmt.Sprint(timer)
	var mask, pending uint64
	number("blocked", unix.SYS_RT_SIGPROCMASK, 0, 0, uintptr(unsafe.Pointer(&mask)), 8)
	number("pending", unix.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&pending)), 8)
	s["blocked"], s["pending"] = fmt.Sprint(mask), fmt.Sprint(pending)
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if signal.Ignored(sig) {
			s["ignored "+sig.String()] = "yes"
		}
	}
	for fd := range 2048 {
		var st syscall.Stat_t
		if syscall.Fstat(fd, &st) == nil {
			s[fmt.Sprint("descriptor ", fd)] = fmt.Sprintf("%o", st.Mode&syscall.S_IFMT)
		}
	}
	number("segment", unix.SYS_SHMGET, litterKey, 0, 0)
	number("semaphore", unix.SYS_SEMGET, litterKey, 0, 0)
	number("messages", unix.SYS_MSGGET, litterKey, 0)
	number("queue", unix.SYS_MQ_OPEN, text(litterName), 0)
	for name, ring := range keyrings {
		number("key of "+name, unix.SYS_KEYCTL, unix.KEYCTL_SEARCH, uintptr(ring), text("user"), text(litterName))
	}
	for _, address := range []string{abstract, "/tmp/" + litterName + ".socket"} {
		_, err := net.Dial("unix", address)
		s["dial "+address] = fmt.Sprint(err)
	}
	_, err := net.Dial("tcp", "127.0.0.1:4711")
	s["dial tcp"] = fmt.Sprint(err)
	s["writes"] = fmt.Sprint(os.WriteFile("/tmp/state", nil, 0o600)) // a ruleset of another's would forbid it
	var use syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &use)
	s["children used"] = fmt.Sprint(use)
	b, _ := json.Marshal(s)
	os.Stdout.Write(append(b, '\n'))
}

func text(s string) uintptr {
	b, _ := syscall.BytePtrFromString(s)
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(b))
}

var kept []*byte

// litter leaves behind all that a tool can, and says of each whether the cage let it. Told to stay, it does.
func litter(args []string) {
	left := func(name string, err error) { fmt.Print(name, " "); say(err) }
	raw := func(name string, trap uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		_, _, e := syscall.RawSyscall6(trap, a[0], a[1], a[2], a[3], a[4], a[5])
		left(name, number(0, 0, e))
	}
	for _, dir := range []string{"/tmp", "/home/bailey", "/home", "/dev", "/dev/shm", "/", "/run", "/var"} {
		left("file in "+dir, os.WriteFile(filepath.Join(dir, litterName), []byte(litterName), 0o666))
	}
	left("mode of /tmp", os.Chmod("/tmp", 0o711))
	left("mode of home", os.Chmod("/home/bailey", 0o711))
	for _, address := range []string{abstract, "/tmp/" + litterName + ".socket"} {
		_, err := net.Listen("unix", address)
		left("socket "+address, err)
	}
	_, err := net.Listen("tcp", "127.0.0.1:4711")
	left("port", err)
	raw("segment", unix.SYS_SHMGET, litterKey, 4096, unix.IPC_CREAT|0o666)
	raw("semaphore", unix.SYS_SEMGET, litterKey, 1, unix.IPC_CREAT|0o666)
	raw("messages", unix.SYS_MSGGET, litterKey, unix.IPC_CREAT|0o666)
	raw("queue", unix.SYS_MQ_OPEN, text(litterName), unix.O_CREAT|unix.O_RDWR, 0o666)
	for name, ring := range keyrings {
		raw("key of "+name, unix.SYS_ADD_KEY, text("user"), text(litterName), text("x"), 1, uintptr(ring))
	}
	left("host name", syscall.Sethostname([]byte("litter")))
	left("domain", syscall.Setdomainname([]byte("litter")))
	syscall.Umask(0o777)
	left("cwd", os.Chdir("/"))
	left("environment", os.Setenv("LITTER", "x"))
	for r := range 16 {
		limit := unix.Rlimit{Cur: 5 << 20, Max: 6 << 20}
		if r == unix.RLIMIT_AS || r == unix.RLIMIT_STACK { // with less this program could not go on
			limit = unix.Rlimit{Cur: 1 << 40, Max: 1 << 41}
		}
		if r == unix.RLIMIT_DATA {
			limit = unix.Rlimit{Cur: 200 << 20, Max: 300 << 20}
		}
		left(fmt.Sprint("rlimit ", r), unix.Setrlimit(r, &limit))
	}
	for name, args := range map[string][]uintptr{"timer slack": {29, 12345}, "dumpable": {4, 0}, "subreaper": {36, 1}, "death signal": {1, 9}, "huge pages": {41, 1}} {
		raw(name, unix.SYS_PRCTL, args...)
	}
	raw("nice", unix.SYS_SETPRIORITY, 0, 0, 7)
	raw("io priority", unix.SYS_IOPRIO_SET, 1, 0, 3<<13)
	var priority int32
	raw("scheduler", unix.SYS_SCHED_SETSCHEDULER, 0, 3, uintptr(unsafe.Pointer(&priority))) // SCHED_BATCH
	var cpus unix.CPUSet
	cpus.Set(0)
	left("processors", unix.SchedSetaffinity(0, &cpus))
	raw("personality", unix.SYS_PERSONALITY, 0x0040000) // ADDR_NO_RANDOMIZE
	timer := [4]int64{0, 0, 100, 0}
	raw("timer", unix.SYS_SETITIMER, 0, uintptr(unsafe.Pointer(&timer)), 0)
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1)
	all := ^uint64(0)
	raw("signals blocked", unix.SYS_RT_SIGPROCMASK, 0, uintptr(unsafe.Pointer(&all)), 0, 8)
	raw("no new privileges", unix.SYS_PRCTL, 38, 1)
	allow := []unix.SockFilter{{Code: 0x06, K: 0x7fff0000}}
	program := unix.SockFprog{Len: 1, Filter: &allow[0]}
	raw("seccomp", unix.SYS_PRCTL, 22, 2, uintptr(unsafe.Pointer(&program)))
	rights := uint64(1 << 1) // LANDLOCK_ACCESS_FS_WRITE_FILE
	ruleset, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rights)), 8, 0)
	left("ruleset", number(0, 0, e))
	raw("landlock", unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
	var fds []int
	for range 20 {
		if fd, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0); err == nil {
			fds = append(fds, fd)
		}
	}
	left("descriptors", nil)
	slices.Reverse(fds)
	for name, flags := range map[string]uintptr{"child": 0, "sibling": syscall.CLONE_PARENT} {
		for range 3 {
			pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD)|flags, 0, 0, 0, 0, 0)
			if pid == 0 && e == 0 { // no Go code can run here: a grandchild, then both wait for what never comes
				syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD)|flags, 0, 0, 0, 0, 0)
				syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
				for {
					syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
				}
			}
			left(name, number(0, 0, e))
		}
	}
	left("littered", nil)
	if len(args) > 0 {
		time.Sleep(time.Minute)
	}
}
