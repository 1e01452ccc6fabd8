package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// leaveflood ends and leaves children that write endlessly. With the argument 0 it only ends.
func leaveflood(a []string) {
	if len(a) > 0 && a[0] == "0" {
		return
	}
	for range 6 {
		spawn(os.Stdout, "flood", "1000000000000")
	}
	time.Sleep(300 * time.Millisecond)
}

// packets writes in packet mode (pipe(2), O_DIRECT; fcntl(2), F_SETFL).
func packets([]string) {
	_, _, e := syscall.Syscall(syscall.SYS_FCNTL, 1, syscall.F_SETFL, syscall.O_DIRECT)
	if e != 0 {
		fmt.Println(e)
	}
	for i := range 12 {
		fmt.Println("line", i)
	}
}

// brood leaves children of its own parent (clone(2), CLONE_PARENT), which write to a file as long as they live.
func brood(a []string) {
	path, _ := syscall.BytePtrFromString(os.Args[0])
	var argv []*byte
	for _, w := range []string{os.Args[0], "beat", a[0]} {
		p, _ := syscall.BytePtrFromString(w)
		argv = append(argv, p)
	}
	argv = append(argv, nil)
	env := []*byte{nil}
	for range 5 {
		const cloneParent = 0x8000
		pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, cloneParent|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if e == 0 && pid == 0 {
			syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&argv[0])),
				uintptr(unsafe.Pointer(&env[0])))
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 1, 0, 0)
		}
		if e != 0 {
			fmt.Println(e)
		}
	}
	waitFor(a[0])
	fmt.Println("left")
}

// steer tries calls on PID 1 that the filter may allow.
func steer([]string) {
	lim := [2]uint64{1, 1}
	for _, c := range [][7]uintptr{
		{syscall.SYS_PRLIMIT64, 1, 0, uintptr(unsafe.Pointer(&lim)), 0},          // RLIMIT_CPU
		{syscall.SYS_PRLIMIT64, 1, 7, uintptr(unsafe.Pointer(&lim)), 0},          // RLIMIT_NOFILE
		{syscall.SYS_PRLIMIT64, 1, 6, uintptr(unsafe.Pointer(&lim)), 0},          // RLIMIT_NPROC
		{syscall.SYS_SETPRIORITY, 0, 1, 19}, {syscall.SYS_SETPRIORITY, 2, 0, 19}, // PRIO_USER
		{syscall.SYS_KILL, 0, 0}, {syscall.SYS_KILL, ^uintptr(0), 9},
	} {
		_, _, e := syscall.RawSyscall6(c[0], c[1], c[2], c[3], c[4], 0, 0)
		fmt.Println(c[0], c[1], e)
	}
}

// tick appends a byte to a file, to count the runs.
func tick(a []string) {
	f, err := os.OpenFile(a[0], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err == nil {
		_, err = f.Write([]byte("x"))
	}
	say(err)
}
