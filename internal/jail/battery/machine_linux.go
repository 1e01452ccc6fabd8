package battery

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tryPerfEvent counts its own time, which perf_event_paranoid 2 still allows every user.
func tryPerfEvent(*Scene) verdict {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	_, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	return errorVerdict(err, "a counter")
}

func nameToHandle(s *Scene) verdict {
	_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, s.Tmp, 0)
	return errorVerdict(err, "a handle", syscall.EOPNOTSUPP)
}

// setClock sets the clock to its present time.
func setClock(trap uintptr, clock ...uintptr) verdict {
	now := [2]int64{time.Now().Unix()}
	_, err := doSyscall(trap, append(clock, uintptr(unsafe.Pointer(&now)), 0)...)
	return errorVerdict(err, "the clock")
}

// tryAdjustClock sets the length of a tick to its present value.
func tryAdjustClock(*Scene) verdict {
	const adjTick, usual = 0x4000, 10000
	_, err := unix.ClockAdjtime(unix.CLOCK_REALTIME, &unix.Timex{Modes: adjTick, Tick: usual})
	return errorVerdict(err, "the clock's pace")
}

// filterOff tries to remove the filter, which must remain (seccomp(2)).
func filterOff(*Scene) verdict {
	_, err := doSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, 0)
	if mode := callPrctl(unix.PR_GET_SECCOMP, 0); mode != unix.SECCOMP_MODE_FILTER {
		return openVerdict("seccomp mode %d", mode)
	}
	return errorVerdict(err, "it went away", syscall.EINVAL)
}

// tryNestedLandlock adds a Landlock domain that allows everything it handles: a domain may only remove rights.
func tryNestedLandlock(s *Scene) verdict {
	const readFile = 1 << 2
	attr := [1]uint64{readFile}
	rules, err := doSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), 8, 0)
	if err != nil {
		return errorVerdict(err, "")
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return oddVerdict("%v", err)
	}
	rule := struct {
		rights uint64
		fd     int32
	}{readFile, int32(root)}
	if _, err = doSyscall(unix.SYS_LANDLOCK_ADD_RULE, rules, 1, uintptr(unsafe.Pointer(&rule)), 0); err == nil {
		_, err = doSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0)
	}
	if err != nil {
		return errorVerdict(err, "")
	}
	return tryRead(s.Secret)
}

// tryOpenSetting opens a kernel setting for writing, and writes nothing.
func tryOpenSetting(name string) verdict {
	path := "/proc/sys/" + name
	return errorVerdict(openWithFlags(unix.O_WRONLY)(path), path+" can be written")
}

// checkTreeReadOnly walks a tree of kernel files and tries to open each of them for writing.
func checkTreeReadOnly(root string) verdict {
	root, err := filepath.EvalSymlinks(root) // /proc/self is a symlink
	if err != nil {
		return errorVerdict(err, "")
	}
	var s verdictSeries
	end := time.Now().Add(deadline / 2)
	filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && d == nil:
			return fs.SkipAll
		case err != nil || strings.Count(path, "/") > 8:
			return fs.SkipDir
		case time.Now().After(end):
			return fs.SkipAll
		case !d.Type().IsRegular():
			return nil
		}
		s.addVerdict(path, errorVerdict(openWithFlags(unix.O_WRONLY|unix.O_NONBLOCK)(path), "can be written", syscall.EIO, syscall.EINVAL))
		return nil
	})
	if s.n == 0 {
		_, err := os.ReadDir(root)
		if err == nil {
			err = errors.New(root + " shows nothing")
			return heldVerdict("%v", err)
		}
		return errorVerdict(err, "")
	}
	return s.overallVerdict()
}
