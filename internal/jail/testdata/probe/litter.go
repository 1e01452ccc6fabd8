package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Names that litter uses and that state looks for.
const (
	litterKey  = 0x4c495454
	litterName = "litter"
	abstract   = "@litter"
)

var keyrings = map[string]int{"thread": unix.KEY_SPEC_THREAD_KEYRING, "process": unix.KEY_SPEC_PROCESS_KEYRING,
	"session": unix.KEY_SPEC_SESSION_KEYRING,
	"user":    unix.KEY_SPEC_USER_KEYRING, "user-session": unix.KEY_SPEC_USER_SESSION_KEYRING}

// A record holds the observations of a call, by name.
type record map[string]string

// number records the result of a system call.
func (s record) number(name string, trap uintptr, args ...uintptr) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, e := syscall.RawSyscall6(trap, a[0], a[1], a[2], a[3], a[4], a[5])
	if s[name] = fmt.Sprint(r); e != 0 {
		s[name] = e.Error()
	}
}

// state prints everything that an earlier call might have changed, as JSON.
func state() {
	s := record{}
	s.files()
	s.process()
	s.signals()
	s.shared()
	b, _ := json.Marshal(s)
	os.Stdout.Write(append(b, '\n'))
}

func (s record) files() {
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
	for fd := range 2048 {
		var st syscall.Stat_t
		if syscall.Fstat(fd, &st) == nil {
			s[fmt.Sprint("descriptor ", fd)] = fmt.Sprintf("%o", st.Mode&syscall.S_IFMT)
		}
	}
	s["writes"] = fmt.Sprint(os.WriteFile("/tmp/state", nil, 0o600)) // fails if a ruleset of another call applies
}

// process records attributes that a process has or inherits.
func (s record) process() {
	s["env"], s["groups"] = fmt.Sprint(os.Environ()), fmt.Sprint(os.Getgroups())
	s["umask"] = fmt.Sprint(syscall.Umask(0o022))
	s["host"], _ = os.Hostname()
	s["ids"] = fmt.Sprint(os.Getpid() > 1, os.Getpid() == syscall.Getpgrp(), os.Getuid(), os.Getgid())
	s.number("session is the process", unix.SYS_GETSID)
	s["session is the process"] = fmt.Sprint(s["session is the process"] == strconv.Itoa(os.Getpid()))
	s["others"] = fmt.Sprint(syscall.Kill(-1, 0))
	for r := range 16 {
		var l unix.Rlimit
		unix.Getrlimit(r, &l)
		s[fmt.Sprint("rlimit ", r)] = fmt.Sprint(l)
	}
	for name, option := range map[string]uintptr{"timer slack": 30, "dumpable": 3, "keep capabilities": 7,
		"no new privileges": 39, "huge pages": 42} {
		s.number(name, unix.SYS_PRCTL, option)
	}
	var word int32
	s.number("death signal", unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&word)))
	s["death signal"] += fmt.Sprint(" ", word)
	s.number("subreaper", unix.SYS_PRCTL, unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&word)))
	s["subreaper"] += fmt.Sprint(" ", word)
	s.number("nice", unix.SYS_GETPRIORITY)
	s.number("scheduler", unix.SYS_SCHED_GETSCHEDULER)
	s.number("io priority", unix.SYS_IOPRIO_GET, 1)
	s.number("personality", unix.SYS_PERSONALITY, 0xffffffff)
	var cpus unix.CPUSet
	unix.SchedGetaffinity(0, &cpus)
	s["processors"] = fmt.Sprint(cpus)
	var use syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &use)
	s["children used"] = fmt.Sprint(use)
}

func (s record) signals() {
	var timer [4]int64
	s.number("timer", unix.SYS_GETITIMER, 0, uintptr(unsafe.Pointer(&timer)))
	s["timer"] += fmt.Sprint(timer)
	var mask, pending uint64
	s.number("blocked", unix.SYS_RT_SIGPROCMASK, 0, 0, uintptr(unsafe.Pointer(&mask)), 8)
	s.number("pending", unix.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&pending)), 8)
	s["blocked"], s["pending"] = fmt.Sprint(mask), fmt.Sprint(pending)
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if signal.Ignored(sig) {
			s["ignored "+sig.String()] = "yes"
		}
	}
}

// shared records objects that processes share by name or number.
func (s record) shared() {
	s.number("segment", unix.SYS_SHMGET, litterKey, 0, 0)
	s.number("semaphore", unix.SYS_SEMGET, litterKey, 0, 0)
	s.number("messages", unix.SYS_MSGGET, litterKey, 0)
	s.number("queue", unix.SYS_MQ_OPEN, text(litterName), 0)
	for name, ring := range keyrings {
		s.number("key of "+name, unix.SYS_KEYCTL, unix.KEYCTL_SEARCH, uintptr(ring), text("user"), text(litterName))
	}
	for _, address := range []string{abstract, "/tmp/" + litterName + ".socket"} {
		_, err := net.Dial("unix", address)
		s["dial "+address] = fmt.Sprint(err)
	}
	_, err := net.Dial("tcp", "127.0.0.1:4711")
	s["dial tcp"] = fmt.Sprint(err)
}

func text(s string) uintptr {
	b, _ := syscall.BytePtrFromString(s)
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(b))
}

var kept []*byte

// left reports that something was left, or the error.
func left(name string, err error) { fmt.Print(name, " "); say(err) }

