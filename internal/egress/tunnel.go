package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// forwardTo connects a client to the one target of its listener.
func (c *client) forwardTo(t Target) {
	g, out, ref := c.connectTarget("forward", t, nil)
	defer g.release(out)
	if ref != nil {
		c.setRequestDeadline()
		first := make([]byte, 1)
		n, _ := c.Conn.Read(first)
		c.explainRefusal(first[:n], ref)
		return
	}
	c.checkAndPipe(g, out)
}

// connectTarget admits a target and connects to it, unless ref already refuses it. The caller must release the grant
// and the connection, even after a refusal.
func (c *client) connectTarget(via string, t Target, ref *Refusal) (*grant, *outboundConn, *Refusal) {
	if ref != nil {
		return nil, nil, ref
	}
	g, ref := c.life.admitTarget(via, t)
	if ref != nil {
		return nil, nil, ref
	}
	out, ref := c.dialGranted(g)
	return g, out, ref
}

// dialGranted connects to a granted target. If TLS is opened there, it returns neither a connection nor a refusal: the
// connection is then made for the first request. A refusal is already recorded.
func (c *client) dialGranted(g *grant) (*outboundConn, *Refusal) {
	if g.entry.hasOpenedTLS() || g.isThrough() {
		return nil, nil
	}
	out, ref := g.p.dialTarget(c.life.ctx, c.life, g)
	if ref != nil {
		return nil, g.p.record.recordRefusal(g.via, g.target.String(), ref)
	}
	return out, nil
}

// checkAndPipe checks the beginning of a connection, unless the endpoint is plain, and then forwards it.
func (c *client) checkAndPipe(g *grant, out *outboundConn) {
	if g.entry.Plain {
		if g.isThrough() { // its requests must be read, although it has no TLS
			c.grant = g
			c.SetDeadline(time.Time{})
			s := newServedConn(c)
			s.serveWith(g.p.inner, s)
			return
		}
		c.pipeBoth(g, out, nil)
		return
	}
	c.setRequestDeadline()
	h, raw, err := readHello(c)
	if err != nil && (len(raw) == 0 && !isTimeout(err) || c.life.ctx.Err() != nil) {
		return // the client closed the connection without sending a byte
	}
	if ref := g.checkHello(h, err); ref != nil {
		c.explainRefusal(raw, g.p.record.recordRefusal(g.via, g.target.String(), ref))
		return
	}
	if g.entry.hasOpenedTLS() {
		c.head = append(raw, c.head...)
		c.openTLS(g)
		return
	}
	c.pipeBoth(g, out, raw)
}

// checkHello refuses a connection that does not begin with a ClientHello, or whose ClientHello hides its target or
// names another one.
func (g *grant) checkHello(h hello, err error) *Refusal {
	e, to := g.entry, "egress to "+g.target.String()
	named, ref := Target{}, (*Refusal)(nil)
	if h.named {
		named, ref = targetOf(h.name, g.target.port)
	}
	switch {
	case isTimeout(err):
		return deniedRefusal(to+" received no TLS ClientHello in time",
			"set plain: true for the endpoint if it does not use TLS, or if the server speaks first")
	case errors.Is(err, errNotTLS):
		return notTLS(g.target)
	case err != nil:
		return deniedRefusal(to+" is not allowed: "+errHello.Error(), "use another TLS client")
	case h.hidden && !e.ECH:
		return deniedRefusal(to+" is not allowed: TLS hides the server name (encrypted_client_hello)",
			"turn ECH off in the client, or set ech: true for the endpoint")
	case !h.named && !e.NoSNI:
		return deniedRefusal(to+" is not allowed: TLS names no server (no SNI)",
			"make the client send SNI, or set noSNI: true for the endpoint")
	case h.named && (ref != nil || named != g.target || strings.HasSuffix(h.name, ".")):
		return deniedRefusal(fmt.Sprintf("%s is not allowed: the TLS connection names another server, %s", to,
			quoteShort(h.name)), "request the same name from the proxy as in TLS")
	}
	return nil
}

