package jail

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// status is the part of a process's status that the watcher needs (proc_pid_status(5)).
type status struct {
	parent  int
	threads uint64
	memory  uint64 // bytes: private, shared without a file, and swapped out
}

func readStatus(dir int) (status, error) {
	text, err := readAt(dir, "status")
	if err != nil {
		return status{}, err
	}
	return parseStatus(text)
}

// parseStatus reads /proc/PID/status. A process that has ended and waits for its parent has no memory.
func parseStatus(text []byte) (s status, err error) {
	var parent, threads bool
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "PPid":
			s.parent, err = strconv.Atoi(value)
			parent = err == nil
		case "Threads":
			s.threads, err = strconv.ParseUint(value, 10, 32)
			threads = err == nil
		}
	}
	if !parent || !threads {
		return status{}, errors.New("/proc shows a process without its parent or threads")
	}
	s.memory, _ = sumKilobytes(text, "RssAnon:", "RssShmem:", "VmSwap:")
	return s, nil
}

// sumKilobytes returns the sum of lines such as "RssAnon: 12 kB", in bytes, and their number.
func sumKilobytes(text []byte, names ...string) (sum uint64, found int) {
	for line := range bytes.Lines(text) {
		w := bytes.Fields(line)
		if len(w) != 3 || string(w[2]) != "kB" {
			continue
		}
		for _, name := range names {
			if string(w[0]) != name {
				continue
			}
			if n, err := strconv.ParseUint(string(w[1]), 10, 50); err == nil {
				sum += n << 10
				found++
			}
		}
	}
	return sum, found
}

// readAt reads at most 64 KiB of a file in /proc.
func readAt(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 2<<10)
	for len(b) < 64<<10 {
		b = slices.Grow(b, 1<<10)
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: name, Err: err}
		}
		if n == 0 {
			break
		}
		b = b[:len(b)+n]
	}
	return b, nil
}
