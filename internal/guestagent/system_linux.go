package guestagent

import (
	"os"
	"runtime/debug"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"bailey/internal/guestwire"
)

// system is what the agent changes outside of processes and files. Tests replace what their machine must not do.
type system struct {
	root       string // of all files
	addEntropy func(seed []byte) error
	setClock   func(time.Time) error
	setName    func(string) error
	network    func(n []guestwire.Interface, all bool) error
	sync       func()
	dropCaches func()
	powerOff   func()
}

// guestSystem returns the functions for a guest.
func guestSystem() system {
	return system{root: "/", addEntropy: addEntropy, setName: func(name string) error { return unix.Sethostname([]byte(name)) },
		network: renewNetwork, sync: unix.Sync, dropCaches: dropCaches, powerOff: powerOff,
		setClock: func(t time.Time) error {
			ts := unix.NsecToTimespec(t.UnixNano())
			return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
		}}
}

// addEntropy credits the seed to the kernel's random number generator and lets it use the seed at once, random(4). The
// generators of all processes that use getrandom(2), also by the vDSO, follow.
func addEntropy(seed []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	pool := struct { // struct rand_pool_info
		bits, size int32
		buf        [maxSeed]byte
	}{bits: int32(len(seed) * 8), size: int32(len(seed))}
	copy(pool.buf[:], seed)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool))); errno != 0 {
		return os.NewSyscallError("RNDADDENTROPY", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDRESEEDCRNG, 0); errno != 0 {
		return os.NewSyscallError("RNDRESEEDCRNG", errno)
	}
	return nil
}

// dropCaches makes the memory of a snapshot small. It does not matter if it fails.
func dropCaches() {
	debug.FreeOSMemory()
	os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}

// powerOff ends the guest. systemd stops its services first, systemd(1), SIGRTMIN+4; any other init is not asked.
func powerOff() {
	unix.Sync()
	if _, err := os.Stat("/run/systemd/system"); err == nil && os.Getpid() != 1 {
		const minRealtime, powerOffTarget = 34, 4
		if unix.Kill(1, minRealtime+powerOffTarget) == nil {
			return
		}
	}
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}
