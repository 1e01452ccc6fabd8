package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"bailey"
)

// system lists directories that cannot be a workspace themselves. systemTrees lists trees that belong to the system.
var (
	system = []string{"/", "/home", "/opt", "/srv", "/var", "/var/lib", "/usr", "/usr/local", "/mnt", "/media",
		"/run"}
	systemTrees = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin",
		"/sys",
		"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/include", "/usr/share"}
)

func systemDirs() (dirs, trees []string) { return system, systemTrees }

// sockets lists the sockets of daemons and agents that give their privileges to any client.
var sockets = []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd", "/run/podman",
	"/var/lib/incus/unix.socket", "/run/dbus", "/run/systemd"}

func daemonSockets() []string { return sockets }

// systemSecrets returns nil: secrets has all the paths that Linux needs.
func systemSecrets() []string { return nil }

// foldCase changes nothing: names that differ in case are different files.
func foldCase(path string) string { return path }

func everyHome() []string { return passwdHomes("/etc/passwd") }

// passwdHomes returns the home directories in a file in passwd(5) format. Root can reach all of them.
func passwdHomes(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var homes []string
	for line := range strings.Lines(string(text)) {
		f := strings.Split(line, ":")
		if len(f) == 7 && strings.HasPrefix(f[5], "/home/") {
			homes = append(homes, Canonical(f[5]))
		}
	}
	return homes
}

// openPath opens path as a descriptor without access to the contents (O_PATH, open(2)). It follows symlinks, but not
// the magic links in /proc (openat2(2)).
func openPath(path string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// pathOf returns the path of a descriptor from the kernel.
func pathOf(f *os.File) (string, error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil || len(path) == 0 || path[0] != '/' {
		return "", fmt.Errorf("%s: its path is unknown: %q %v", f.Name(), path, err)
	}
	return path, nil
}

// mountRoot reports whether f is a mount point. If the kernel cannot tell, it returns true.
func mountRoot(f *os.File) bool {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, 0, &st); err != nil {
		return true
	}
	return st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// Has reports whether a path exists below the opened descriptor. It follows symlinks that stay below it (openat2(2)).
func (w *Workspaces) Has(p bailey.Place, below string) (bool, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(p.File.Fd()), below, &how)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return false, nil
	case err != nil:
		return false, bailey.Invalid.Errorf("name a directory that you can read",
			"%s in %s cannot be examined: %v", below, p.Path, err)
	}
	return true, unix.Close(fd)
}

// Load reads a file below the opened descriptor. No component may be a symbolic link (openat2(2)). A path through a file
// does not exist.
func (w *Workspaces) Load(p bailey.Place, below string, max int64) (data []byte, there bool, err error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(p.File.Fd()), below, &how)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, bailey.Invalid.Errorf("it must be a file that you may read, and no link",
			"%s in %s cannot be read: %v", below, p.Path, err)
	}
	f := os.NewFile(uintptr(fd), below)
	defer f.Close()
	return loadFile(p, f, below, max)
}

// Read reads the file through its own descriptor and not through its path (proc_pid_fd(5)), up to its current size.
func (w *Workspaces) Read(p bailey.Place) (io.ReadCloser, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", p.File.Fd()), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, bailey.Invalid.Wrapf(pathErrorCause(err), "name a file that you can read",
			"input /%s: %q cannot be read", p.Input, p.Path)
	}
	info, err := f.Stat()
	if err == nil {
		err = checkSize(p, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return sectionFile{io.NewSectionReader(f, 0, info.Size()), f}, nil
}

type sectionFile struct {
	io.Reader
	io.Closer
}

// Freeze copies the checked file from its descriptor into sealed memory and hashes the copy. The tool gets exactly the
// hashed bytes, even if the file changes.
func (w *Workspaces) Freeze(p bailey.Place) (*bailey.Frozen, func(), error) {
	before, err := statOf(p.File)
	if err != nil || before.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, nil, err
	}
	if before.Size > maxFrozen {
		return nil, nil, bailey.Invalid.Errorf("name a smaller file",
			"input /%s: %q has %d bytes, but an approval can cover at most %d", p.Input, p.Path, before.Size, maxFrozen)
	}
	release, err := w.frozen.reserveBytes(before.Size)
	if err != nil {
		return nil, nil, err
	}
	f, err := freezeFile(p, before)
	if err != nil {
		release()
		return nil, nil, err
	}
	return f, func() { f.File.Close(); release() }, nil
}

// freezeFile reads the file through its own descriptor and not through its path (proc_pid_fd(5)).
func freezeFile(p bailey.Place, before unix.Stat_t) (f *bailey.Frozen, err error) {
	unreadable := func(err error) error {
		return bailey.Invalid.Wrapf(pathErrorCause(err), "name a file that you can read",
			"input /%s: %q cannot be read", p.Input, p.Path)
	}
	file, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", p.File.Fd()), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, unreadable(err)
	}
	defer file.Close()
	memory, err := newMemfd()
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot create a memory file for a copy of "+p.Path, "")
	}
	defer func() {
		if err != nil {
			memory.Close()
		}
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(memory, sum), io.LimitReader(file, before.Size+1))
	if err != nil {
		return nil, unreadable(err)
	}
	after, err := statOf(file)
	if err != nil {
		return nil, err
	}
	if n != before.Size || !isUnchanged(before, after) {
		return nil, bailey.Conflict.Errorf("call again when no process writes it",
			"input /%s: %q changed while it was copied", p.Input, p.Path)
	}
	if _, err = unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS,
		unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &bailey.Frozen{File: memory, Size: n, SHA256: bailey.NewSecret(hex.EncodeToString(sum.Sum(nil)))}, nil
}

// newMemfd returns a memory file that cannot be executed. Kernels before 6.3 do not support that flag.
func newMemfd() (*os.File, error) {
	const name, flags = "bailey-frozen", unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func statOf(f *os.File) (st unix.Stat_t, err error) {
	if err = unix.Fstat(int(f.Fd()), &st); err != nil {
		err = &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return st, err
}

// isUnchanged compares the attributes that a write changes. A write through a memory mapping may go undetected. Then the
// copy may mix both states, but it is still the hashed one.
func isUnchanged(a, b unix.Stat_t) bool {
	return a.Dev == b.Dev && a.Ino == b.Ino && a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim
}
