package battery

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deviceProbes are attempts on hardware, terminals and the kernel's own interfaces.
func deviceProbes() []Probe {
	list := []Probe{
		{Name: "device/list", try: deviceList, Full: "the host's names can be seen, not opened"},
		{Name: "device/mknod-char", try: func(s *Scene) verdict { return tryMknod(s.Tmp+"/battery-char", unix.S_IFCHR, 1, 1) }},
		{Name: "device/mknod-block", try: func(s *Scene) verdict { return tryMknod(s.Tmp+"/battery-block", unix.S_IFBLK, 254, 0) }},
		{Name: "device/mknod-in-place", try: func(s *Scene) verdict { return tryMknod(s.RW+"/battery-char", unix.S_IFCHR, 1, 5) }},
		{Name: "device/random-entropy", try: func(*Scene) verdict { return tryIoctl("/dev/random", unix.RNDADDTOENTCNT) }},
		{Name: "device/random-reseed", try: func(*Scene) verdict { return tryIoctl("/dev/urandom", unix.RNDCLEARPOOL) }},
		// TIOCSTI types into an inherited terminal (CVE-2017-5226); TIOCLINUX pastes into a console (CVE-2023-1523);
		// the kernel reads only the low 32 bits of a command (CVE-2019-10063; trap 10).
		{Name: "device/terminal-input", try: func(*Scene) verdict { return tryTerminalIoctl(unix.TIOCSTI) }},
		{Name: "device/terminal-input-high-bits", try: func(*Scene) verdict { return tryTerminalIoctl(unix.TIOCSTI | 1<<40) }},
		{Name: "device/terminal-paste", try: func(*Scene) verdict { return tryTerminalIoctl(unix.TIOCLINUX) }},
		{Name: "device/terminal-take", try: func(*Scene) verdict { return tryTerminalIoctl(unix.TIOCSCTTY) }},
		{Name: "device/terminal-line", try: func(*Scene) verdict { return tryTerminalIoctl(unix.TIOCSETD) }},
		{Name: "device/console", try: func(*Scene) verdict { return tryTerminalIoctl(unix.TIOCCONS) }},
	}
	for _, node := range []string{"tty", "tty0", "tty1", "ttyS0", "console", "ptmx", "pts/0", "pts/ptmx", "mem", "kmem", "port", "kmsg", "vda", "vda1", "sda", "nvme0n1",
		"loop0", "loop-control", "fuse", "kvm", "vhost-net", "vhost-vsock", "net/tun", "uinput", "input/event0",
		"dri/card0", "userfaultfd", "hwrng",
		"watchdog", "snapshot", "rfkill", "mapper/control", "btrfs-control", "autofs", "cpu_dma_latency", "ppp", "shm", "mqueue", "fd"} {
		list = append(list, Probe{Name: "device/open-" + strings.NewReplacer("/", "-", "_", "-").Replace(node), try: func(*Scene) verdict { return tryOpenDevice("/dev/" + node) }})
	}
	return list
}

// tryOpenDevice opens a node for reading and for writing, and does not take a terminal as its controlling terminal.
func tryOpenDevice(path string) verdict {
	var s verdictSeries
	for name, flags := range map[string]int{"read": unix.O_RDONLY, "write": unix.O_RDWR} {
		fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		s.addVerdict(name, errorVerdict(err, path+" is open", syscall.EISDIR))
	}
	return s.overallVerdict()
}

func deviceList(*Scene) verdict {
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return errorVerdict(err, "")
	}
	for _, e := range entries {
		if !slices.Contains([]string{"null", "zero", "full", "random", "urandom"}, e.Name()) {
			return openVerdict("/dev/%s", e.Name())
		}
	}
	return heldVerdict("%d harmless ones", len(entries))
}

func tryMknod(path string, kind uint32, major, minor uint32) verdict {
	return errorVerdict(unix.Mknod(path, kind|0o666, int(unix.Mkdev(major, minor))), path+" was made")
}

func tryIoctl(path string, command uintptr) verdict {
	return errorVerdict(withFD(path, func(fd int) error {
		return syscallError(unix.SYS_IOCTL, uintptr(fd), command, uintptr(unsafe.Pointer(new(int32))))
	}), fmt.Sprintf("command %#x", command))
}

// tryTerminalIoctl tries a command on each of its streams and on the controlling terminal, if there is one.
func tryTerminalIoctl(command uintptr) verdict {
	var s verdictSeries
	for fd := range uintptr(3) {
		s.addVerdict("stream "+formatInt(int(fd)),
			errorVerdict(syscallError(unix.SYS_IOCTL, fd, command, uintptr(unsafe.Pointer(&[2]byte{'x'}))),
				"it took the command", syscall.ENOTTY, syscall.EINVAL))
	}
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = syscallError(unix.SYS_IOCTL, uintptr(fd), command, uintptr(unsafe.Pointer(&[2]byte{'x'})))
	}
	s.addVerdict("/dev/tty", errorVerdict(err, "it took the command"))
	return s.overallVerdict()
}