// leave leaves something by a system call.
func leave(name string, trap uintptr, args ...uintptr) {
	var a [6]uintptr
	copy(a[:], args)
	_, _, e := syscall.RawSyscall6(trap, a[0], a[1], a[2], a[3], a[4], a[5])
	left(name, number(0, 0, e))
}

// litter leaves everything that a tool can leave, and reports for each item whether the cage allowed it. With an
// argument it then stays.
func litter(args []string) {
	leaveFiles()
	leaveShared()
	leaveSettings()
	leaveRules()
	leaveChildren()
	left("littered", nil)
	if len(args) > 0 {
		time.Sleep(time.Minute)
	}
}

func leaveFiles() {
	for _, dir := range []string{"/tmp", "/home/bailey", "/home", "/dev", "/dev/shm", "/", "/run", "/var"} {
		left("file in "+dir, os.WriteFile(filepath.Join(dir, litterName), []byte(litterName), 0o666))
	}
	left("mode of /tmp", os.Chmod("/tmp", 0o711))
	left("mode of home", os.Chmod("/home/bailey", 0o711))
	syscall.Umask(0o777)
	left("cwd", os.Chdir("/"))
}

func leaveShared() {
	for _, address := range []string{abstract, "/tmp/" + litterName + ".socket"} {
		_, err := net.Listen("unix", address)
		left("socket "+address, err)
	}
	_, err := net.Listen("tcp", "127.0.0.1:4711")
	left("port", err)
	leave("segment", unix.SYS_SHMGET, litterKey, 4096, unix.IPC_CREAT|0o666)
	leave("semaphore", unix.SYS_SEMGET, litterKey, 1, unix.IPC_CREAT|0o666)
	leave("messages", unix.SYS_MSGGET, litterKey, unix.IPC_CREAT|0o666)
	leave("queue", unix.SYS_MQ_OPEN, text(litterName), unix.O_CREAT|unix.O_RDWR, 0o666)
	for name, ring := range keyrings {
		leave("key of "+name, unix.SYS_ADD_KEY, text("user"), text(litterName), text("x"), 1, uintptr(ring))
	}
	left("host name", syscall.Sethostname([]byte("litter")))
	left("domain", syscall.Setdomainname([]byte("litter")))
}

func leaveSettings() {
	left("environment", os.Setenv("LITTER", "x"))
	for r := range 16 {
		limit := unix.Rlimit{Cur: 5 << 20, Max: 6 << 20}
		if r == unix.RLIMIT_AS || r == unix.RLIMIT_STACK { // with less this program could not continue
			limit = unix.Rlimit{Cur: 1 << 40, Max: 1 << 41}
		}
		if r == unix.RLIMIT_DATA {
			limit = unix.Rlimit{Cur: 200 << 20, Max: 300 << 20}
		}
		left(fmt.Sprint("rlimit ", r), unix.Setrlimit(r, &limit))
	}
	for name, args := range map[string][]uintptr{"timer slack": {29, 12345}, "dumpable": {4, 0}, "subreaper": {36, 1},
		"death signal": {1, 9}, "huge pages": {41, 1}} {
		leave(name, unix.SYS_PRCTL, args...)
	}
	leave("nice", unix.SYS_SETPRIORITY, 0, 0, 7)
	leave("io priority", unix.SYS_IOPRIO_SET, 1, 0, 3<<13)
	var priority int32
	leave("scheduler", unix.SYS_SCHED_SETSCHEDULER, 0, 3, uintptr(unsafe.Pointer(&priority))) // SCHED_BATCH
	var cpus unix.CPUSet
	cpus.Set(0)
	left("processors", unix.SchedSetaffinity(0, &cpus))
	leave("personality", unix.SYS_PERSONALITY, 0x0040000) // ADDR_NO_RANDOMIZE
	timer := [4]int64{0, 0, 100, 0}
	leave("timer", unix.SYS_SETITIMER, 0, uintptr(unsafe.Pointer(&timer)), 0)
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1)
	all := ^uint64(0)
	leave("signals blocked", unix.SYS_RT_SIGPROCMASK, 0, uintptr(unsafe.Pointer(&all)), 0, 8)
}

// leaveRules restricts this process and its later children.
func leaveRules() {
	leave("no new privileges", unix.SYS_PRCTL, 38, 1)
	allow := []unix.SockFilter{{Code: 0x06, K: 0x7fff0000}}
	program := unix.SockFprog{Len: 1, Filter: &allow[0]}
	leave("seccomp", unix.SYS_PRCTL, 22, 2, uintptr(unsafe.Pointer(&program)))
	rights := uint64(1 << 1) // LANDLOCK_ACCESS_FS_WRITE_FILE
	ruleset, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rights)), 8, 0)
	left("ruleset", number(0, 0, e))
	leave("landlock", unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
}

func leaveChildren() {
	for range 20 {
		syscall.Open("/dev/null", syscall.O_RDONLY, 0)
	}
	left("descriptors", nil)
	for name, flags := range map[string]uintptr{"child": 0, "sibling": syscall.CLONE_PARENT} {
		for range 3 {
			pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD)|flags, 0, 0, 0, 0, 0)
			if pid == 0 && e == 0 { // no Go code can run here: creates a grandchild, and both wait forever
				syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD)|flags, 0, 0, 0, 0, 0)
				syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
				for {
					syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
				}
			}
			left(name, number(0, 0, e))
		}
	}
}
