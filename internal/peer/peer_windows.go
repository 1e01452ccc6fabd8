package peer

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/windows"

	"bailey"
)

// sunPath is what sockaddr_un holds, its final NUL included (afunix.h).
const sunPath = 108

// address returns a name that fits a sockaddr. On Windows it also wants the directory to be ours: a socket there
// does not say whose process is at its far end, so who may reach it is the directory's access list, and
// whoever dials depends on that list as much as whoever listens.
func address(path string) (addr string, release func(), err error) {
	if len(path) >= sunPath {
		return "", nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the socket's path %s is over the %d bytes an address holds", path, sunPath-1),
			Hint: "set BAILEY_HOME to a shorter path"}
	}
	if err := Owned(filepath.Dir(path)); err != nil {
		return "", nil, err
	}
	return path, func() {}, nil
}

// peerPID is SIO_AF_UNIX_GETPEERPID (afunix.h).
const peerPID = 0x58000100

// credentials returns the far end's process and our own uid, which on Windows is -1 for everybody: there is
// none to ask for. See address.
func credentials(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var far, n uint32
	cerr := raw.Control(func(fd uintptr) {
		err = windows.WSAIoctl(windows.Handle(fd), peerPID, nil, 0, (*byte)(unsafe.Pointer(&far)), uint32(unsafe.Sizeof(far)), &n, nil, 0)
	})
	if cerr != nil || err != nil {
		return 0, 0, fmt.Errorf("the socket's far end is unknown: %v %v", cerr, err)
	}
	return os.Geteuid(), int(far), nil
}

// narrow does nothing: a socket inherits its directory's access list.
func narrow(string) error { return nil }

// send writes all of b.
func send(c *net.UnixConn, b []byte) error {
	_, err := c.Write(b)
	return err
}
