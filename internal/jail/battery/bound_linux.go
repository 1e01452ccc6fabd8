package battery

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inFlight sends descriptors to a socket without a reader: they count although they are closed.
func inFlight(*Scene) verdict {
	a, _, err := unixSocketPair(unix.SOCK_STREAM)
	if err != nil {
		return errorVerdict(err, "")
	}
	unix.SetNonblock(a, true)
	rights := unix.UnixRights(0, 0, 0, 0, 0, 0, 0, 0)
	return repeatUntil(1<<13, syscall.ETOOMANYREFS, func() error {
		err := unix.Sendmsg(a, []byte{0}, rights, nil, 0)
		if err == syscall.EAGAIN { // the socket's own buffer is a bound too
			return syscall.ETOOMANYREFS
		}
		return err
	})
}

func pipeSize(*Scene) verdict {
	var fd [2]int
	if err := unix.Pipe(fd[:]); err != nil {
		return oddVerdict("%v", err)
	}
	_, err := unix.FcntlInt(uintptr(fd[0]), unix.F_SETPIPE_SZ, 1<<20)
	return errorVerdict(err, "a pipe of 1 MiB")
}

// queueSignals queues signals for this thread, which does not take them.
func queueSignals(*Scene) verdict {
	runtime.LockOSThread()
	const signal = 44
	set := unix.Sigset_t{Val: [16]uint64{1 << (signal - 1)}}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return oddVerdict("%v", err)
	}
	info := struct {
		signo, errno, code int32
		rest               [29]int32
	}{code: -1} // SI_QUEUE
	return repeatUntil(4096, syscall.EAGAIN, func() error {
		_, err := doSyscall(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(unix.Getpid()), uintptr(unix.Gettid()), signal,
			uintptr(unsafe.Pointer(&info)))
		return err
	})
}

// hugePages maps huge pages of the machine and touches none.
func hugePages(*Scene) verdict {
	const size, huge = 2 << 20, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB | unix.MAP_NORESERVE
	return trySyscall("a huge page", unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE, huge, ^uintptr(0), 0)
}

// socketFilter makes the kernel compile a program that lets every packet through.
func socketFilter(*Scene) verdict {
	a, _, err := unixSocketPair(unix.SOCK_STREAM)
	if err != nil {
		return errorVerdict(err, "")
	}
	passes := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1}
	return errorVerdict(unix.SetsockoptSockFprog(a, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &passes}), "a socket's filter")
}

// openMessageQueues tests the bound in bytes on all message queues of a user (mq_overview(7)).
func openMessageQueues(*Scene) verdict {
	n := 0
	return repeatUntil(4096, syscall.EMFILE, func() error {
		n++
		_, err := doSyscall(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(cString("battery-"+formatInt(n)))),
			unix.O_CREAT|unix.O_RDWR, 0o600, 0)
		if err == syscall.ENOSPC {
			return syscall.EMFILE
		}
		return err
	})
}

// raiseLimits tries to raise each limit that bounds it.
func raiseLimits(*Scene) verdict {
	var s verdictSeries
	for name, resource := range map[string]int{"core": unix.RLIMIT_CORE, "nofile": unix.RLIMIT_NOFILE, "fsize": unix.RLIMIT_FSIZE, "data": unix.RLIMIT_DATA,
		"nproc": unix.RLIMIT_NPROC, "stack": unix.RLIMIT_STACK, "memlock": unix.RLIMIT_MEMLOCK,
		"rtprio": unix.RLIMIT_RTPRIO, "nice": unix.RLIMIT_NICE,
		"sigpending": unix.RLIMIT_SIGPENDING, "msgqueue": unix.RLIMIT_MSGQUEUE} {
		var l unix.Rlimit
		if err := unix.Getrlimit(resource, &l); err != nil || l.Max == unix.RLIM_INFINITY {
			s.addVerdict(name, openVerdict("it has no bound (%v)", err))
			continue
		}
		most := l.Max
		l.Max++
		l.Cur = l.Max
		err := unix.Setrlimit(resource, &l)
		if now := (unix.Rlimit{}); err == nil && unix.Getrlimit(resource, &now) == nil && now.Max == most {
			s.addVerdict(name, heldVerdict("the call succeeds and changes nothing"))
			continue
		}
		s.addVerdict(name, errorVerdict(err, "raised"))
	}
	return s.overallVerdict()
}
