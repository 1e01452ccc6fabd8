package battery

import (
	"os"
	"reflect"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernelProbes are system calls that no tool should need and that were exploited in the past. With these arguments a call
// would succeed, or fail later, and has no effect beyond the life of the cage.
func kernelProbes() []Probe {
	one := func(name, got string, trap uintptr, a ...any) Probe {
		return Probe{Name: "kernel/" + name, try: func(*Scene) verdict { return tryForbiddenCall(got, trap, a) }}
	}
	return []Probe{
		one("bpf-map", "a map", unix.SYS_BPF, 0, &[16]uint32{2, 4, 4, 1}, 64),
		one("bpf-program", "a program", unix.SYS_BPF, 5, &[32]uint32{1}, 128),
		{Name: "kernel/perf", try: tryPerfEvent},
		one("io-uring", "a ring", unix.SYS_IO_URING_SETUP, 1, &[15]uint64{}),
		one("io-uring-enter", "entered", unix.SYS_IO_URING_ENTER, 1<<20, 0, 0, 0, 0, 0),
		one("io-uring-register", "registered", unix.SYS_IO_URING_REGISTER, 1<<20, 0, 0, 0),
		one("userfaultfd", "faults are its own", unix.SYS_USERFAULTFD, 1|unix.O_CLOEXEC),
		one("keyctl", "its keyring", unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID,
			keyringArg(unix.KEY_SPEC_PROCESS_KEYRING), 1),
		one("add-key", "a key", unix.SYS_ADD_KEY, cString("user"), cString("battery"), cString("x"), 1,
			keyringArg(unix.KEY_SPEC_PROCESS_KEYRING)),
		// For a missing key the kernel starts a program of the host (request-key(8)).
		one("request-key", "a key", unix.SYS_REQUEST_KEY, cString("user"), cString("battery-none"), cString("callout"),
			keyringArg(unix.KEY_SPEC_PROCESS_KEYRING)),
		one("memfd", "a file of no filesystem", unix.SYS_MEMFD_CREATE, cString("battery"), 0),
		one("memfd-secret", "memory the kernel cannot read", unix.SYS_MEMFD_SECRET, 0),
		one("personality", "addresses are not random", unix.SYS_PERSONALITY, 0x40000),
		one("personality-exec", "all that is read may be run", unix.SYS_PERSONALITY, 0x400000),
		one("fanotify", "a watch on all", unix.SYS_FANOTIFY_INIT, 0x200, 0),
		{Name: "kernel/name-to-handle", try: nameToHandle},
		one("kexec", "another kernel", unix.SYS_KEXEC_LOAD, 0, 0, 0, 0),
		one("kexec-file", "another kernel", unix.SYS_KEXEC_FILE_LOAD, 1<<20, 1<<20, 0, 0, 0),
		one("module", "a module", unix.SYS_INIT_MODULE, 0, 0, cString("")),
		one("module-file", "a module", unix.SYS_FINIT_MODULE, 1<<20, cString(""), 0),
		one("module-remove", "no module", unix.SYS_DELETE_MODULE, cString("battery_none"), unix.O_NONBLOCK),
		one("reboot", "the key combination", unix.SYS_REBOOT, unix.LINUX_REBOOT_MAGIC1, unix.LINUX_REBOOT_MAGIC2,
			unix.LINUX_REBOOT_CMD_CAD_OFF, 0),
		one("swap-on", "swap", unix.SYS_SWAPON, cString("/dev/null"), 0),
		one("swap-off", "no swap", unix.SYS_SWAPOFF, cString("/dev/null")),
		one("accounting", "accounting", unix.SYS_ACCT, 0),
		one("quota", "a quota", unix.SYS_QUOTACTL, uint32(0x80000500), cString("/dev/vda"), 0, &[64]byte{}), // Q_GETINFO,
		one("syslog", "the kernel's log", unix.SYS_SYSLOG, 3, &[4096]byte{}, 4096),
		one("syslog-size", "the log's size", unix.SYS_SYSLOG, 10, 0, 0),
		{Name: "kernel/clock", try: func(*Scene) verdict { return setClock(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME) }},
		{Name: "kernel/time-of-day", try: func(*Scene) verdict { return setClock(unix.SYS_SETTIMEOFDAY) }},
		{Name: "kernel/clock-adjust", try: tryAdjustClock},
		one("host-name", "the host name", unix.SYS_SETHOSTNAME, cString("evil"), 4),
		one("domain-name", "the domain name", unix.SYS_SETDOMAINNAME, cString("evil"), 4),
		one("hang-up", "the terminal", unix.SYS_VHANGUP),
		one("cookie", "a path of the kernel's", unix.SYS_LOOKUP_DCOOKIE, 0, &[64]byte{}, 64),
		one("nfs", "a server", unix.SYS_NFSSERVCTL, 0, 0, 0),
		one("migrate-pages", "pages of PID 1's", unix.SYS_MIGRATE_PAGES, 1, 64, &[1]uint64{1}, &[1]uint64{1}),
		one("memory-map", "its own description", unix.SYS_PRCTL, 35, 8, 4096, 0, 0), // PR_SET_MM, PR_SET_MM_ARG_START
		one("asynchronous-io", "a context of the machine's", unix.SYS_IO_SETUP, 1, &[1]uint64{}),
		one("splice-memory", "its pages in a pipe", unix.SYS_VMSPLICE, 1<<20, 0, 0, 0),
		one("remap-pages", "pages out of order", unix.SYS_REMAP_FILE_PAGES, 1, 0, 0, 0, 0),
		one("mount-list", "mounts by number", 458, &[3]uint64{24, 1<<64 - 1, 0}, &[64]uint64{}, 64, 0), // listmount(2), LSMT_ROOT
		one("mount-state", "a mount by number", 457, &[3]uint64{24, 1<<64 - 1, 1}, &[512]uint64{}, 4096, 0),
		{Name: "kernel/lease", try: tryFileLease},
		one("unknown-600", "a call of no kernel known", 600, 0),
		one("unknown-1000", "a call of no kernel known", 1000, 0),
		{Name: "kernel/filter-off", try: filterOff},
		{Name: "kernel/landlock-nested", try: tryNestedLandlock},
		{Name: "kernel/settings", try: func(*Scene) verdict { return checkTreeReadOnly("/proc/sys") }},
		{Name: "kernel/proc-files", try: func(*Scene) verdict { return checkTreeReadOnly("/proc/self") }},
		{Name: "kernel/sys-files", try: func(*Scene) verdict { return checkTreeReadOnly("/sys/kernel") }},
		// Trap 1: a program that the kernel starts after a crash runs as root outside.
		{Name: "kernel/core-pattern", try: func(*Scene) verdict { return tryOpenSetting("kernel/core_pattern") }},
		{Name: "kernel/modprobe", try: func(*Scene) verdict { return tryOpenSetting("kernel/modprobe") }},
		{Name: "kernel/binfmt", try: func(*Scene) verdict { return tryOpenSetting("fs/binfmt_misc/register") }},
		{Name: "kernel/sysrq", try: trySysrq},
	}
}

// trySysrq opens the file through which the kernel takes commands. If /dev/null covers it, every command is accepted
// without effect.
func trySysrq(*Scene) verdict {
	const trigger = "/proc/sysrq-trigger"
	var st unix.Stat_t
	if unix.Stat(trigger, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && uint64(st.Rdev) == unix.Mkdev(1, 3) {
		return heldVerdict("covered by /dev/null")
	}
	return errorVerdict(openWithFlags(unix.O_WRONLY)(trigger), "the key")
}

// tryFileLease takes a lease on a file: a program that opens the file, even outside the cage, waits until the lease is given
// up.
func tryFileLease(s *Scene) verdict {
	f, err := os.CreateTemp(s.Tmp, "battery-lease")
	if err != nil {
		return oddVerdict("%v", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	return errorVerdict(err, "a lease")
}

// keyringArg turns a negative id into an argument.
func keyringArg(id int) uint32 { return uint32(int32(id)) }

// tryForbiddenCall makes a system call with numbers and pointers. If the answer is that an argument is wrong, the call was let
// in.
func tryForbiddenCall(got string, trap uintptr, a []any) verdict {
	var r [6]uintptr
	for i, v := range a {
		switch v := v.(type) {
		case int:
			r[i] = uintptr(v)
		case uint32:
			r[i] = uintptr(v)
		default:
			r[i] = reflect.ValueOf(v).Pointer() // a keeps it alive
		}
	}
	_, err := doSyscall(trap, r[:]...)
	runtime.KeepAlive(a)
	if err == syscall.EBADF || err == syscall.EFAULT || err == syscall.EINVAL {
		return openVerdict("it looked at its arguments: %v", err)
	}
	return errorVerdict(err, got)
}
