package gateway

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openPath opens path for reading: macOS has no bare descriptor. It waits for no FIFO and takes no terminal
// (open(2)). Links are followed; where they led, pathOf says.
func openPath(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// pathOf asks the kernel where a descriptor lies (fcntl(2), F_GETPATH): the true name, without links and in the
// letters' case that the file system keeps, whatever case it was asked in.
func pathOf(f *os.File) (string, error) {
	buf := new([unix.PathMax]byte)
	var pin runtime.Pinner // the address goes as a number
	pin.Pin(buf)
	defer pin.Unpin()
	_, err := unix.FcntlInt(f.Fd(), unix.F_GETPATH, int(uintptr(unsafe.Pointer(buf))))
	path := unix.ByteSliceToString(buf[:])
	if err != nil || len(path) == 0 || path[0] != '/' {
		return "", fmt.Errorf("%s: its place is not known: %q %v", f.Name(), path, err)
	}
	return path, nil
}

// mountRoot reports whether f is where something is mounted; when the kernel cannot tell, it is.
func mountRoot(f *os.File) bool {
	path, err := pathOf(f)
	var st unix.Statfs_t
	return err != nil || unix.Fstatfs(int(f.Fd()), &st) != nil || unix.ByteSliceToString(st.Mntonname[:]) == path
}
