package guestagent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bailey/internal/guestwire"
)

// bootLine is what the kernel's command line says to the agent.
type bootLine struct{ root, fstype, init, port string }

// parseBootLine reads the words of a command line that begin with "bailey.". An unknown one is an error, because the
// guest would not be what the host wants.
func parseBootLine(text string) (b bootLine, err error) {
	b = bootLine{fstype: "ext4", port: guestwire.Port}
	found := false
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		name, ours := strings.CutPrefix(name, "bailey.")
		if !ours {
			continue
		}
		at := map[string]*string{"root": &b.root, "fstype": &b.fstype, "init": &b.init, "port": &b.port}[name]
		if at == nil || value == "" {
			return b, fmt.Errorf("the kernel's command line has %q, which bailey-guest does not know", word)
		}
		*at, found = value, true
	}
	if !found {
		return b, errors.New("the kernel's command line does not name bailey.port: this is not a guest of bailey")
	}
	return b, nil
}

// bootGuest turns the initramfs into a system on which programs can run, and returns how the host wants it.
func bootGuest() (bootLine, error) {
	if err := mountAt("proc", "/proc", quietly); err != nil {
		return bootLine{}, err
	}
	text, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return bootLine{}, err
	}
	b, err := parseBootLine(string(text))
	if err != nil {
		return b, err
	}
	if err := mountSystem(); err != nil {
		return b, err
	}
	if err := loadModules("/modules"); err != nil {
		return b, err
	}
	if b.root != "" {
		if err := switchRoot(b); err != nil {
			return b, err
		}
	}
	if b.init != "" {
		return b, nil // it mounts the rest itself
	}
	return b, prepareUserSpace()
}

const quietly = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mountAt mounts a file system of the kernel. It is no error if it is mounted.
func mountAt(kind, at string, flags uintptr, options ...string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kind, at, kind, flags, strings.Join(options, ",")); err != nil && err != unix.EBUSY {
		return &os.PathError{Op: "mount " + kind, Path: at, Err: err}
	}
	return nil
}

func mountSystem() error {
	return errors.Join(mountAt("sysfs", "/sys", quietly), mountAt("devtmpfs", "/dev", unix.MS_NOSUID))
}

// prepareUserSpace mounts what programs expect and no init does.
func prepareUserSpace() error {
	const hidden = unix.MS_NOSUID | unix.MS_NODEV
	for _, err := range []error{
		mountAt("devpts", "/dev/pts", unix.MS_NOSUID|unix.MS_NOEXEC, "ptmxmode=0666", "mode=0620"),
		mountAt("tmpfs", "/dev/shm", hidden, "mode=1777"),
		mountAt("tmpfs", "/run", hidden, "mode=0755"),
		mountAt("tmpfs", "/tmp", hidden, "mode=1777"),
	} {
		if err != nil {
			return err
		}
	}
	if err := mountAt("cgroup2", "/sys/fs/cgroup", quietly); err != nil {
		fmt.Fprintln(os.Stderr, "bailey-guest:", err) // a kernel without control groups runs commands as well
	}
	for name, target := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink("/proc/self/"+target, "/dev/"+name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return bringUpLoopback()
}

func bringUpLoopback() error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil // a kernel without network
	}
	defer unix.Close(s)
	const loopback = 1 // its index in every network namespace
	return (&route{socket: s}).setLink(loopback, true, nil)
}

// loadModules loads the kernel's modules of a directory in the order of their names.
func loadModules(dir string) error {
	names, err := filepath.Glob(dir + "/*")
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		flags := 0
		if filepath.Ext(name) != ".ko" {
			flags = unix.MODULE_INIT_COMPRESSED_FILE
		}
		err = unix.FinitModule(int(f.Fd()), "", flags)
		f.Close()
		if err != nil && err != unix.EEXIST {
			return &os.PathError{Op: "load module", Path: name, Err: err}
		}
	}
	return nil
}

// deviceTime is how long the kernel may take to find a device.
const deviceTime = 30 * time.Second

// waitFor waits until a file exists. The kernel announces devices by udev, which an initramfs does not have.
func waitFor(name string) error {
	for begin := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		_, err := os.Stat(name)
		if err == nil || time.Since(begin) > deviceTime {
			return err
		}
	}
}

// switchRoot mounts the root and moves there. The initial root can neither be moved nor unmounted, so the new one is
// moved over it (switch_root(8)).
func switchRoot(b bootLine) error {
	const at = "/root.new"
	if err := waitFor(b.root); err != nil {
		return err
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(b.root, at, b.fstype, 0, ""); err != nil {
		return &os.PathError{Op: "mount " + b.fstype, Path: b.root, Err: err}
	}
	for _, dir := range []string{"/dev", "/proc", "/sys"} {
		if err := os.MkdirAll(at+dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(dir, at+dir, "", unix.MS_MOVE, ""); err != nil {
			return &os.PathError{Op: "move", Path: dir, Err: err}
		}
	}
	if err := unix.Chdir(at); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return os.NewSyscallError("move the root", err)
	}
	if err := unix.Chroot("."); err != nil {
		return os.NewSyscallError("chroot", err)
	}
	return unix.Chdir("/")
}

// findPort returns the device of a virtio-serial port. Links by name exist only with udev.
func findPort(name string) (string, error) {
	known, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return "", err
	}
	for _, file := range known {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == name {
			return "/dev/" + filepath.Base(filepath.Dir(file)), nil
		}
	}
	return "", fmt.Errorf("the machine has no virtio-serial port %q: give it one, or load virtio_console", name)
}

// openPort waits for the port and opens it. The kernel lets it be opened once.
func openPort(name string) (*os.File, error) {
	for begin := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		at, err := findPort(name)
		if err == nil {
			var f *os.File
			if f, err = os.OpenFile(at, os.O_RDWR, 0); err == nil {
				return f, nil
			}
		}
		if time.Since(begin) > deviceTime {
			return nil, err
		}
	}
}
