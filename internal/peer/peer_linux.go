package peer

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// sunPath is what sockaddr_un holds, its final NUL included (unix(7)).
const sunPath = 108

// address returns a name that fits a sockaddr: a long path goes through its directory's descriptor.
func address(path string) (addr string, release func(), err error) {
	if len(path) < sunPath {
		return path, func() {}, nil
	}
	dir, err := os.OpenFile(filepath.Dir(path), syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { dir.Close() }, nil
}

func credentials(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *syscall.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if cerr != nil || err != nil {
		return 0, 0, fmt.Errorf("the socket's far end is unknown: %v %v", cerr, err)
	}
	return int(cred.Uid), int(cred.Pid), nil
}
