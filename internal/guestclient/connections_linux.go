package guestclient

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/guestwire"
)

// Listen returns a listener at a TCP port of 127.0.0.0/8 in the guest, whose connections are those of programs there.
// They are real sockets, with deadlines and an end in each direction. All of them end with the session, or when the
// listener is closed. The guest listens from the first Accept on, until the session ends.
func (s *Session) Listen(address string) (net.Listener, error) {
	m := guestwire.Listener{Address: address}
	if fault := m.Fault(); fault != "" {
		return nil, bailey.Invalid.Errorf("Use a port of 127.0.0.0/8.", "cannot listen on %q in the sandbox: %s", address, fault)
	}
	l := &guestListener{s: s, address: address}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

type guestListener struct {
	s       *Session
	address string
	ctx     context.Context
	cancel  context.CancelFunc
}

// Accept waits for a connection.
func (l *guestListener) Accept() (net.Conn, error) {
	outer, inner, err := newSocketPair()
	if err != nil {
		return nil, err
	}
	g := &guestConn{UnixConn: inner, connected: make(chan struct{})}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(l.ctx)
	go func() {
		defer cancel()
		defer inner.Close()
		ended <- l.s.runOperation(ctx, operation{op: guestwire.OpAccept, request: &guestwire.Listener{Address: l.address},
			reply: &guestwire.Empty{}, stdin: inner, stdout: g})
	}()
	select {
	case <-g.connected:
		return &hostConn{UnixConn: outer, cancel: cancel}, nil
	case err := <-ended:
		outer.Close()
		if l.ctx.Err() != nil || l.s.Err() != nil || err == nil {
			return nil, net.ErrClosed
		}
		return nil, err
	}
}

// Close ends the listener and its connections.
func (l *guestListener) Close() error {
	l.cancel()
	return nil
}

// Addr returns the address in the guest.
func (l *guestListener) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(l.address))
}

// hostConn is the end of a pair of sockets that the caller of Accept has.
type hostConn struct {
	*net.UnixConn
	cancel context.CancelFunc
}

// rest is how long a client in the guest may take to read the rest of a connection that was closed here.
const rest = 10 * time.Second

// Close closes the connection. Bytes that were written before still reach the client. A client that does not close its
// end must not keep the connection.
func (c *hostConn) Close() error {
	time.AfterFunc(rest, c.cancel)
	return c.UnixConn.Close()
}

// guestConn is the end of a pair of sockets at which the bytes of the guest are written. Its first byte says that a client
// has connected.
type guestConn struct {
	*net.UnixConn
	once      sync.Once
	connected chan struct{}
}

func (g *guestConn) Write(p []byte) (int, error) {
	n := len(p)
	violated := false
	g.once.Do(func() {
		if violated = p[0] != guestwire.Connected; !violated {
			close(g.connected)
			p = p[1:]
		}
	})
	if violated {
		return 0, guestwire.Violation("a connection does not begin with its first byte")
	}
	if len(p) > 0 {
		if _, err := g.UnixConn.Write(p); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// newSocketPair returns two sockets that are connected with each other.
func newSocketPair() (a, b *net.UnixConn, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range ends {
		f := os.NewFile(uintptr(fd), "connection of a sandbox")
		c, connErr := net.FileConn(f)
		f.Close()
		if connErr != nil {
			err = connErr
			continue
		}
		conns[i] = c.(*net.UnixConn)
	}
	if err != nil {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
		return nil, nil, err
	}
	return conns[0], conns[1], nil
}
