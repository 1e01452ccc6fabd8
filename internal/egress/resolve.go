package egress

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// pins hold what a name resolved to for the life of a call: a name that answers otherwise the second time (rebinding) is
// not asked a second time. That the resolver failed is not held.
type pins struct {
	mu    sync.Mutex
	names map[string]*pin
}

type pin struct {
	mu    sync.Mutex // held while the name is being resolved: nobody else asks meanwhile
	addrs []netip.Addr
}

// Bounds of what one call can have resolved: names below a "*." are a cage's to choose.
const (
	maxNames   = 1024
	maxAddrs   = 64 // of a name, judged
	maxDialled = 8  // of a name, tried
)

func (p *pins) of(name string) *pin {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names[name] == nil && len(p.names) < maxNames {
		p.names[name] = &pin{}
	}
	return p.names[name]
}

// addresses are where a target that was decided is, each of them judged. Nobody is asked about an address, and nothing
// about a name that an upstream proxy resolves.
func (p *Proxy) addresses(ctx context.Context, t Target, e *entry) ([]netip.Addr, *Refusal) {
	if t.addr.IsValid() {
		return []netip.Addr{t.addr}, p.near(t, e, t.addr)
	}
	if p.upstream.takesNames(e) {
		return nil, nil
	}
	pin := p.pins.of(t.name)
	if pin == nil {
		return nil, denied("egress to "+t.String()+" is not allowed: this call has looked up as many names as it may", "name the host itself in the egress list")
	}
	pin.mu.Lock()
	defer pin.mu.Unlock()
	if pin.addrs == nil {
		found, err := p.lookup(ctx, t.name)
		if err != nil || len(found) == 0 {
			return nil, unreachable(t, "its name does not resolve")
		}
		pin.addrs = found
	}
	// Judged each time: another entry of the same name, with another port, may not say private.
	for _, a := range pin.addrs {
		ref := judge(t, e, a)
		if ref == nil {
			ref = p.near(t, e, a)
		}
		if ref != nil {
			return nil, ref
		}
	}
	return pin.addrs[:min(len(pin.addrs), maxDialled)], nil
}

func (p *Proxy) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limits.Connect)
	defer cancel()
	found, err := p.resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	if len(found) > maxAddrs {
		return nil, &net.DNSError{Err: "too many addresses", Name: name}
	}
	var addrs []netip.Addr
	for _, a := range found {
		// The resolver gives addresses of version 4 as mapped ones.
		if a = a.Unmap(); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}

// system is the machine's resolver, in Go: no list of search domains turns an allowed name into another.
type system struct{ *net.Resolver }

func (s system) LookupNetIP(ctx context.Context, network, name string) ([]netip.Addr, error) {
	if strings.Contains(name, ".") {
		name += "."
	}
	return s.Resolver.LookupNetIP(ctx, network, name)
}

// dialTCP connects to an address and nothing that would have to be resolved.
func dialTCP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{KeepAlive: 30 * time.Second}
	return d.DialContext(ctx, "tcp", to.String())
}
