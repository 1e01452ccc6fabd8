package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxHead limits the header of a request, in bytes.
const maxHead = 64 << 10

// newServers returns two servers of net/http, which parse requests strictly and write them anew: one for requests to
// the proxy itself, one for requests inside opened TLS. Each serves connections that are handed to it.
func (p *Proxy) newServers() (front, inner *http.Server) {
	server := func(h http.HandlerFunc) *http.Server {
		s := &http.Server{Handler: closeAfterHijack(h), ReadHeaderTimeout: p.limits.Request, IdleTimeout: p.limits.Idle,
			MaxHeaderBytes: maxHead, DisableGeneralOptionsHandler: true,
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler,
				0), ConnContext: withServedConn, ConnState: onConnState, Protocols: new(http.Protocols)}
		s.Protocols.SetHTTP1(true)
		return s
	}
	front, inner = server(p.serveFront), server(p.serveInner)
	inner.Protocols.SetHTTP2(true)
	// This buffers data that a client sent and the other end has not read: for each stream at most its window.
	inner.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: 1 << 20,
		MaxReceiveBufferPerStream: 256 << 10}
	return front, inner
}

// maxStreams limits the concurrent requests of one HTTP/2 connection. [Limits.Streams] limits those of all connections.
const maxStreams = 64

// servedConn is a connection that a server serves. When the server has finished with it, over is closed.
type servedConn struct {
	net.Conn
	client   *client
	hijacked atomic.Bool
	over     chan struct{}
	once     sync.Once
}

func (s *servedConn) markDone() { s.once.Do(func() { close(s.over) }) }

func newServedConn(c *client) *servedConn {
	return &servedConn{Conn: c, client: c, over: make(chan struct{})}
}

// serveWith lets a server serve one connection, which is the seat itself or TLS above it. It returns when the server
// has finished.
func (s *servedConn) serveWith(server *http.Server, conn net.Conn) {
	server.Serve(&oneConnListener{servedConn: s, conn: conn})
}

// oneConnListener is a listener with one connection.
type oneConnListener struct {
	*servedConn
	conn net.Conn
}

func (b *oneConnListener) Accept() (net.Conn, error) {
	if c := b.conn; c != nil {
		b.conn = nil
		return c, nil
	}
	<-b.over
	return nil, net.ErrClosed
}

func (b *oneConnListener) Close() error   { return nil }
func (b *oneConnListener) Addr() net.Addr { return b.LocalAddr() }

type servedConnKey struct{}

func withServedConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, servedConnKey{}, servedConnUnder(c))
}

func servedConnUnder(c net.Conn) *servedConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*servedConn)
}

func onConnState(c net.Conn, state http.ConnState) {
	s := servedConnUnder(c)
	switch state {
	case http.StateHijacked:
		s.hijacked.Store(true) // the handler keeps it
	case http.StateClosed:
		s.markDone()
	}
}

// closeAfterHijack ends a hijacked connection when its handler returns.
func closeAfterHijack(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := requestConn(r)
		defer func() {
			if s.hijacked.Load() {
				s.markDone()
			}
		}()
		h(w, r)
	}
}

func requestConn(r *http.Request) *servedConn {
	return r.Context().Value(servedConnKey{}).(*servedConn)
}

// serveFront handles requests to the proxy itself.
func (p *Proxy) serveFront(w http.ResponseWriter, r *http.Request) {
	c := requestConn(r).client
	switch {
	case r.Method == http.MethodConnect:
		c.handleConnect(w, r)
	case strings.Contains(r.RequestURI, "://"):
		c.handlePlainHTTP(w, r)
	default:
		writeRefusal(w, r, p.record.recordRefusal("http", "", &Refusal{why: "this is the proxy of the jail, not a server", hint: "use CONNECT host:port", status: http.StatusBadRequest, kind: KindRefused}))
	}
}

// handleConnect handles CONNECT. A refusal ends the connection, so that bytes sent after the request are not read as
// the next request.
func (c *client) handleConnect(w http.ResponseWriter, r *http.Request) {
	t, ref := ParseTarget(r.RequestURI)
	if ref == nil && r.ContentLength != 0 {
		ref = malformedRefusal(r.RequestURI, "CONNECT must not have a body") // for a chunked body the length is -1
	}
	if ref != nil {
		c.life.p.record.recordRefusal("connect", "", ref)
	}
	g, out, ref := c.connectTarget("connect", t, ref)
	defer g.release(out)
	_, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	ahead, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	c.head = append(bytes.Clone(ahead), c.head...)
	if ref != nil {
		c.sendLast(httpRefusal(ref))
		return
	}
	if _, err := io.WriteString(c.Conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		c.checkAndPipe(g, out)
	}
}

// handlePlainHTTP handles plain HTTP, for endpoints that allow it. Each request is decided by itself.
func (c *client) handlePlainHTTP(w http.ResponseWriter, r *http.Request) {
	scheme, authority, _ := strings.Cut(r.RequestURI, "://")
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	if i := strings.LastIndexByte(authority, ':'); i < 0 || strings.HasSuffix(authority, "]") {
		authority += ":80"
	}
	t, ref := ParseTarget(authority)
	if ref == nil && !strings.EqualFold(scheme, "http") {
		ref = malformedRefusal(r.RequestURI, "the proxy itself fetches only http:// URLs")
		ref.hint = "use CONNECT " + t.String()
	}
	if ref != nil {
		writeRefusal(w, r, c.life.p.record.recordRefusal("http", "", ref))
		return
	}
	if v := c.life.p.list.Decide(t); v.Allowed() && !v.entry.Plain {
		writeRefusal(w, r, c.life.p.record.recordRefusal("http", t.String(), notTLS(t)))
		return
	}
	g, ref := c.life.admitTarget("http", t)
	if ref != nil {
		writeRefusal(w, r, ref)
		return
	}
	defer g.releaseSlot()
	c.life.relay.forwardRequest(w, r, g, "http")
}

// writeRefusal answers a request with a refusal. An HTTP/1 connection is closed after that.
func writeRefusal(w http.ResponseWriter, r *http.Request, ref *Refusal) {
	h := w.Header()
	if r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Proxy-Status", proxyStatus(ref))
	w.WriteHeader(ref.status)
	fmt.Fprintln(w, ref)
}

// httpRefusal returns an HTTP response with the reason in the status line, because few clients print the body of a
// response to CONNECT.
func httpRefusal(ref *Refusal) string {
	body := ref.String() + "\n"
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nProxy-Status: %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		ref.status, ref.why, proxyStatus(ref), len(body), body)
}

// proxyStatus returns the value of the field Proxy-Status (RFC 9209).
func proxyStatus(ref *Refusal) string {
	what := "http_request_denied"
	if ref.kind == KindFailed {
		what = "destination_unavailable"
	}
	return "bailey; error=" + what + `; details="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(ref.why) + `"`
}

// sendLast sends a last message and waits up to one second until the client has read it. If a connection is closed with
// unread input, the message can be lost.
func (c *client) sendLast(words string) {
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c.Conn, words); err != nil {
		return
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		io.Copy(io.Discard, io.LimitReader(c.Conn, maxHead))
	}
}