func notTLS(t Target) *Refusal {
	return deniedRefusal("egress to "+t.String()+" is allowed only over TLS, and this is not TLS",
		"use https, or set plain: true for the endpoint")
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// alert is a fatal TLS alert, access_denied.
const alert = "\x15\x03\x03\x00\x02\x02\x31"

// explainRefusal gives the reason to a client that believes it is already connected: as an alert if it speaks TLS, as
// an HTTP response if it may speak HTTP.
func (c *client) explainRefusal(begin []byte, ref *Refusal) {
	switch {
	case len(begin) > 0 && begin[0] == recordHandshake:
		c.sendLast(alert)
	case len(begin) > 0 && 'A' <= begin[0] && begin[0] <= 'Z':
		c.sendLast(httpRefusal(ref))
	}
}

// piece is the number of bytes that are copied before they are counted.
const piece = 64 << 10

// tunnel copies two connections into each other.
type tunnel struct {
	p    *Proxy
	g    *grant
	last atomic.Int64 // time of the last byte, in nanoseconds
	ends []net.Conn
}

// pipeBoth copies in both directions until both have ended. It first sends raw and the bytes that were read ahead.
func (c *client) pipeBoth(g *grant, out *outboundConn, raw []byte) {
	c.SetDeadline(time.Time{})
	if raw = append(raw, c.head...); len(raw) > 0 {
		if _, err := out.Write(raw); err != nil {
			return
		}
	}
	t := &tunnel{p: g.p, g: g, ends: []net.Conn{c.Conn, out.Conn}}
	t.markActive()
	var both sync.WaitGroup
	both.Go(func() { t.copyDirection(out.Conn, c.Conn, &out.up) })
	both.Go(func() { t.copyDirection(c.Conn, out.Conn, &out.down) })
	both.Wait()
}

func (t *tunnel) markActive() { t.last.Store(time.Now().UnixNano()) }
func (t *tunnel) idleTime() time.Duration {
	return time.Duration(time.Now().UnixNano() - t.last.Load())
}

// copyDirection copies one direction. It passes an end of file on, and the other direction continues. Any other end
// closes both.
func (t *tunnel) copyDirection(dst, src net.Conn, count *atomic.Int64) {
	var buf []byte
	if _, ok := dst.(*net.TCPConn); !ok {
		buf = make([]byte, piece/2)
	}
	for {
		left := t.p.bytes.Load()
		if left <= 0 {
			t.p.exhaustedError(t.g)
			break
		}
		n, err := t.copyChunk(dst, src, min(piece, left), buf)
		count.Add(n)
		t.p.bytes.Add(-n)
		if n > 0 {
			t.markActive()
		}
		if err == io.EOF {
			if half, ok := dst.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				return
			}
			break
		}
		if err != nil && !(isTimeout(err) && t.idleTime() < t.p.limits.Idle) {
			break
		}
	}
	for _, c := range t.ends {
		c.Close()
	}
}

// copyChunk copies up to n bytes: in the kernel (splice) if dst is TCP, otherwise through a buffer. The read deadline
// is short, so that slow traffic is counted in time. If the write deadline expires, the tunnel must end: data that was
// read would be lost.
func (t *tunnel) copyChunk(dst, src net.Conn, n int64, buf []byte) (int64, error) {
	now := time.Now()
	src.SetReadDeadline(now.Add(min(t.p.limits.Idle/4, 15*time.Second)))
	dst.SetWriteDeadline(now.Add(t.p.limits.Idle))
	if buf == nil {
		k, err := io.CopyN(dst, src, n)
		if isTimeout(err) && time.Since(now) >= t.p.limits.Idle {
			err = io.ErrShortWrite
		}
		return k, err
	}
	k, err := src.Read(buf[:min(n, int64(len(buf)))])
	if k > 0 {
		if _, werr := dst.Write(buf[:k]); werr != nil {
			return 0, io.ErrShortWrite
		}
	}
	return int64(k), err
}
