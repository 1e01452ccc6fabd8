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

// devices are attempts on hardware, terminals and the kernel's own interfaces.
func devices() []Probe {
	list := []Probe{
		{Name: "device/list", try: deviceList, Full: "the host's names can be seen, not opened"},
		{Name: "device/mknod-char", try: func(s *Scene) verdict { return mknod(s.Tmp+"/battery-char", unix.S_IFCHR, 1, 1) }},
		{Name: "device/mknod-block", try: func(s *Scene) verdict { return mknod(s.Tmp+"/battery-block", unix.S_IFBLK, 254, 0) }},
		{Name: "device/mknod-in-place", try: func(s *Scene) verdict { return mknod(s.RW+"/battery-char", unix.S_IFCHR, 1, 5) }},
		{Name: "device/random-entropy", try: func(*Scene) verdict { return ioctl("/dev/random", unix.RNDADDTOENTCNT) }},
		{Name: "device/random-reseed", try: func(*Scene) verdict { return ioctl("/dev/urandom", unix.RNDCLEARPOOL) }},
		// TIOCSTI types into an inherited terminal (CVE-2017-5226); TIOCLINUX pastes into a console (CVE-2023-1523);
		// the kernel reads only the low 32 bits of a command (CVE-2019-10063; trap 10).
		{Name: "device/terminal-input", try: func(*Scene) verdict { return terminal(unix.TIOCSTI) }},
		{Name: "device/terminal-input-high-bits", try: func(*Scene) verdict { return terminal(unix.TIOCSTI | 1<<40) }},
		{Name: "device/terminal-paste", try: func(*Scene) verdict { return terminal(unix.TIOCLINUX) }},
		{Name: "device/terminal-take", try: func(*Scene) verdict { return terminal(unix.TIOCSCTTY) }},
		{Name: "device/terminal-line", try: func(*Scene) verdict { return terminal(unix.TIOCSETD) }},
		{Name: "device/console", try: func(*Scene) verdict { return terminal(unix.TIOCCONS) }},
	}
	for _, node := range []string{"tty", "tty0", "tty1", "ttyS0", "console", "ptmx", "pts/0", "pts/ptmx", "mem", "kmem", "port", "kmsg", "vda", "vda1", "sda", "nvme0n1",
		"loop0", "loop-control", "fuse", "kvm", "vhost-net", "vhost-vsock", "net/tun", "uinput", "input/event0", "dri/card0", "userfaultfd", "hwrng",
		"watchdog", "snapshot", "rfkill", "mapper/control", "btrfs-control", "autofs", "cpu_dma_latency", "ppp", "shm", "mqueue", "fd"} {
		list = append(list, Probe{Name: "device/open-" + strings.NewReplacer("/", "-", "_", "-").Replace(node), try: func(*Scene) verdict { return device("/dev/" + node) }})
	}
	return list
}

// device opens a node for reading and for writing, and does not take a terminal as its controlling terminal.
func device(path string) verdict {
	var s series
	for name, flags := range map[string]int{"read": unix.O_RDONLY, "write": unix.O_RDWR} {
		fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		s.add(name, refused(err, path+" is open", syscall.EISDIR))
	}
	return s.verdict()
}

func deviceList(*Scene) verdict {
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return refused(err, "")
	}
	for _, e := range entries {
		if !slices.Contains([]string{"null", "zero", "full", "random", "urandom"}, e.Name()) {
			return opened("/dev/%s", e.Name())
		}
	}
	return held("%d harmless ones", len(entries))
}

func mknod(path string, kind uint32, major, minor uint32) verdict {
	return refused(unix.Mknod(path, kind|0o666, int(unix.Mkdev(major, minor))), path+" was made")
}

func ioctl(path string, command uintptr) verdict {
	return refused(with(path, func(fd int) error {
		return raw(unix.SYS_IOCTL, uintptr(fd), command, uintptr(unsafe.Pointer(new(int32))))
	}), fmt.Sprintf("command %#x", command))
}

// terminal tries a command on each of its streams and on the controlling terminal, if there is one.
func terminal(command uintptr) verdict {
	var s series
	for fd := range uintptr(3) {
		s.add("stream "+itoa(int(fd)), refused(raw(unix.SYS_IOCTL, fd, command, uintptr(unsafe.Pointer(&[2]byte{'x'}))), "it took the command", syscall.ENOTTY, syscall.EINVAL))
	}
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = raw(unix.SYS_IOCTL, uintptr(fd), command, uintptr(unsafe.Pointer(&[2]byte{'x'})))
	}
	s.add("/dev/tty", refused(err, "it took the command"))
	return s.verdict()
}
