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

// sunPath is the size of a path in sockaddr_un, including the final NUL (afunix.h).
const sunPath = 108

// socketAddress returns a name that fits a sockaddr. On Windows the directory must also belong to our user: a socket does not
// report its peer's user, so only the directory's access list protects it. The client depends on it as much as the
// listener.
func socketAddress(path string) (addr string, release func(), err error) {
	if len(path) >= sunPath {
		return "", nil, bailey.Invalid.Errorf("set BAILEY_HOME to a shorter path",
			"the socket's path %s is over the %d bytes an address holds", path, sunPath-1)
	}
	if err := Owned(filepath.Dir(path)); err != nil {
		return "", nil, err
	}
	return path, func() {}, nil
}

// peerPID is SIO_AF_UNIX_GETPEERPID (afunix.h).
const peerPID = 0x58000100

// peerCredentials returns the PID of the peer and our own uid. On Windows that uid is -1 for every user, because sockets
// report none. See address.
func peerCredentials(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var far, n uint32
	cerr := raw.Control(func(fd uintptr) {
		err = windows.WSAIoctl(windows.Handle(fd), peerPID, nil, 0, (*byte)(unsafe.Pointer(&far)),
			uint32(unsafe.Sizeof(far)), &n, nil, 0)
	})
	if cerr != nil || err != nil {
		return 0, 0, fmt.Errorf("the socket's far end is unknown: %v %v", cerr, err)
	}
	return os.Geteuid(), int(far), nil
}

// restrictToOwner does nothing: a socket inherits the access list of its directory.
func restrictToOwner(string) error { return nil }

// sendAll writes all of b.
func sendAll(c *net.UnixConn, b []byte) error {
	_, err := c.Write(b)
	return err
}
