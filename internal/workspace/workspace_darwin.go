package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// systemDirs returns directories that cannot be a workspace themselves, and trees that belong to the system. /etc, /tmp
// and /var are symlinks, so their names below /private are listed.
func systemDirs() (dirs, trees []string) {
	return []string{"/", "/Users", "/Users/Shared", "/Volumes", "/opt", "/opt/homebrew", "/usr", "/usr/local",
			"/private", "/private/tmp", "/private/var"},
		[]string{"/System", "/Library", "/Applications", "/bin", "/sbin", "/dev", "/cores", "/usr/bin", "/usr/sbin",
			"/usr/lib", "/usr/libexec",
			"/usr/share", "/private/etc", "/private/var/db", "/private/var/root", "/private/var/run", "/private/var/log"}
}

// daemonSockets returns the sockets of daemons that give their privileges to any client.
func daemonSockets() []string { return []string{"/var/run/docker.sock", "/private/var/run"} }

// systemSecrets returns paths below a home, in addition to those of every system.
func systemSecrets() []string {
	return []string{"Library/Keychains", "Library/Cookies", "Library/Application Support/com.apple.TCC",
		"Library/Application Support/gcloud", "Library/Group Containers"}
}

// foldCase makes names equal that differ only in case, as most macOS file systems do. Folded paths are compared only to
// refuse them, so a false match is safe.
func foldCase(path string) string { return strings.ToLower(path) }

// everyHome returns the home directories that root can reach.
func everyHome() []string {
	homes, _ := filepath.Glob("/Users/*") // the pattern is valid
	return append(homes, "/private/var/root")
}

// openPath opens path for reading, because macOS has no O_PATH. It does not wait for a FIFO and does not acquire a
// terminal (open(2)). It follows symlinks; pathOf returns the resolved path.
func openPath(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// pathOf returns the path of a descriptor from the kernel (fcntl(2), F_GETPATH): without symlinks, and in the case that
// the file system stores, whatever case was requested.
func pathOf(f *os.File) (string, error) {
	buf := new([unix.PathMax]byte)
	var pin runtime.Pinner // the address is passed as an integer
	pin.Pin(buf)
	defer pin.Unpin()
	_, err := unix.FcntlInt(f.Fd(), unix.F_GETPATH, int(uintptr(unsafe.Pointer(buf))))
	path := unix.ByteSliceToString(buf[:])
	if err != nil || len(path) == 0 || path[0] != '/' {
		return "", fmt.Errorf("%s: its path is unknown: %q %v", f.Name(), path, err)
	}
	return path, nil
}

// mountRoot reports whether f is a mount point. If the kernel cannot tell, it returns true.
func mountRoot(f *os.File) bool {
	path, err := pathOf(f)
	var st unix.Statfs_t
	return err != nil || unix.Fstatfs(int(f.Fd()), &st) != nil || unix.ByteSliceToString(st.Mntonname[:]) == path
}
