package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Serve accepts HTTP and SOCKS5 on a listener until ctx ends. It closes the listener. When it returns, no connection
// that belongs to the listener is open.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener) error {
	return p.acceptLoop(ctx, ln, (*client).serveClient)
}

// Forward connects each connection of a listener to one target, host:port, for tools that cannot use a proxy. It
// returns an error if only a wildcard entry allows the target.
func (p *Proxy) Forward(ctx context.Context, ln net.Listener, target string) error {
	t, ref := ParseTarget(target)
	if ref == nil {
		ref = p.list.Decide(t).Refusal()
	}
	if ref != nil {
		ln.Close()
		return ref.Err()
	}
	if e := p.list.findEntry(t); e.wild {
		ln.Close()
		return invalidError("egress to "+t.String()+" is allowed as "+e.String()+", which cannot be forwarded",
			"name the host itself, or have the tool use the proxy")
	}
	return p.acceptLoop(ctx, ln, func(c *client) { c.forwardTo(t) })
}

// Names returns the targets that can be forwarded to, host:port: the entries that are exactly one name.
func (p *Proxy) Names() []string {
	var names []string
	for _, e := range p.list.entries {
		if !e.wild && !e.addr.IsValid() {
			names = append(names, e.String())
		}
	}
	return names
}

// waiting is the number of connections that may be sending their request, in addition to the open ones. Further
// connections stay in the kernel's queue.
const waiting = 64

func (p *Proxy) acceptLoop(ctx context.Context, ln net.Listener, handle func(*client)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := p.newServeScope(ctx)
	defer l.closeAll()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	defer ln.Close()
	places := make(chan struct{}, p.limits.Open+waiting)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := ln.Accept()
		if err != nil {
			<-places
			if retryAccept(ctx, err) {
				continue
			}
			return acceptError(ctx, err)
		}
		client := l.newClient(c)
		l.work.Go(func() {
			defer func() { <-places }()
			defer client.Close()
			defer client.recoverPanic()
			handle(client)
		})
	}
}

// acceptError returns nil if the end was intended.
func acceptError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the proxy accepts no more connections: %w", err)
}

// retryAccept waits and reports whether to accept again, for example after too few file descriptors, or after a
// connection that was closed before it was accepted.
func retryAccept(ctx context.Context, err error) bool {
	var ne net.Error
	if errors.Is(err, net.ErrClosed) || !errors.As(err, &ne) || ctx.Err() != nil {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(10 * time.Millisecond):
		return true
	}
}

// recoverPanic prevents a panic in one connection from ending the gateway. http.ErrAbortHandler is not a fault.
func (c *client) recoverPanic() {
	if fault := recover(); fault != nil && fault != http.ErrAbortHandler {
		c.life.p.record.recordEvent(Event{Kind: KindFailed, Via: "proxy", Reason: "the proxy failed"})
	}
}

// serveClient tells SOCKS5 from HTTP by the first byte: no HTTP method begins with the byte 5.
func (c *client) serveClient() {
	c.SetReadDeadline(time.Now().Add(c.life.p.limits.Request))
	first := make([]byte, 1)
	if _, err := c.Conn.Read(first); err != nil {
		return
	}
	if first[0] == socksVersion {
		c.serveSOCKS()
		return
	}
	c.head = first
	s := newServedConn(c)
	s.serveWith(c.life.p.front, s)
}

// grant is one permission to connect to a target.
type grant struct {
	via    string
	target Target
	entry  *entry
	addrs  []netip.Addr
	p      *Proxy
}

// admitTarget decides, counts and resolves, in this order. The caller must release the grant. A refusal is already
// recorded.
func (l *serveScope) admitTarget(via string, t Target) (*grant, *Refusal) {
	g, ref := l.grantTarget(via, t)
	if ref != nil {
		return nil, l.p.record.recordRefusal(via, t.String(), ref)
	}
	l.grants.LoadOrStore(t.String(), g)
	return g, nil
}

func (l *serveScope) grantTarget(via string, t Target) (*grant, *Refusal) {
	p := l.p
	v := p.list.Decide(t)
	if !v.Allowed() {
		return nil, v.Refusal()
	}
	if ref := p.countConnection(t); ref != nil {
		return nil, ref
	}
	g := &grant{via: via, target: t, entry: v.entry, p: p}
	addrs, ref := p.resolveTarget(l.ctx, t, v.entry)
	if ref != nil {
		g.releaseSlot()
		return nil, ref
	}
	g.addrs = addrs
	return g, nil
}

// countConnection takes one connection from the budget of the call.
func (p *Proxy) countConnection(t Target) *Refusal {
	busy := func(why, hint string) *Refusal {
		return &Refusal{why: "egress to " + t.String() + " must wait: " + why, hint: hint,
			status: http.StatusServiceUnavailable, reply: socksFailed, kind: KindRefused}
	}
	switch {
	case p.bytes.Load() <= 0:
		return busy("this call has used up its bytes", "request less, or have the byte limit raised")
	case p.total.Add(1) > int64(p.limits.Total):
		return busy(fmt.Sprintf("this call has made %d connections, the maximum", p.limits.Total),
			"keep connections open, or have the limit raised")
	case p.open.Add(1) > int64(p.limits.Open):
		p.open.Add(-1)
		return busy(fmt.Sprintf("this call has %d open connections, the maximum", p.limits.Open),
			"close some of them")
	}
	return nil
}

func (g *grant) releaseSlot() { g.p.open.Add(-1) }

// release closes a connection and then releases its grant; either may be nil.
func (g *grant) release(out *outboundConn) {
	if out != nil {
		out.Close()
	}
	if g != nil {
		g.releaseSlot()
	}
}
