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

// pinCache caches the addresses of each name for a call, so that a different second answer (DNS rebinding) has no effect. A
// failed lookup is not cached.
type pinCache struct {
	mu    sync.Mutex
	names map[string]*pin
}

type pin struct {
	mu    sync.Mutex // held during the lookup, so that no second one starts
	addrs []netip.Addr
}

// Limits on the lookups of one call: the cage can choose any names below a "*.".
const (
	maxNames   = 1024
	maxAddrs   = 64 // of a name, judged; more is an error
	maxDialled = 8  // of a name, tried
)

func (p *pinCache) pinFor(name string) *pin {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names[name] == nil && len(p.names) < maxNames {
		p.names[name] = &pin{}
	}
	return p.names[name]
}

// resolveTarget returns the judged addresses of an allowed target. If the target is an address, nothing is resolved. If an
// upstream proxy resolves the name, addresses returns none.
func (p *Proxy) resolveTarget(ctx context.Context, t Target, e *entry) ([]netip.Addr, *Refusal) {
	if t.addr.IsValid() {
		return []netip.Addr{t.addr}, p.refuseLocal(t, e, t.addr)
	}
	if p.upstream.takesNames(e) {
		return nil, nil
	}
	pin := p.pins.pinFor(t.name)
	if pin == nil {
		return nil, deniedRefusal("egress to "+t.String()+
			" is not allowed: this call has looked up as many names as it may", "name the host itself in the egress list")
	}
	pin.mu.Lock()
	defer pin.mu.Unlock()
	if pin.addrs == nil {
		found, err := p.lookupName(ctx, t.name)
		if err != nil || len(found) == 0 {
			return nil, unreachableRefusal(t, "its name does not resolve")
		}
		pin.addrs = found
	}
	// The addresses must be judged each time: another entry with the same name and another port may not be private.
	for _, a := range pin.addrs {
		ref := judgeAddress(t, e, a)
		if ref == nil {
			ref = p.refuseLocal(t, e, a)
		}
		if ref != nil {
			return nil, ref
		}
	}
	return pin.addrs[:min(len(pin.addrs), maxDialled)], nil
}

func (p *Proxy) lookupName(ctx context.Context, name string) ([]netip.Addr, error) {
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
		// The resolver returns IPv4 addresses in mapped form.
		if a = a.Unmap(); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}

// system is the machine's resolver, in Go. A name with a dot is made absolute, so that no search domain turns an
// allowed name into another.
type system struct{ *net.Resolver }

func (s system) LookupNetIP(ctx context.Context, network, name string) ([]netip.Addr, error) {
	if strings.Contains(name, ".") {
		name += "."
	}
	return s.Resolver.LookupNetIP(ctx, network, name)
}

// dialTCP connects to an address without resolving a name.
func dialTCP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{KeepAlive: 30 * time.Second}
	return d.DialContext(ctx, "tcp", to.String())
}
