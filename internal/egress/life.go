package egress

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// serveScope owns everything that one Serve or Forward opened, so that all of it can be closed.
type serveScope struct {
	p      *Proxy
	ctx    context.Context
	relay  *relay
	grants sync.Map // target → *grant, for every target granted so far: the transports dial nothing else

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	over  bool
	work  sync.WaitGroup
}

func (p *Proxy) newServeScope(ctx context.Context) *serveScope {
	l := &serveScope{p: p, ctx: ctx, conns: map[net.Conn]struct{}{}}
	l.relay = newRelay(l)
	return l
}

// closeAll closes every connection and returns when no goroutine uses one any more. A handler closes its own
// connections after it has counted the last bytes. The remaining ones are closed after all handlers have returned.
func (l *serveScope) closeAll() {
	l.mu.Lock()
	l.over = true
	var all []net.Conn
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		underlyingConn(c).Close()
	}
	l.relay.closeIdle()
	l.work.Wait()
	for _, c := range all {
		c.Close()
	}
}

// underlyingConn returns the underlying connection.
func underlyingConn(c net.Conn) net.Conn {
	switch c := c.(type) {
	case *client:
		return c.Conn
	case *outboundConn:
		return c.Conn
	}
	return c
}

// addConn registers a connection, or closes it if the life has ended.
func (l *serveScope) addConn(c net.Conn) {
	l.mu.Lock()
	over := l.over
	if !over {
		l.conns[c] = struct{}{}
	}
	l.mu.Unlock()
	if over {
		c.Close()
	}
}

func (l *serveScope) removeConn(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// client is a connection from the cage.
type client struct {
	net.Conn        // as accepted
	head     []byte // was read ahead and must be read first
	life     *serveScope
	grant    *grant // set if its TLS is opened
	once     sync.Once
}

func (l *serveScope) newClient(c net.Conn) *client {
	in := &client{Conn: c, life: l}
	l.addConn(in)
	return in
}

func (c *client) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

func (c *client) Close() (err error) {
	c.once.Do(func() {
		c.life.removeConn(c)
		err = c.Conn.Close()
	})
	return err
}

// outboundConn is a connection that the proxy made. Its Read and Write count bytes. A tunnel copies through the
// underlying connection and counts by itself.
type outboundConn struct {
	net.Conn
	life     *serveScope
	grant    *grant
	address  string
	up, down atomic.Int64
	last     atomic.Int64 // time of the last byte in either direction, in nanoseconds
	expiry   *time.Timer
	once     sync.Once
}

func (l *serveScope) newOutbound(c net.Conn, g *grant, address string) *outboundConn {
	o := &outboundConn{Conn: c, life: l, grant: g, address: address}
	o.expiry = time.AfterFunc(l.p.limits.Life, func() { c.Close() })
	l.addConn(o)
	return o
}

// Read continues to wait while bytes pass in the other direction: the response to a long upload comes at its end.
func (o *outboundConn) Read(b []byte) (int, error) {
	for idle := o.life.p.limits.Idle; ; {
		o.Conn.SetReadDeadline(time.Now().Add(idle))
		n, err := o.Conn.Read(b)
		if n == 0 && isTimeout(err) && time.Now().UnixNano()-o.last.Load() < int64(idle) {
			continue
		}
		return n, o.countBytes(&o.down, int64(n), err)
	}
}

func (o *outboundConn) Write(b []byte) (int, error) {
	o.Conn.SetWriteDeadline(time.Now().Add(o.life.p.limits.Idle))
	n, err := o.Conn.Write(b)
	return n, o.countBytes(&o.up, int64(n), err)
}

// countBytes subtracts n bytes from the budget of the call. It returns err, or another error if the budget is used up.
func (o *outboundConn) countBytes(way *atomic.Int64, n int64, err error) error {
	way.Add(n)
	if n > 0 {
		o.last.Store(time.Now().UnixNano())
	}
	if o.life.p.bytes.Add(-n) <= 0 && n > 0 {
		o.Conn.Close()
		return o.life.p.exhaustedError(o.grant)
	}
	return err
}

// Close records one event, however often it is called.
func (o *outboundConn) Close() (err error) {
	o.once.Do(func() {
		o.expiry.Stop()
		o.life.removeConn(o)
		err = o.Conn.Close()
		o.life.p.record.recordEvent(Event{Kind: KindClosed, Via: o.grant.via, Target: o.grant.target.String(),
			Address: o.address,
			Up:      o.up.Load(), Down: o.down.Load()})
	})
	return err
}

// exhaustedError returns the error that the call has no bytes left, and records it once.
func (p *Proxy) exhaustedError(g *grant) error {
	ref := &Refusal{why: "egress of this call has used up its bytes",
		hint:   "request less, or have the byte limit raised",
		status: http.StatusServiceUnavailable, reply: socksDenied, kind: KindRefused}
	p.spent.Do(func() { p.record.recordRefusal(g.via, g.target.String(), ref) })
	return ref.Err()
}
