package egress

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"bailey"
)

// pinCache caches the addresses of each name for a call, so that a different second answer (DNS rebinding) has no
// effect. A failed lookup is not cached.
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

// resolveTarget returns the judged addresses of an allowed target. If the target is an address, nothing is resolved. If
// an upstream proxy resolves the name, addresses returns none.
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
			" is not allowed: this call has reached its limit of name lookups", "add the host itself to the egress list")
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

// dialTarget connects to a granted target. It tries only the judged addresses, one after the other.
func (p *Proxy) dialTarget(ctx context.Context, l *serveScope, g *grant) (*outboundConn, *Refusal) {
	ctx, cancel := context.WithTimeout(ctx, p.limits.Connect)
	defer cancel()
	if p.upstream.isUsedFor(g.entry) {
		return p.dialUpstream(ctx, l, g)
	}
	why := "it has no address"
	for i, a := range g.addrs {
		c, err := p.dialAddress(ctx, netip.AddrPortFrom(a, g.target.port), len(g.addrs)-i)
		if err == nil {
			return l.newOutbound(c, g, a.String()), nil
		}
		why = dialFault(err)
	}
	return nil, unreachableRefusal(g.target, why)
}

// dialAddress gets its share of the remaining time, so that an address that does not answer leaves time for the next
// one.
func (p *Proxy) dialAddress(ctx context.Context, to netip.AddrPort, left int) (net.Conn, error) {
	if end, ok := ctx.Deadline(); ok && left > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		defer cancel()
	}
	return p.dialTo(ctx, to)
}

// dialFault returns why a connection failed, as text that contains nothing about this machine.
func dialFault(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, syscall.ETIMEDOUT):
		return "connection timed out"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "there is no route to it"
	case errors.Is(err, context.Canceled):
		return "the call has ended"
	}
	return "cannot connect to it"
}

// upstream is the host's own proxy.
type upstream struct {
	addr   string
	auth   bailey.Secret // value of the header Proxy-Authorization; "" if not needed
	byName bool
}

// parseUpstream parses the URL of the host's proxy. The operator configures it, so its address is not judged.
func parseUpstream(u *url.URL, byName bool) (*upstream, error) {
	if u == nil {
		return nil, nil
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	if u.Scheme != "http" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return nil, invalidError("the upstream proxy is not http://host:port",
			"use an HTTP proxy that supports CONNECT; SOCKS and TLS to the proxy are not supported")
	}
	up := &upstream{addr: net.JoinHostPort(u.Hostname(), port), byName: byName}
	if u.User != nil {
		password, _ := u.User.Password()
		up.auth = bailey.NewSecret("Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	return up, nil
}

// isUsedFor reports whether an endpoint is reached through the upstream proxy. A private endpoint is near and is
// reached directly.
func (u *upstream) isUsedFor(e *entry) bool { return u != nil && !e.Private }

func (u *upstream) takesNames(e *entry) bool { return u.isUsedFor(e) && u.byName }

func (p *Proxy) dialUpstream(ctx context.Context, l *serveScope, g *grant) (*outboundConn, *Refusal) {
	to := g.target.String()
	if !p.upstream.byName {
		if len(g.addrs) == 0 {
			return nil, unreachableRefusal(g.target, "it has no address")
		}
		to = netip.AddrPortFrom(g.addrs[0], g.target.port).String()
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", p.upstream.addr)
	if err != nil {
		return nil, unreachableRefusal(g.target, "the host's proxy: "+dialFault(err))
	}
	// The deadline and the cancellation of ctx must apply to the handshake too.
	stop := context.AfterFunc(ctx, func() { c.Close() })
	why := p.upstream.openTunnel(c, to)
	if !stop() {
		why = "the host's proxy: no answer in time"
	}
	if why != "" {
		c.Close()
		return nil, unreachableRefusal(g.target, why)
	}
	return l.newOutbound(c, g, to), nil
}

// maxAnswer limits the header of an upstream proxy's response, in bytes.
const maxAnswer = 8 << 10

// openTunnel requests a tunnel. It returns why this failed, or "" if the tunnel is open. It reads byte by byte, because
// the bytes after the header belong to the tunnel.
func (u *upstream) openTunnel(c net.Conn, to string) string {
	ask := "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n"
	if auth := u.auth.Reveal(); auth != "" {
		ask += "Proxy-Authorization: " + auth + "\r\n"
	}
	if _, err := c.Write([]byte(ask + "\r\n")); err != nil {
		return "the host's proxy: " + dialFault(err)
	}
	var head []byte
	one := make([]byte, 1)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if len(head) >= maxAnswer {
			return "the answer of the host's proxy is too long"
		}
		if _, err := c.Read(one); err != nil {
			return "the host's proxy: " + dialFault(err)
		}
		head = append(head, one[0])
	}
	proto, rest, _ := strings.Cut(string(head), " ")
	code, err := strconv.Atoi(rest[:min(3, len(rest))])
	switch {
	case proto != "HTTP/1.1" && proto != "HTTP/1.0" || err != nil:
		return "the host's proxy does not speak HTTP"
	case code < 200 || code > 299:
		return fmt.Sprintf("the host's proxy answered %d", code)
	}
	return ""
}
