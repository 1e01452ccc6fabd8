// Package strangers limits the connections of clients that have not authenticated, so that they take no capacity from
// clients that have.
//
// A connection is a stranger from its acceptance until its server calls [Conn.Known] or it is closed. If a new one
// exceeds the limit of its source or the total, the oldest strangers are closed, first those of the source with the
// most. Many clients may connect at once, so a stranger is not closed within [Limits.Grace] unless there are more than
// [Limits.Most]. A client that sends its token at once therefore gets through, however many connections are idle.
package strangers

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Limits are the limits of a Crowd.
type Limits struct {
	PerSource, Total int           // strangers of one source, and of all sources, that may stay longer than Grace
	Most             int           // strangers of all sources, including those within Grace
	Grace            time.Duration // time that a client has to send its token
}

// Usual are limits for a server with a few hundred clients. If the machine is busy, seconds may pass before a request's
// token is read.
var Usual = Limits{PerSource: 32, Total: 128, Most: 256, Grace: 4 * time.Second}

// A Crowd counts strangers. It is safe for concurrent use.
type Crowd struct {
	Limits

	mu      sync.Mutex
	sources map[string]*list.List // lists of *Conn, oldest first
	size    int
}

// New returns an empty crowd.
func New(l Limits) *Crowd {
	return &Crowd{Limits: l, sources: map[string]*list.List{}}
}

// Size returns the number of strangers.
func (c *Crowd) Size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

// Listener wraps l so that each accepted connection is a [Conn] in the crowd. source returns the source of a
// connection; if it is nil, [Source] is used.
func (c *Crowd) Listener(l net.Listener, source func(net.Conn) string) net.Listener {
	if source == nil {
		source = Source
	}
	return &listener{l, c, source}
}

type listener struct {
	net.Listener
	crowd  *Crowd
	source func(net.Conn) string
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.crowd.addConn(conn, l.source(conn)), nil
}

// addConn adds a connection and closes others if a limit is now exceeded.
func (c *Crowd) addConn(conn net.Conn, source string) *Conn {
	s := &Conn{Conn: conn, crowd: c, source: source, since: time.Now()}
	c.mu.Lock()
	of := c.sources[source]
	if of == nil {
		of = list.New()
		c.sources[source] = of
	}
	s.place = of.PushBack(s)
	c.size++
	var closing []*Conn
	for over := c.connOverLimit(of); over != nil; over = c.connOverLimit(of) {
		c.removeConn(over)
		closing = append(closing, over)
	}
	c.mu.Unlock()
	for _, over := range closing {
		over.Conn.Close()
	}
	return s
}

// connOverLimit returns the stranger to close after one was added to its source's list, or nil if no limit is exceeded. The
// caller must hold mu.
func (c *Crowd) connOverLimit(of *list.List) *Conn {
	if of.Len() <= c.PerSource {
		if c.size <= c.Total {
			return nil
		}
		for _, other := range c.sources {
			if other.Len() > of.Len() {
				of = other
			}
		}
	}
	oldest := of.Front().Value.(*Conn)
	if c.size <= c.Most && time.Since(oldest.since) < c.Grace {
		return nil
	}
	return oldest
}

// removeConn removes a connection from the crowd. The caller must hold mu.
func (c *Crowd) removeConn(s *Conn) {
	if s.place == nil {
		return
	}
	of := c.sources[s.source]
	of.Remove(s.place)
	s.place = nil
	c.size--
	if of.Len() == 0 {
		delete(c.sources, s.source)
	}
}

// A Conn is a connection that was a stranger when it was accepted.
type Conn struct {
	net.Conn
	crowd  *Crowd
	source string
	since  time.Time
	place  *list.Element // guarded by crowd.mu; nil after the Conn left the crowd
}

// Known removes the connection from its crowd, and from the crowds of listeners below. A server must call it when the
// client should not count any more, for example after a valid token.
func (s *Conn) Known() {
	s.crowd.mu.Lock()
	s.crowd.removeConn(s)
	s.crowd.mu.Unlock()
	if below := Of(s.Conn); below != nil {
		below.Known()
	}
}

func (s *Conn) Close() error {
	s.Known()
	return s.Conn.Close()
}

// Of returns the Conn that c wraps, for example through TLS, or nil if c wraps no Conn.
func Of(c net.Conn) *Conn {
	for {
		switch below := c.(type) {
		case *Conn:
			return below
		case interface{ NetConn() net.Conn }:
			c = below.NetConn()
		default:
			return nil
		}
	}
}

// Source returns the address of the client without its port. For IPv6 it returns the /64 prefix, because one host may
// own a whole /64 (RFC 4291, section 2.5.4).
func Source(c net.Conn) string {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	prefix, _ := addr.Prefix(64)
	return prefix.String()
}
