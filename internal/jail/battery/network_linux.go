package battery

import (
	"fmt"
	"net"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// networkProbes are attempts to communicate with a process outside the cage.
func networkProbes() []Probe {
	dial := func(name, network string, address func(*Scene) string) Probe {
		return Probe{Name: "network/" + name, try: func(s *Scene) verdict { return s.tryDial(network, address(s)) }}
	}
	in := func(dir func(*Scene) string, name string) func(*Scene) string {
		return func(s *Scene) string { return filepath.Join(dir(s), name) }
	}
	ro, rw := func(s *Scene) string { return s.RO }, func(s *Scene) string { return s.RW }
	fixed := func(address string) func(*Scene) string { return func(*Scene) string { return address } }
	list := []Probe{
		dial("loopback", "tcp", func(s *Scene) string { return s.TCP }),
		dial("loopback-6", "tcp", func(s *Scene) string { return s.TCP6 }),
		dial("loopback-datagram", "udp", func(s *Scene) string { return s.UDP }),
		dial("resolver", "udp", fixed("127.0.0.53:53")),
		dial("metadata", "tcp", fixed("169.254.169.254:80")),
		dial("abstract-socket", "unix", func(s *Scene) string { return s.Abstract }),
		// Landlock does not mediate connect() on a path (trap 6).
		dial("socket-in-readonly-place", "unix", in(ro, Stream)),
		dial("socket-in-writable-place", "unix", in(rw, Stream)),
		dial("datagrams-in-place", "unixgram", in(ro, Dgram)),
		dial("docker", "unix", fixed("/var/run/docker.sock")),
		{Name: "network/listen", try: func(s *Scene) verdict {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if s.Net && err == nil {
				l.Close()
				return heldVerdict("it listens on the cage's own loopback")
			}
			return listenVerdict(l, err)
		}},
		{Name: "network/listen-in-place", try: func(s *Scene) verdict {
			l, err := net.Listen("unix", filepath.Join(s.RW, "listener"))
			return listenVerdict(l, err)
		}},
		{Name: "network/families", try: socketFamilyProbe(false)},
		{Name: "network/pairs", try: socketFamilyProbe(true)},
		{Name: "network/pair-redirected", try: tryRedirectPair},
		{Name: "network/pair-listens", try: pairListens},
		{Name: "network/interface-up", try: interfaceUp},
		{Name: "network/descriptors-from-outside", try: tryReceiveMessage},
	}
	// A network namespace does not confine AF_VSOCK and AF_NETLINK (trap 5); AF_ALG and AF_PACKET were exploited in the
	// past.
	for name, f := range map[string][3]int{"vsock": {unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "netlink-route": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE},
		"netlink-audit":  {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
		"netlink-uevent": {unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_KOBJECT_UEVENT},
		"netfilter":      {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		"packet":         {unix.AF_PACKET, unix.SOCK_RAW, 0x0300}, "algorithms": {unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		"ping":      {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		"raw-ip":    {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		"raw-ip-6":  {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		"bluetooth": {unix.AF_BLUETOOTH, unix.SOCK_RAW, 1}, "xdp": {unix.AF_XDP, unix.SOCK_RAW,
			0}, "sctp": {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, "tipc": {unix.AF_TIPC, unix.SOCK_RDM, 0}} {
		list = append(list, Probe{Name: "network/family-" + name, try: func(*Scene) verdict {
			_, err := unix.Socket(f[0], f[1], f[2])
			return errorVerdict(err, "a socket", unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT)
		}})
	}
	return list
}

func (s *Scene) tryDial(network, address string) verdict {
	if address == "" {
		return heldVerdict("the host has no such address")
	}
	c, err := net.DialTimeout(network, address, 2*time.Second)
	nobody := []unix.Errno{unix.ENETUNREACH}
	if s.Net {
		nobody = append(nobody, unix.ECONNREFUSED, unix.EADDRNOTAVAIL)
	}
	if err == nil {
		_, err = c.Write([]byte("out of the cage"))
		if s.Net && network == "udp" && err == nil { // connect on such a socket contacts no peer
			c.SetReadDeadline(time.Now().Add(2 * time.Second))
			_, err = c.Read(make([]byte, 1))
		}
		c.Close()
		if network != "udp" {
			err = nil
		}
	}
	return errorVerdict(err, "a process at "+address, nobody...)
}

func listenVerdict(l net.Listener, err error) verdict {
	if err == nil {
		defer l.Close()
		return openVerdict("it listens at %s", l.Addr())
	}
	return errorVerdict(err, "")
}

// socketFamilyProbe tries every family of sockets, or of pairs, with every type. For pairs, the connected types of AF_UNIX are
// allowed.
func socketFamilyProbe(pair bool) func(*Scene) verdict {
	return func(scene *Scene) verdict {
		var s verdictSeries
		for family := range 64 {
			for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_RDM,
				unix.SOCK_SEQPACKET, unix.SOCK_DCCP, unix.SOCK_PACKET} {
				_, err := unix.Socket(family, kind, 0)
				if pair {
					_, err = unix.Socketpair(family, kind, 0)
				}
				if !pair && scene.Net && (family == unix.AF_INET || family == unix.AF_INET6) &&
					(kind == unix.SOCK_STREAM || kind == unix.SOCK_DGRAM) {
					continue
				}
				if pair && family == unix.AF_UNIX && (kind == unix.SOCK_STREAM || kind == unix.SOCK_SEQPACKET) {
					continue
				}
				s.addVerdict(fmt.Sprintf("%d/%d", family, kind), errorVerdict(err, "a socket",
					unix.EAFNOSUPPORT, unix.ESOCKTNOSUPPORT, unix.EPROTONOSUPPORT, unix.EOPNOTSUPP, unix.EINVAL))
			}
		}
		return s.overallVerdict()
	}
}

func unixSocketPair(kind int) (int, int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	return fds[0], fds[1], err
}

// tryRedirectPair directs a pair of sockets to a socket in a place, with each type and in each possible way. Packets in
// sequence go to their peer, whatever their address (unix(7)).
func tryRedirectPair(s *Scene) verdict {
	var all verdictSeries
	for _, kind := range []int{unix.SOCK_DGRAM, unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		a, b, err := unixSocketPair(kind)
		if err != nil {
			all.addVerdict(fmt.Sprint(kind), errorVerdict(err, ""))
			continue
		}
		for _, name := range []string{Dgram, Stream} {
			to := &unix.SockaddrUnix{Name: filepath.Join(s.RO, name)}
			err := unix.Sendto(a, []byte("x"), 0, to)
			if n, _, _ := unix.Recvfrom(b, make([]byte, 2), unix.MSG_DONTWAIT); err == nil && n == 1 {
				err = unix.EISCONN
			}
			all.addVerdict("send to "+name, errorVerdict(err, "sent", unix.EISCONN, unix.EOPNOTSUPP))
			all.addVerdict("connect to "+name,
				errorVerdict(unix.Connect(a, to), "connected", unix.EISCONN, unix.EINVAL, unix.EPROTOTYPE))
		}
	}
	return all.overallVerdict()
}

// pairListens binds one socket of a pair to a name and listens.
func pairListens(s *Scene) verdict {
	a, _, err := unixSocketPair(unix.SOCK_STREAM)
	if err != nil {
		return errorVerdict(err, "")
	}
	if err := unix.Bind(a, &unix.SockaddrUnix{Name: filepath.Join(s.RW, "pair")}); err != nil {
		return errorVerdict(err, "")
	}
	return errorVerdict(unix.Listen(a, 1), "it listens", unix.EINVAL, unix.EOPNOTSUPP)
}

// interfaceUp uses any available socket, since its family does not matter for interfaces (netdevice(7)).
func interfaceUp(*Scene) verdict {
	a, _, err := unixSocketPair(unix.SOCK_STREAM)
	if err != nil {
		return errorVerdict(err, "")
	}
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return oddVerdict("%v", err)
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return trySyscall("the loopback interface is up", unix.SYS_IOCTL, uintptr(a), unix.SIOCSIFFLAGS,
		uintptr(unsafe.Pointer(r)))
}

// tryReceiveMessage asks for descriptors on its streams, the only ones that lead outside (trap 12).
func tryReceiveMessage(*Scene) verdict {
	var s verdictSeries
	for fd := range 3 {
		_, _, _, _, err := unix.Recvmsg(fd, make([]byte, 1), make([]byte, 64), unix.MSG_DONTWAIT)
		s.addVerdict("stream "+formatInt(fd), errorVerdict(err, "a message", unix.ENOTSOCK))
	}
	return s.overallVerdict()
}
