package peer

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// sunPath is the size of a path in sockaddr_un, including the final NUL (unix(7)).
const sunPath = 108

// socketAddress returns a name that fits a sockaddr. If path is too long, the name uses the directory's descriptor, which
// stays open until release is called.
func socketAddress(path string) (addr string, release func(), err error) {
	if len(path) < sunPath {
		return path, func() {}, nil
	}
	dir, err := os.OpenFile(filepath.Dir(path), syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { dir.Close() }, nil
}

func peerCredentials(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *syscall.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if cerr != nil || err != nil {
		return 0, 0, fmt.Errorf("cannot identify the process at the other end of the socket: %v %v", cerr, err)
	}
	return int(cred.Uid), int(cred.Pid), nil
}

// sendAll writes all of b in one piece, even if other goroutines write. If the peer is gone, send returns an error and
// raises no SIGPIPE (MSG_NOSIGNAL, send(2)). A program that handles this signal for its own output would get it for
// sockets too.
func sendAll(c *net.UnixConn, b []byte) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		for len(b) > 0 {
			n, err := syscall.SendmsgN(int(fd), b, nil, nil, syscall.MSG_NOSIGNAL)
			switch err {
			case nil:
				b = b[n:]
			case syscall.EINTR:
			case syscall.EAGAIN:
				return false
			default:
				failed = os.NewSyscallError("sendmsg", err)
				return true
			}
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return err
}
