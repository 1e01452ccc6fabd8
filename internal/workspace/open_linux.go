package workspace

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

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
		return "", fmt.Errorf("%s: its place is not known: %q %v", f.Name(), path, err)
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
