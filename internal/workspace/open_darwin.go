package workspace

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
		return "", fmt.Errorf("%s: its place is not known: %q %v", f.Name(), path, err)
	}
	return path, nil
}

// mountRoot reports whether f is a mount point. If the kernel cannot tell, it returns true.
func mountRoot(f *os.File) bool {
	path, err := pathOf(f)
	var st unix.Statfs_t
	return err != nil || unix.Fstatfs(int(f.Fd()), &st) != nil || unix.ByteSliceToString(st.Mntonname[:]) == path
}
