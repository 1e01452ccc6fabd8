package egress

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// life owns everything that one Serve or Forward opened, so that all of it can be closed.
type life struct {
	p      *Proxy
	ctx    context.Context
	relay  *relay
	grants sync.Map // target → *grant, for every target granted so far: the transports dial nothing else

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	over  bool
	work  sync.WaitGroup
}

func (p *Proxy) begin(ctx context.Context) *life {
	l := &life{p: p, ctx: ctx, conns: map[net.Conn]struct{}{}}
	l.relay = newRelay(l)
	return l
}

// end closes every connection and returns when no goroutine uses one any more. A handler closes its own connections
// after it has counted the last bytes. The remaining ones are closed after all handlers have returned.
func (l *life) end() {
	l.mu.Lock()
	l.over = true
	var all []net.Conn
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		beneath(c).Close()
	}
	l.relay.close()
	l.work.Wait()
	for _, c := range all {
		c.Close()
	}
}

// beneath returns the underlying connection.
func beneath(c net.Conn) net.Conn {
	switch c := c.(type) {
	case *client:
		return c.Conn
	case *outward:
		return c.Conn
	}
	return c
}

// hold registers a connection, or closes it if the life has ended.
func (l *life) hold(c net.Conn) {
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

func (l *life) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// client is a connection from the cage.
type client struct {
	net.Conn        // as accepted
	head     []byte // was read ahead and must be read first
	life     *life
	grant    *grant // set if its TLS is opened
	once     sync.Once
}

func (l *life) receive(c net.Conn) *client {
	in := &client{Conn: c, life: l}
	l.hold(in)
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
		c.life.drop(c)
		err = c.Conn.Close()
	})
	return err
}

// outward is a connection that the proxy made. Its Read and Write count bytes. A tunnel copies through the underlying
// connection and counts by itself.
type outward struct {
	net.Conn
	life     *life
	grant    *grant
	address  string
	up, down atomic.Int64
	last     atomic.Int64 // time of the last byte in either direction, in nanoseconds
	expiry   *time.Timer
	once     sync.Once
}

func (l *life) take(c net.Conn, g *grant, address string) *outward {
	o := &outward{Conn: c, life: l, grant: g, address: address}
	o.expiry = time.AfterFunc(l.p.limits.Life, func() { c.Close() })
	l.hold(o)
	return o
}

// Read continues to wait while bytes pass in the other direction: the response to a long upload comes at its end.
func (o *outward) Read(b []byte) (int, error) {
	for idle := o.life.p.limits.Idle; ; {
		o.Conn.SetReadDeadline(time.Now().Add(idle))
		n, err := o.Conn.Read(b)
		if n == 0 && isTimeout(err) && time.Now().UnixNano()-o.last.Load() < int64(idle) {
			continue
		}
		return n, o.spend(&o.down, int64(n), err)
	}
}

func (o *outward) Write(b []byte) (int, error) {
	o.Conn.SetWriteDeadline(time.Now().Add(o.life.p.limits.Idle))
	n, err := o.Conn.Write(b)
	return n, o.spend(&o.up, int64(n), err)
}

// spend subtracts n bytes from the budget of the call. It returns err, or another error if the budget is used up.
func (o *outward) spend(way *atomic.Int64, n int64, err error) error {
	way.Add(n)
	if n > 0 {
		o.last.Store(time.Now().UnixNano())
	}
	if o.life.p.bytes.Add(-n) <= 0 && n > 0 {
		o.Conn.Close()
		return o.life.p.exhausted(o.grant)
	}
	return err
}

// Close records one event, however often it is called.
func (o *outward) Close() (err error) {
	o.once.Do(func() {
		o.expiry.Stop()
		o.life.drop(o)
		err = o.Conn.Close()
		o.life.p.record.add(Event{Kind: KindClosed, Via: o.grant.via, Target: o.grant.target.String(), Address: o.address,
			Up: o.up.Load(), Down: o.down.Load()})
	})
	return err
}

// exhausted returns the error that the call has no bytes left, and records it once.
func (p *Proxy) exhausted(g *grant) error {
	ref := &Refusal{why: "egress of this call has used up its bytes", hint: "ask for less, or have the limit of bytes raised",
		status: http.StatusServiceUnavailable, reply: socksDenied, kind: KindRefused}
	p.spent.Do(func() { p.record.refused(g.via, g.target.String(), ref) })
	return ref.Err()
}
