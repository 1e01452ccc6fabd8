//go:build linux

package jail

import "golang.org/x/sys/unix"

func socketFilter() []uint64 {
	return sockets(unix.AUDIT_ARCH_X86_64, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_IO_URING_SETUP)
}
