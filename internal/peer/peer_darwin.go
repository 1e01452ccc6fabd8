package peer

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"bailey"
)

// sunPath is the size of a path in sockaddr_un, including the final NUL (unix(4)).
const sunPath = 104

// socketAddress returns a name that fits a sockaddr. macOS has no /proc for a shorter name, so a long path is refused.
func socketAddress(path string) (addr string, release func(), err error) {
	if len(path) >= sunPath {
		return "", nil, bailey.Invalid.Errorf("set BAILEY_HOME to a shorter path",
			"the socket's path %s is over the %d bytes of a socket address", path, sunPath-1)
	}
	return path, func() {}, nil
}

// peerCredentials reads LOCAL_PEERCRED and LOCAL_PEERPID (unix(4)).
func peerCredentials(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Xucred
	cerr := raw.Control(func(fd uintptr) {
		if cred, err = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); err == nil {
			pid, err = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
		}
	})
	if cerr != nil || err != nil {
		return 0, 0, fmt.Errorf("cannot identify the process at the other end of the socket: %v %v", cerr, err)
	}
	return int(cred.Uid), pid, nil
}

// sendAll writes all of b.
func sendAll(c *net.UnixConn, b []byte) error {
	_, err := c.Write(b)
	return err
}
