package battery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// A verdict is the outcome of a probe. The zero verdict is odd.
type verdict struct{ held, open, odd string }

// refusalErrnos lists the errors with which a kernel refuses, or has nothing to give. The probe must name others: EINVAL or
// EFAULT mostly means that the probe's own arguments are wrong, so that no layer would have to stop it.
var refusalErrnos = []syscall.Errno{syscall.EPERM, syscall.EACCES, syscall.EROFS, syscall.ENOSYS, syscall.ENOENT,
	syscall.ESRCH, syscall.ENXIO, syscall.ENODEV, syscall.ENOKEY}

// errorVerdict turns the outcome of one attempt into a verdict. also lists errors that stop this particular attempt.
func errorVerdict(err error, got string, also ...syscall.Errno) verdict {
	var no syscall.Errno
	switch {
	case err == nil:
		return verdict{open: got}
	case errors.As(err, &no) && (slices.Contains(refusalErrnos, no) || slices.Contains(also, no)):
		return verdict{held: err.Error()}
	}
	return verdict{odd: err.Error()}
}

func heldVerdict(format string, a ...any) verdict { return verdict{held: fmt.Sprintf(format, a...)} }
func openVerdict(format string, a ...any) verdict { return verdict{open: fmt.Sprintf(format, a...)} }
func oddVerdict(format string, a ...any) verdict  { return verdict{odd: fmt.Sprintf(format, a...)} }

// A series is several attempts under one name: open if one is open, odd if one is odd and none is open.
type verdictSeries struct {
	open, odd []string
	held      string // the last refusal
	n         int
}

func (s *verdictSeries) addVerdict(what string, v verdict) {
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

func (s *verdictSeries) overallVerdict() verdict {
	switch {
	case len(s.open) > 0:
		return verdict{open: clipText(strings.Join(s.open, "; "))}
	case len(s.odd) > 0:
		return verdict{odd: clipText(strings.Join(s.odd, "; "))}
	case s.n == 0:
		return verdict{odd: "nothing was tried"}
	}
	return heldVerdict("%d refused, the last %s", s.n, s.held)
}

func clipText(s string) string { return s[:min(len(s), 400)] }

// doSyscall makes a system call unchanged.
//
//go:uintptrescapes
func doSyscall(trap uintptr, a ...uintptr) (uintptr, error) {
	var r [6]uintptr
	copy(r[:], a)
	v, _, e := syscall.Syscall6(trap, r[0], r[1], r[2], r[3], r[4], r[5])
	if e != 0 {
		return v, e
	}
	return v, nil
}

// trySyscall is a probe that consists of one system call.
//
//go:uintptrescapes
func trySyscall(got string, trap uintptr, a ...uintptr) verdict {
	_, err := doSyscall(trap, a...)
	return errorVerdict(err, got)
}
