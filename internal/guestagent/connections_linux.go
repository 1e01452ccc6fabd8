package guestagent

import (
	"errors"
	"net"
	"sync"
	"time"

	"bailey"
	"bailey/internal/guestwire"
)

// A listener accepts connections of programs in the guest, for the host.
type listener struct {
	net.Listener
	accepted chan *net.TCPConn
}

// openListener returns the listener of a session at an address, and makes it if there is none.
func (s *session) openListener(address string) (*listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.listeners[address]; l != nil {
		return l, nil
	}
	if s.ended.Load() {
		return nil, errGone
	}
	if len(s.listeners) == guestwire.MaxListeners {
		return nil, bailey.Invalid.Errorf("Use fewer addresses.", "the session listens on %d addresses already", len(s.listeners))
	}
	made, err := net.Listen("tcp4", address)
	if err != nil {
		return nil, bailey.Unavailable.Wrapf(err, "End the program in the sandbox that uses this port.", "cannot listen on %s: %v", address, err)
	}
	l := &listener{made, make(chan *net.TCPConn)}
	s.listeners[address] = l
	go l.acceptClients(s)
	return l, nil
}

// acceptClients accepts until the session ends. One accepted client waits for a request of the host, others in the kernel.
func (l *listener) acceptClients(s *session) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // for example, the guest has no descriptor left
			select {
			case <-s.ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		select {
		case l.accepted <- c.(*net.TCPConn):
		case <-s.ctx.Done():
			c.Close()
			return
		}
	}
}

// serveConnection waits for a client and copies its bytes in both directions.
func (st *stream) serveConnection(m *guestwire.Listener) (guestwire.Message, error) {
	if fault := m.Fault(); fault != "" {
		return nil, bailey.Invalid.Errorf("Use a port of 127.0.0.0/8.", "cannot listen on %q: %s", m.Address, fault)
	}
	l, err := st.s.openListener(m.Address)
	if err != nil {
		return nil, err
	}
	var conn *net.TCPConn
	select {
	case conn = <-l.accepted:
	case <-st.ctx.Done():
		return nil, errCancelled
	}
	defer conn.Close()
	var copies sync.WaitGroup
	copies.Go(func() { st.receiveForClient(conn) })
	copies.Go(func() { st.sendClient(conn) })
	ended := make(chan struct{})
	go func() {
		copies.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-st.ctx.Done(): // the host does not want the rest
		conn.Close()
		<-ended
	}
	return &guestwire.Empty{}, nil
}

// receiveForClient writes to a client what the host sends for it.
func (st *stream) receiveForClient(conn *net.TCPConn) {
	err := st.in.CopyTo(conn, func(n uint32) error {
		return st.s.sendFrame(guestwire.KindCredit, st.id, guestwire.CreditPayload(guestwire.Stdin, n))
	})
	if err != nil {
		conn.Close()
		return
	}
	conn.CloseWrite()
}

// sendClient tells the host that a client is there, and sends what it writes.
func (st *stream) sendClient(conn *net.TCPConn) {
	head := []byte{byte(guestwire.Stdout)}
	send := func(b []byte) error { return st.s.sendFrame(guestwire.KindData, st.id, head, b) }
	out := st.out[guestwire.Stdout]
	err := out.Send([]byte{guestwire.Connected}, send)
	if err == nil {
		_, err = out.CopyFrom(conn, send) // a client that resets the connection ends it, too
	}
	if err == nil {
		err = send(nil)
	}
	if err != nil {
		st.cancel()
	}
}
