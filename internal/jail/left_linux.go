package jail

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// Lists tell whether anything lives in a cage beside its PID 1, by the lists of children that the kernel keeps
// (proc_tid_children(5)): of the helper's, and of that PID 1's. When a process ends, its children become PID 1's
// before its parent hears of it. So once the tool has ended, what it has left descends from one of PID 1's
// children, or from one of the helper's other children (clone(2), CLONE_PARENT), whose own go to PID 1 as well.
// None of PID 1's can become the helper's. So where first the helper has no other child, and then PID 1 has none,
// nothing lives.
type lists struct {
	helper, init int    // descriptors of the lists, -1 where there is none
	first        []byte // PID 1, as the helper's list has it when it is alone there
}

// listsOf is to be called while the tool lives. Where the lists cannot be had, no cage is ever seen empty.
func listsOf(helper int) *lists {
	s := &lists{openChildren(helper), -1, nil}
	var b [256]byte
	if n := s.read(s.helper, b[:]); n > 0 {
		if first, _, ok := bytes.Cut(b[:n], []byte(" ")); ok { // the oldest child stands first
			if pid, err := strconv.Atoi(string(first)); err == nil {
				s.init, s.first = openChildren(pid), append(first, ' ')
			}
		}
	}
	return s
}

func openChildren(pid int) int {
	name := strconv.Itoa(pid)
	fd, err := unix.Open("/proc/"+name+"/task/"+name+"/children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

func (s *lists) read(fd int, b []byte) int {
	if fd < 0 {
		return -1
	}
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return -1
	}
	return n
}

// empty tells, of a tool that has been reaped, whether nothing of it lives.
func (s *lists) empty() bool {
	if s == nil {
		return false
	}
	var b [256]byte
	n := s.read(s.helper, b[:])
	if n != 0 && (n < 0 || !bytes.Equal(b[:n], s.first)) { // none: PID 1 was reaped too, which is the last to end
		return false
	}
	return s.read(s.init, b[:]) == 0
}

func (s *lists) close() {
	if s == nil {
		return
	}
	for _, fd := range [...]int{s.helper, s.init} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
