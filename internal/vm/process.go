//go:build linux

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"bailey"
)

// eachProcess calls f with every process and its user id.
func eachProcess(f func(pid, uid int)) error {
	dir, err := os.Open("/proc")
	if err != nil {
		return bailey.Unavailable.Wrap(err, "cannot list the processes", "mount /proc")
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		pid, notNumber := strconv.Atoi(name)
		var st unix.Stat_t
		if notNumber == nil && unix.Stat("/proc/"+name, &st) == nil {
			f(pid, int(st.Uid))
		}
	}
	return err
}

// hasName reports whether a process has the random name of a machine as one of its arguments.
func hasName(pid int, name string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && name != "" && slices.Contains(strings.Split(string(text), "\x00"), name)
}

// startTime returns the clock tick since boot at which a process began (proc(5), field 22).
func startTime(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name may contain spaces
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// bootID identifies a run of the kernel. Start times of different runs cannot be compared.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// openProcess returns a pidfd of the recorded process, or nil if it has ended.
func openProcess(r record) *os.File {
	if r.PID <= 0 || r.Boot != bootID() {
		return nil
	}
	fd, err := unix.PidfdOpen(r.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// From here on the process cannot be exchanged, so the checks hold for what the pidfd names.
	if start, err := startTime(r.PID); err != nil || start != r.Start || !hasName(r.PID, r.Name) {
		f.Close()
		return nil
	}
	return f
}

// waitEnd waits until the process of a pidfd has ended. It returns false if the pidfd was closed before.
func waitEnd(pidfd *os.File) bool {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return false
	}
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	}) == nil
}

// killStrays kills every process of a machine, whether recorded or not, and waits until none holds the lock of alive.
// A process that has not yet executed QEMU shows only by that lock. If ownUID is set, the machine's user id is not of
// another machine, and every process with it is killed.
func (h *Host) killStrays(ctx context.Context, dir string, r record, ownUID bool) error {
	alive, err := os.OpenFile(filepath.Join(dir, aliveFile), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err == nil {
		defer alive.Close()
	}
	for end := time.Now().Add(h.QEMUTime); ; time.Sleep(2 * time.Millisecond) {
		left := 0
		err := eachProcess(func(pid, uid int) {
			if pid != os.Getpid() && uid == r.UID && (ownUID || hasName(pid, r.Name)) && !isZombie(pid) {
				left++
				unix.Kill(pid, unix.SIGKILL)
			}
		})
		locked := false
		if alive != nil && left == 0 {
			locked = errors.Is(unix.Flock(int(alive.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
		}
		switch {
		case err != nil:
			return err
		case left == 0 && !locked:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(end):
			return bailey.Unavailable.Errorf(`find it with "fuser -v `+dir+`/alive" and end it`,
				"a process of the machine in %s does not end", dir)
		}
	}
}

// isZombie reports whether a process has ended and was not waited for.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	state := strings.TrimSpace(string(text[bytes.LastIndexByte(text, ')')+1:]))
	return err != nil || strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

// dialSocket connects to a socket whose path may be longer than a socket address.
func dialSocket(ctx context.Context, path string) (*net.UnixConn, error) {
	address, closeDir, err := shortAddress(path)
	if err != nil {
		return nil, err
	}
	defer closeDir()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", address)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

func shortAddress(path string) (address string, closeDir func() error, err error) {
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), dir.Close, nil
}

// listenSocket creates a socket that listens, for QEMU to inherit.
func listenSocket(path string) (*os.File, error) {
	address, closeDir, err := shortAddress(path)
	if err != nil {
		return nil, err
	}
	defer closeDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	return l.File()
}

// printableText makes one short line of a text of QEMU, which a guest may control.
func printableText(text string, most int) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, text)
	if runes := []rune(clean); len(runes) > most {
		clean = "…" + string(runes[len(runes)-most:])
	}
	return strings.TrimSpace(clean)
}

const maxLog = 16 << 10 // bytes that QEMU may write on standard error

// newLog creates a file of fixed size for QEMU's standard error. It outlives this process, and cannot fill a disk.
func newLog() (*os.File, error) {
	f, err := newMemory("qemu-log", maxLog)
	if err != nil {
		return nil, err
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, fixedSize)
	return f, err
}

// lastLines returns the end of QEMU's standard error.
func lastLines(log *os.File) string {
	if log == nil {
		return ""
	}
	text := make([]byte, maxLog)
	n, _ := log.ReadAt(text, 0)
	text, _, _ = bytes.Cut(text[:n], []byte{0})
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return printableText(strings.Join(lines[max(0, len(lines)-3):], "; "), 600)
}

// explainEnd returns the error of a QEMU that has ended. state is nil if this process did not start it.
func explainEnd(state *os.ProcessState, log *os.File) error {
	how, text := "it was started by another process, which could see how", lastLines(log)
	if state != nil {
		how = state.String()
	}
	hint := "see the kernel's log if QEMU was killed; start the sandbox again"
	switch {
	case strings.Contains(text, "KVM") && (strings.Contains(text, "ermission") || strings.Contains(text, "access")):
		return bailey.Unavailable.Errorf("let the user id of the machine open /dev/kvm by a group, or run it emulated",
			"QEMU may not use KVM: %s", text)
	case strings.Contains(text, "No space left on device"):
		return bailey.Unavailable.Errorf("free space on the file system of the sandboxes",
			"the disk is full: QEMU ended (%s): %s", how, text)
	case state != nil && state.Sys().(syscall.WaitStatus).Signaled() && text == "":
		return bailey.Unavailable.Errorf(hint, "QEMU ended: %s", how)
	case text == "":
		return bailey.Unavailable.Errorf(hint, "QEMU ended without a message: %s", how)
	}
	return bailey.Unavailable.Errorf(hint, "QEMU ended (%s): %s", how, text)
}
