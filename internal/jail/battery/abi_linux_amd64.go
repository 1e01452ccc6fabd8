package battery

import (
	"runtime/debug"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// int80 enters the kernel through its 32-bit table, where 20 is getpid.
func int80(nr uintptr) uintptr

// archProbes returns the probes of entry points that only x86-64 has. A call through a foreign table must end the process
// (trap 10): its numbers have other meanings, so a filter that knows only its own table cannot judge them.
func archProbes() []Probe {
	one := func(name, got string, trap uintptr, a ...any) Probe {
		return Probe{Name: "kernel/" + name, try: func(*Scene) verdict { return tryForbiddenCall(got, trap, a) }}
	}
	return []Probe{
		{Name: "kernel/table-x32", dies: true, try: func(*Scene) verdict {
			return trySyscall("it answered", unix.SYS_GETPID|1<<30)
		}},
		{Name: "kernel/table-i386", dies: true, try: func(*Scene) (v verdict) {
			// A kernel without 32-bit programs answers with SIGSEGV, from which the runtime makes a panic.
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() {
				if fault := recover(); fault != nil {
					v = heldVerdict("%v", fault)
				}
			}()
			if r := int32(int80(20)); r <= 0 {
				return errorVerdict(syscall.Errno(-r), "")
			}
			return openVerdict("it answered")
		}},
		{Name: "kernel/local-descriptors", try: func(*Scene) verdict {
			desc := [4]uint32{0, 0x1000, 1, 1 << 4} // struct user_desc: a data segment of one page
			return trySyscall("a descriptor table", unix.SYS_MODIFY_LDT, 1, uintptr(unsafe.Pointer(&desc)),
				unsafe.Sizeof(desc))
		}},
		one("ports-level", "every port", unix.SYS_IOPL, 3),
		one("ports", "a port", unix.SYS_IOPERM, 0x80, 1, 1),
		one("library", "a library", unix.SYS_USELIB, cString("/lib/none")),
		one("filesystems", "the filesystems", unix.SYS_SYSFS, 3, 0, 0),
		one("device-status", "a device's status", unix.SYS_USTAT, 1, &[64]byte{}),
		one("settings-call", "a setting", unix.SYS__SYSCTL, &[64]byte{}),
	}
}
