// Package strangers bounds the connections of clients that have not shown who they are, so that they take no place from
// those that have.
//
// A connection is a stranger from the moment it is accepted until its server calls [Conn.Known] or it is closed. When one
// comes and there are too many, of its source or in all, those that have been strangers for longest are closed, first of
// the source that has most. Many clients may come at the same moment, so a stranger is left alone for a short time, while
// there is room at all: a client that connects and shows its token at once gets through, however many connections wait for
// nothing.
package strangers

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Limits of a crowd.
type Limits struct {
	PerSource, Total int           // strangers of one source, and of all, that may stay for longer than Grace
	Most             int           // strangers of all sources, however short
	Grace            time.Duration // for a client to send its token
}

// Usual are limits that suit a server of a few hundred clients. On a busy machine a request waits for seconds until its token is read.
var Usual = Limits{PerSource: 32, Total: 128, Most: 256, Grace: 4 * time.Second}

// A Crowd counts strangers. It is safe for concurrent use.
type Crowd struct {
	Limits

	mu      sync.Mutex
	sources map[string]*list.List // of *Conn, the oldest first
	size    int
}

// New returns a crowd without a stranger.
func New(l Limits) *Crowd {
	return &Crowd{Limits: l, sources: map[string]*list.List{}}
}

// Size is how many strangers there are.
func (c *Crowd) Size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

// Listener returns l with each connection that it accepts in the crowd, as a [Conn]. source says where one comes from; nil
// for [Source].
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
	return l.crowd.enter(conn, l.source(conn)), nil
}

// enter takes a connection into the crowd, and closes others if there are too many now.
func (c *Crowd) enter(conn net.Conn, source string) *Conn {
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
	for over := c.over(of); over != nil; over = c.over(of) {
		c.leave(over)
		closing = append(closing, over)
	}
	c.mu.Unlock()
	for _, over := range closing {
		over.Conn.Close()
	}
	return s
}

// over is the stranger that has to leave after one of the source came; nil if none has. mu is held.
func (c *Crowd) over(of *list.List) *Conn {
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

// leave takes a connection out, with mu held.
func (c *Crowd) leave(s *Conn) {
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
	place  *list.Element // guarded by crowd.mu; nil once it is no stranger
}

// Known takes the connection out of the crowd, and out of each crowd that a listener below has: whoever is at the other
// end has shown a token.
func (s *Conn) Known() {
	s.crowd.mu.Lock()
	s.crowd.leave(s)
	s.crowd.mu.Unlock()
	if below := Of(s.Conn); below != nil {
		below.Known()
	}
}

// Close closes the connection.
func (s *Conn) Close() error {
	s.Known()
	return s.Conn.Close()
}

// Of returns the Conn below c, which may be a TLS connection; nil if there is none.
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

// Source is the address that a connection comes from, without its port. Of IPv6 it is the /64, which one host may have whole
// (RFC 4291, section 2.5.4).
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
