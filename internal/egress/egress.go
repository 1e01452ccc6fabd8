// Package egress is the one way out of a cage that has a network: a proxy outside it, made for one call and gone with it.
//
// The cage has no route. What is in it reaches a listener of the proxy and says where it wants to go: by HTTP CONNECT, by an
// absolute URL where plain HTTP is allowed, by SOCKS5, or by having connected to a listener that forwards to one name
// alone. All four come to the same question, [Allowlist.Decide], which is pure. Only a name that is allowed is resolved, by the
// proxy, once for the call; every address it has is judged before the first is dialled.
//
// What passes is opaque: the proxy reads the ClientHello, wants the name it was asked for in it, and copies. TLS is opened only
// for endpoints that say so or that have something injected, by an authority made for the call, whose key never leaves
// this process.
//
// Every refusal is one line that an agent can act on, and an [Event] for the receipt. None follows a redirect, none falls
// back, and nothing the proxy opened outlives the context it was given.
package egress

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
)

// Config is what one call may reach. Its zero value lets nothing out.
type Config struct {
	Allow  []Endpoint
	Inject []Injection
	// Upstream is the host's own proxy, http://[user:password@]host:port, for endpoints that are not private. It is asked for
	// the checked address; with ByName for the name, which it then resolves itself: what address that is, nobody here knows.
	Upstream *url.URL
	ByName   bool
	Limits   Limits
	Event    func(Event) // one after the other, in their order; must not block. Nil: none
	Resolver Resolver    // nil: the machine's
	// Dial connects to an address that was checked. Nil: a plain TCP connection.
	Dial  func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	Roots *x509.CertPool // for what is opened; nil: the machine's
	// Own are the networks of the machine's interfaces, which only private endpoints may be in. Nil: the system is asked each time.
	Own func() ([]netip.Prefix, error)
}

// Resolver is what *net.Resolver does. The name ends in no dot.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, name string) ([]netip.Addr, error)
}

// Limits bound a call. Zero fields have the values named here.
type Limits struct {
	Open    int           // connections at once: 256
	Total   int           // connections in all: 10,000
	Streams int           // requests at once in connections that are opened, of all together: 256
	Bytes   int64         // both ways together: 4 GiB; each other connection may be one piece of 64 KiB over
	Events  int           // reported of refusals, and as many of the rest; what is more is counted: 128
	Request time.Duration // to say what is wanted, ClientHello included: 10 s
	Connect time.Duration // to resolve, and then to connect: 15 s each
	Idle    time.Duration // without a byte either way: 5 min
	Life    time.Duration // of one connection: 1 h
}

func (l Limits) filled() Limits {
	l.Open = or(l.Open, 256)
	l.Total = or(l.Total, 10_000)
	l.Streams = or(l.Streams, 256)
	l.Bytes = or(l.Bytes, 4<<30)
	l.Events = or(l.Events, 128)
	l.Request = or(l.Request, 10*time.Second)
	l.Connect = or(l.Connect, 15*time.Second)
	l.Idle = or(l.Idle, 5*time.Minute)
	l.Life = or(l.Life, time.Hour)
	return l
}

// or is v, or what it is by default: no limit can be switched off.
func or[T int | int64 | time.Duration](v, usual T) T {
	if v <= 0 {
		return usual
	}
	return v
}

// Proxy is the way out of one call.
type Proxy struct {
	list     *Allowlist
	secrets  []*secret // by placeholder
	limits   Limits
	resolver Resolver
	dialTo   func(context.Context, netip.AddrPort) (net.Conn, error)
	own      func() ([]netip.Prefix, error)
	upstream *upstream
	roots    *x509.CertPool
	pins     pins
	record   recorder
	ca       *authority // nil: no endpoint is opened
	front    *http.Server
	inner    *http.Server

	open  atomic.Int64 // connections that count as open now
	asks  atomic.Int64 // requests under way
	total atomic.Int64
	bytes atomic.Int64 // what is left
	spent sync.Once    // that nothing is left was noted
}

// New checks everything that can be checked before the first connection. It starts nothing.
func New(c Config) (*Proxy, error) {
	list, err := NewAllowlist(c.Allow)
	if err != nil {
		return nil, err
	}
	p := &Proxy{list: list, limits: c.Limits.filled(), resolver: c.Resolver, dialTo: c.Dial, roots: c.Roots, own: c.Own}
	if p.own == nil {
		p.own = interfaces
	}
	p.bytes.Store(p.limits.Bytes)
	p.pins.names = map[string]*pin{}
	p.record = recorder{tell: c.Event, most: p.limits.Events}
	if p.resolver == nil {
		p.resolver = system{&net.Resolver{PreferGo: true}}
	}
	if p.dialTo == nil {
		p.dialTo = dialTCP
	}
	if p.secrets, err = bind(list, c.Inject); err != nil {
		return nil, err
	}
	if p.upstream, err = chain(c.Upstream, c.ByName); err != nil {
		return nil, err
	}
	if list.opens() {
		if p.ca, err = newAuthority(list); err != nil {
			return nil, err
		}
	}
	p.front, p.inner = p.servers()
	return p, nil
}

// Root is the certificate that the cage has to trust, in PEM; nil where no endpoint is opened.
func (p *Proxy) Root() []byte {
	if p.ca == nil {
		return nil
	}
	return p.ca.pem
}

func invalid(message, hint string) error {
	return &bailey.Error{Kind: bailey.Invalid, Message: message, Hint: hint}
}
