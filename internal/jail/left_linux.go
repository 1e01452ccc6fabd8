package jail

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// childLists shows whether any process lives in a cage besides its PID 1, from the lists of children that the kernel keeps
// (proc_tid_children(5)): the helper's and that PID 1's. When a process ends, its children become PID 1's before its
// parent learns of it. So once the tool has ended, each process that it left descends from a child of PID 1, or from
// another child of the helper (clone(2), CLONE_PARENT), whose children become PID 1's as well. No child of PID 1 can
// become the helper's. So if first the helper has no other child, and then PID 1 has none, no process lives.
type childLists struct {
	helper, init int    // descriptors of the lists, -1 if not available
	first        []byte // PID 1, as the helper's list shows it if it is the only child
}

// listsOf must be called while the tool lives. If the lists are not available, no cage is ever seen as empty.
func listsOf(helper int) *childLists {
	s := &childLists{openChildren(helper), -1, nil}
	var b [256]byte
	if n := s.readList(s.helper, b[:]); n > 0 {
		if first, _, ok := bytes.Cut(b[:n], []byte(" ")); ok { // the oldest child comes first
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

func (s *childLists) readList(fd int, b []byte) int {
	if fd < 0 {
		return -1
	}
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return -1
	}
	return n
}

// isCageEmpty reports whether no process of a tool lives. The tool must have been reaped.
func (s *childLists) isCageEmpty() bool {
	if s == nil {
		return false
	}
	var b [256]byte
	n := s.readList(s.helper, b[:])
	if n != 0 && (n < 0 || !bytes.Equal(b[:n], s.first)) { // 0: PID 1, which ends last, was reaped too
		return false
	}
	return s.readList(s.init, b[:]) == 0
}

func (s *childLists) close() {
	if s == nil {
		return
	}
	for _, fd := range [...]int{s.helper, s.init} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
