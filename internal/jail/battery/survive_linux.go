package battery

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Ways lists ways to outlive a call. Every process that lives afterwards has the token on its command line.
var Ways = []string{"daemon", "holder", "chain", "stopped", "threads", "traced", "blocked", "flooder"}

// leaveSurvivor leaves a process behind and ends.
func (s *Scene) leaveSurvivor(way string) int {
	child := exec.Command(os.Args[0], "linger", s.Token)
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // outside of the group and the session (trap 9)
	child.Env = append(os.Environ(), lingerEnv+"="+way, "BATTERY_TMP="+s.Tmp)
	switch way {
	case "holder", "flooder":
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
	case "traced":
		child.SysProcAttr.Ptrace = true // it stops at its first instruction, and its tracer ends
	}
	if err := child.Start(); err != nil {
		fmt.Println("refused:", err)
		return 0
	}
	if way == "stopped" {
		child.Process.Signal(syscall.SIGSTOP)
	}
	waitForSignals()
	fmt.Println("left")
	return 0
}

// lingerEnv names the additional action of a lingering process.
const lingerEnv = "BATTERY_LINGER"

// stayAlive stays for a minute and ignores signals.
func stayAlive(token string) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	switch os.Getenv(lingerEnv) {
	case "chain": // each starts the next before it ends, so a list of processes is always outdated
		next := exec.Command(os.Args[0], "linger", token)
		next.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		next.Start()
		return
	case "threads": // the first thread ends, the others do not
		go func() {
			for {
				time.Sleep(time.Millisecond)
			}
		}()
		runtime.LockOSThread()
		syscall.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	case "blocked":
		fifo := filepath.Join(os.Getenv("BATTERY_TMP"), "fifo")
		unix.Mkfifo(fifo, 0o600)
		os.OpenFile(fifo, os.O_WRONLY, 0)
	case "flooder":
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			os.Stdout.Write(make([]byte, 64<<10))
		}
	}
	time.Sleep(time.Minute)
}

// swapNames exchanges two names of a writable place repeatedly, for example while another call binds one of them.
func swapNames(a, b string) int {
	fmt.Println("flipping")
	for {
		if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
			fmt.Println(err)
			return 1
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// stopAllProcesses stops all processes that it can reach, itself last: SIGTERM has no effect any more.
func stopAllProcesses() int {
	syscall.Kill(-1, syscall.SIGSTOP)
	syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	time.Sleep(time.Hour) // if another thread takes the signal first, this one must not end meanwhile
	return 0
}
