// Package egress is the only network path out of a cage: a proxy outside the cage, made for one call and closed with
// it.
//
// The cage has no route. A process in it reaches a listener of the proxy and names its target in one of four ways: by
// HTTP CONNECT, by an absolute URL if plain HTTP is allowed, by SOCKS5, or by connecting to a listener that forwards to
// one name. All four use the same decision, [Allowlist.Decide], which is pure. The proxy resolves a name only if it is
// allowed, once for the call, and judges every address before it dials the first.
//
// The proxy reads the ClientHello, which must contain the requested name, and copies everything else unread. It opens
// TLS only for endpoints that are marked for inspection or have an injected secret, with a certificate authority that
// is made for the call and whose key never leaves this process.
//
// Every refusal is one line that an agent can act on, and an [Event] for the receipt. The proxy follows no redirect and
// has no fallback. Nothing that it opens outlives the context that it was given.
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

// Config lists the endpoints that one call may reach. The zero value allows none.
type Config struct {
	Allow  []Endpoint
	Inject []Injection
	// Upstream is the host's own proxy, http://[user:password@]host:port, for endpoints that are not private. It is
	// asked for the checked address. With ByName it is asked for the name and resolves it itself, so that the address
	// is not checked.
	Upstream *url.URL
	ByName   bool
	Limits   Limits
	Event    func(Event) // called one at a time, in order; must not block; may be nil
	Resolver Resolver    // nil: the machine's
	// Dial connects to a checked address. If it is nil, a plain TCP connection is made.
	Dial  func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	Roots *x509.CertPool // for opened TLS; nil: the machine's
	// Through has transports for requests to targets, host:port, that another proxy makes, which redacts them. Their TLS
	// is opened. Such a transport gets the request as the client wrote it, for the granted target. May be nil.
	Through map[string]http.RoundTripper
	// Own returns the networks of the machine's interfaces. Only private endpoints may be in them. If it is nil, the
	// system is queried each time.
	Own func() ([]netip.Prefix, error)
}

// Resolver is the part of *net.Resolver that the proxy needs. The name does not end in a dot.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, name string) ([]netip.Addr, error)
}

// Limits are the limits of one call. A field that is not positive means the default value given here.
type Limits struct {
	Open    int           // connections at the same time: 256
	Total   int           // connections in total: 10,000
	Streams int           // requests at the same time, in all connections with opened TLS together: 256
	Bytes   int64         // both directions together: 4 GiB; each further connection may exceed it by one piece of 64 KiB
	Events  int           // reported refusals, and as many other events; further ones are only counted: 128
	Request time.Duration // to name the target, including the ClientHello: 10 s
	Connect time.Duration // to resolve, and then to connect: 15 s each
	Idle    time.Duration // without a byte in either direction: 5 min
	Life    time.Duration // of one connection: 1 h
}

func (l Limits) withDefaults() Limits {
	l.Open = positiveOr(l.Open, 256)
	l.Total = positiveOr(l.Total, 10_000)
	l.Streams = positiveOr(l.Streams, 256)
	l.Bytes = positiveOr(l.Bytes, 4<<30)
	l.Events = positiveOr(l.Events, 128)
	l.Request = positiveOr(l.Request, 10*time.Second)
	l.Connect = positiveOr(l.Connect, 15*time.Second)
	l.Idle = positiveOr(l.Idle, 5*time.Minute)
	l.Life = positiveOr(l.Life, time.Hour)
	return l
}

// positiveOr returns v, or the default if v is not positive: no limit can be switched off.
func positiveOr[T int | int64 | time.Duration](v, usual T) T {
	if v <= 0 {
		return usual
	}
	return v
}

// Proxy is the egress proxy of one call.
type Proxy struct {
	list     *Allowlist
	secrets  []*secret // all injected secrets
	buffered atomic.Int64
	limits   Limits
	resolver Resolver
	dialTo   func(context.Context, netip.AddrPort) (net.Conn, error)
	own      func() ([]netip.Prefix, error)
	upstream *upstream
	roots    *x509.CertPool
	pins     pinCache
	record   recorder
	ca       *authority // nil if no endpoint has opened TLS
	through  map[string]http.RoundTripper
	front    *http.Server
	inner    *http.Server

	open  atomic.Int64 // connections that count as open now
	asks  atomic.Int64 // requests in progress
	total atomic.Int64
	bytes atomic.Int64 // remaining
	spent sync.Once    // to record once that no bytes remain
}

// New checks everything that can be checked before the first connection. It starts nothing.
func New(c Config) (*Proxy, error) {
	list, err := NewAllowlist(c.Allow)
	if err != nil {
		return nil, err
	}
	p := &Proxy{list: list, limits: c.Limits.withDefaults(), resolver: c.Resolver, dialTo: c.Dial, roots: c.Roots,
		own: c.Own}
	if p.own == nil {
		p.own = interfaceNetworks
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
	if p.secrets, err = bindInjections(list, c.Inject); err != nil {
		return nil, err
	}
	if p.upstream, err = parseUpstream(c.Upstream, c.ByName); err != nil {
		return nil, err
	}
	if err := p.bindThrough(c.Through); err != nil {
		return nil, err
	}
	if list.hasOpenedTLS() {
		if p.ca, err = newAuthority(list); err != nil {
			return nil, err
		}
	}
	p.front, p.inner = p.newServers()
	return p, nil
}

// Root returns the certificate that the cage must trust, in PEM, or nil if no endpoint has opened TLS.
func (p *Proxy) Root() []byte {
	if p.ca == nil {
		return nil
	}
	return p.ca.pem
}

func invalidError(message, hint string) error {
	return bailey.Invalid.New(message, hint)
}

// The kinds of an [Event].
const (
	KindClosed  = bailey.EgressClosed
	KindRefused = bailey.EgressRefused
	KindMisused = bailey.EgressMisused
	KindFailed  = bailey.EgressFailed
)

type (
	// Event is one occurrence, for the receipt.
	Event = bailey.EgressEvent
	// Totals are the sums of all events of a call.
	Totals = bailey.EgressTotals
)

// recorder reports events in order. Refusals have a limit of their own, so that allowed connections cannot displace
// them.
type recorder struct {
	tell func(Event)
	most int

	mu       sync.Mutex
	sum      Totals
	bad, all int // reported so far
}

func (r *recorder) recordEvent(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Time = time.Now()
	told := &r.all
	switch e.Kind {
	case KindClosed:
		r.sum.Connections++
	case KindFailed:
		r.sum.Failed++
	default:
		r.sum.Refused++
		told = &r.bad
	}
	r.sum.Up += e.Up
	r.sum.Down += e.Down
	if *told >= r.most {
		r.sum.Untold++
		return
	}
	*told++
	if r.tell != nil {
		r.tell(e)
	}
}

// takeTotals returns the sums, and begins anew with them and with what was reported.
func (r *recorder) takeTotals() Totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := r.sum
	r.sum, r.bad, r.all = Totals{}, 0, 0
	return sum
}

// recordRefusal records a refusal and returns it.
func (r *recorder) recordRefusal(via, target string, ref *Refusal) *Refusal {
	r.recordEvent(Event{Kind: ref.kind, Via: via, Target: target, Reason: ref.why, Hint: ref.hint})
	return ref
}

// Totals returns the sums so far. They are complete when Serve and Forward have returned.
func (p *Proxy) Totals() Totals {
	p.record.mu.Lock()
	defer p.record.mu.Unlock()
	return p.record.sum
}
