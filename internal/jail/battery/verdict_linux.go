package battery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// A verdict is what a probe saw. The zero verdict says nothing, which is odd.
type verdict struct{ held, open, odd string }

// stopping are the errors with which a kernel refuses, or has nothing to give. Others need the probe's word:
// EINVAL or EFAULT as an answer mostly means that the probe asked wrongly, and would be stopped by no wall.
var stopping = []syscall.Errno{syscall.EPERM, syscall.EACCES, syscall.EROFS, syscall.ENOSYS, syscall.ENOENT,
	syscall.ESRCH, syscall.ENXIO, syscall.ENODEV, syscall.ENOKEY}

// refused turns the outcome of one attempt into a verdict. also lists errors that stop this very attempt.
func refused(err error, got string, also ...syscall.Errno) verdict {
	var no syscall.Errno
	switch {
	case err == nil:
		return verdict{open: got}
	case errors.As(err, &no) && (slices.Contains(stopping, no) || slices.Contains(also, no)):
		return verdict{held: err.Error()}
	}
	return verdict{odd: err.Error()}
}

func held(format string, a ...any) verdict   { return verdict{held: fmt.Sprintf(format, a...)} }
func opened(format string, a ...any) verdict { return verdict{open: fmt.Sprintf(format, a...)} }
func odd(format string, a ...any) verdict    { return verdict{odd: fmt.Sprintf(format, a...)} }

// A series is several attempts under one name: open when one is, odd when one is and none is open.
type series struct {
	open, odd []string
	held      string // the last refusal
	n         int
}

func (s *series) add(what string, v verdict) {
	s.n++
	switch {
	case v.open != "":
		s.open = append(s.open, what+": "+v.open)
	case v.held != "":
		s.held = what + ": " + v.held
	default:
		s.odd = append(s.odd, what+": "+v.odd)
	}
}

func (s *series) verdict() verdict {
	switch {
	case len(s.open) > 0:
		return verdict{open: clip(strings.Join(s.open, "; "))}
	case len(s.odd) > 0:
		return verdict{odd: clip(strings.Join(s.odd, "; "))}
	case s.n == 0:
		return verdict{odd: "nothing was tried"}
	}
	return held("%d refused, the last %s", s.n, s.held)
}

func clip(s string) string { return s[:min(len(s), 400)] }

// sys makes a system call as it is.
//
//go:uintptrescapes
func sys(trap uintptr, a ...uintptr) (uintptr, error) {
	var r [6]uintptr
	copy(r[:], a)
	v, _, e := syscall.Syscall6(trap, r[0], r[1], r[2], r[3], r[4], r[5])
	if e != 0 {
		return v, e
	}
	return v, nil
}

// call is a probe that is one system call.
//
//go:uintptrescapes
func call(got string, trap uintptr, a ...uintptr) verdict {
	_, err := sys(trap, a...)
	return refused(err, got)
}
