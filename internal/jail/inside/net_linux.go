package inside

import (
	"syscall"
	"unsafe"
)

// bringUpLoopback brings up the only interface of a new network namespace. Its addresses come with it (netdevice(7)).
func bringUpLoopback() syscall.Errno {
	const setFlags, up, running = 0x8914, 0x1, 0x40 // SIOCSIFFLAGS, IFF_UP, IFF_RUNNING
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer syscall.Close(fd)
	request := struct { // ifreq
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: up | running}
	copy(request.name[:], "lo")
	return rawSyscall(syscall.SYS_IOCTL, uintptr(fd), setFlags, uintptr(unsafe.Pointer(&request)))
}

// offerListener makes a listening socket in the cage and passes it to the gateway: a socket stays in the namespace in which it
// was made, whichever process holds it. The cage keeps no descriptor of it, so no process in the cage answers
// connections.
func offerListener(s Step) syscall.Errno {
	family, address := syscall.AF_INET, syscall.Sockaddr(nil)
	if path := s.S[0]; path != "" {
		family, address = syscall.AF_UNIX, &syscall.SockaddrUnix{Name: path}
	} else {
		a := s.N[1]
		address = &syscall.SockaddrInet4{Port: int(s.N[2]),
			Addr: [4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)}}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, address); err != nil {
		return errnoOf(err)
	}
	if err := syscall.Listen(fd, backlog); err != nil {
		return errnoOf(err)
	}
	head := put32(put32([]byte{Socketed}, uint32(s.N[0])), 0)
	return errnoOf(syscall.Sendmsg(Socket, head, syscall.UnixRights(fd), nil, 0))
}

// backlog is the number of connections that may wait for the gateway, which accepts them as soon as it can.
const backlog = 1024
