package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// calls makes system calls and prints the result of each. A call is a number and its arguments, separated by commas.
// All calls must be harmless even if no filter denies them.
func calls(specs []string) {
	for _, spec := range specs {
		var n [7]uintptr
		for i, word := range strings.Split(spec, ",") {
			v, err := strconv.ParseUint(word, 0, 64)
			if err != nil || i >= len(n) {
				fmt.Println("no such call:", spec)
				return
			}
			n[i] = uintptr(v)
		}
		_, _, e := syscall.RawSyscall6(n[0], n[1], n[2], n[3], n[4], n[5], n[6])
		fmt.Println(spec, e.Error())
	}
}

// int80 calls getpid through the entry point of 32-bit programs.
func int80([]string) {
	if runtime.GOARCH != "amd64" {
		fmt.Println("not on this machine")
		return
	}
	page, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE|syscall.PROT_EXEC,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		say(err)
		return
	}
	copy(page, []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3}) // mov eax, 20; int 0x80; ret
	code := &page[0]
	entry := unsafe.Pointer(&code) // a func is a pointer to a pointer to its code
	(*(*func())(unsafe.Pointer(&entry)))()
	say(nil)
}

// ordinary performs usual operations of programs.
func ordinary([]string) {
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"exec", func() error { return exec.Command(os.Args[0], "exit", "0").Run() }},
		{"threads", threads},
		{"pipe", pipe},
		{"socketpair", func() error { return pair("") }},
		{"epoll", func() error { return made(unix.EpollCreate1(unix.EPOLL_CLOEXEC)) }},
		{"timerfd", func() error { return made(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0)) }},
		{"eventfd", func() error { return made(unix.Eventfd(0, 0)) }},
		{"signalfd", func() error { return made(unix.Signalfd(-1, &unix.Sigset_t{}, 0)) }},
		{"pidfd", func() error { return made(unix.PidfdOpen(os.Getpid(), 0)) }},
		{"random", func() error { _, err := unix.Getrandom(make([]byte, 16), 0); return err }},
		{"signal", func() error { return unix.Kill(os.Getpid(), 0) }},
		{"mode", func() error {
			f, err := os.Create("/tmp/mode")
			if err != nil {
				return err
			}
			return f.Chmod(0o600)
		}},
		{"times", func() error { return os.Chtimes("/tmp/mode", time.Now(), time.Now()) }},
		{"limit", func() error {
			return unix.Prlimit(os.Getpid(), unix.RLIMIT_CORE, nil, new(unix.Rlimit))
		}},
		{"affinity", func() error { var set unix.CPUSet; return unix.SchedGetaffinity(0, &set) }},
		{"personality", func() error { return number(unix.Syscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0)) }},
		{"mmap", func() error { return eat("1") }},
		{"lock", func() error {
			f, err := os.Create("/tmp/lock")
			if err != nil {
				return err
			}
			return unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}},
	} {
		fmt.Print(c.name, " ")
		say(c.do())
	}
}

func number(_, _ uintptr, e syscall.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}

func made(fd int, err error) error {
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

// threads lets eight threads wait for one another, by futex.
func threads() error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	all := map[int]bool{}
	begin := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			runtime.LockOSThread()
			<-begin
			mu.Lock()
			all[unix.Gettid()] = true
			mu.Unlock()
		})
	}
	close(begin)
	wg.Wait()
	if len(all) != 8 {
		return fmt.Errorf("%d threads", len(all))
	}
	return nil
}

func pipe() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	go func() { w.WriteString("x"); w.Close() }()
	b := make([]byte, 2)
	if n, err := r.Read(b); n != 1 || err != nil {
		return fmt.Errorf("%d bytes, %v", n, err)
	}
	return nil
}
