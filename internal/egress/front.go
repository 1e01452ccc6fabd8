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

// servers returns two servers of net/http, which parse requests strictly and write them anew: one for requests to the
// proxy itself, one for requests inside opened TLS. Each serves connections that are handed to it.
func (p *Proxy) servers() (front, inner *http.Server) {
	server := func(h http.HandlerFunc) *http.Server {
		s := &http.Server{Handler: seated(h), ReadHeaderTimeout: p.limits.Request, IdleTimeout: p.limits.Idle, MaxHeaderBytes: maxHead, DisableGeneralOptionsHandler: true,
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), ConnContext: withSeat, ConnState: leave, Protocols: new(http.Protocols)}
		s.Protocols.SetHTTP1(true)
		return s
	}
	front, inner = server(p.serveFront), server(p.serveInner)
	inner.Protocols.SetHTTP2(true)
	// This buffers data that a client sent and the other end has not read: for each stream at most its window.
	inner.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 256 << 10}
	return front, inner
}

// maxStreams limits the concurrent requests of one HTTP/2 connection. [Limits.Streams] limits those of all connections.
const maxStreams = 64

// seat is a connection that a server serves. When the server has finished with it, over is closed.
type seat struct {
	net.Conn
	client   *client
	hijacked atomic.Bool
	over     chan struct{}
	once     sync.Once
}

func (s *seat) done() { s.once.Do(func() { close(s.over) }) }

func seatFor(c *client) *seat { return &seat{Conn: c, client: c, over: make(chan struct{})} }

// at lets a server serve one connection, which is the seat itself or TLS above it. It returns when the server has
// finished.
func (s *seat) at(server *http.Server, conn net.Conn) { server.Serve(&bench{seat: s, conn: conn}) }

// bench is a listener with one connection.
type bench struct {
	*seat
	conn net.Conn
}

func (b *bench) Accept() (net.Conn, error) {
	if c := b.conn; c != nil {
		b.conn = nil
		return c, nil
	}
	<-b.over
	return nil, net.ErrClosed
}

func (b *bench) Close() error   { return nil }
func (b *bench) Addr() net.Addr { return b.LocalAddr() }

type seatKey struct{}

func withSeat(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, seatKey{}, under(c))
}

func under(c net.Conn) *seat {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*seat)
}

func leave(c net.Conn, state http.ConnState) {
	s := under(c)
	switch state {
	case http.StateHijacked:
		s.hijacked.Store(true) // the handler keeps it
	case http.StateClosed:
		s.done()
	}
}

// seated ends a hijacked connection when its handler returns.
func seated(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := seatOf(r)
		defer func() {
			if s.hijacked.Load() {
				s.done()
			}
		}()
		h(w, r)
	}
}

func seatOf(r *http.Request) *seat { return r.Context().Value(seatKey{}).(*seat) }

// serveFront handles requests to the proxy itself.
func (p *Proxy) serveFront(w http.ResponseWriter, r *http.Request) {
	c := seatOf(r).client
	switch {
	case r.Method == http.MethodConnect:
		c.connect(w, r)
	case strings.Contains(r.RequestURI, "://"):
		c.absolute(w, r)
	default:
		refuse(w, r, p.record.refused("http", "", &Refusal{why: "this is the proxy of the cage, and no server", hint: "ask for CONNECT host:port", status: http.StatusBadRequest, kind: KindRefused}))
	}
}

// connect handles CONNECT. A refusal ends the connection, so that bytes sent after the request are not read as the next
// request.
func (c *client) connect(w http.ResponseWriter, r *http.Request) {
	t, ref := ParseTarget(r.RequestURI)
	if ref == nil && r.ContentLength != 0 {
		ref = malformed(r.RequestURI, "CONNECT has no body") // for a chunked body the length is -1
	}
	if ref != nil {
		c.life.p.record.refused("connect", "", ref)
	}
	var g *grant
	var out *outward
	if ref == nil {
		g, ref = c.life.admit("connect", t)
	}
	if ref == nil {
		defer g.release()
		out, ref = c.reach(g)
	}
	if out != nil {
		defer out.Close()
	}
	_, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	ahead, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	c.head = append(bytes.Clone(ahead), c.head...)
	if ref != nil {
		c.say(httpRefusal(ref))
		return
	}
	if _, err := io.WriteString(c.Conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		c.carry(g, out)
	}
}

// absolute handles plain HTTP, for endpoints that allow it. Each request is decided by itself.
func (c *client) absolute(w http.ResponseWriter, r *http.Request) {
	scheme, authority, _ := strings.Cut(r.RequestURI, "://")
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	if i := strings.LastIndexByte(authority, ':'); i < 0 || strings.HasSuffix(authority, "]") {
		authority += ":80"
	}
	t, ref := ParseTarget(authority)
	if ref == nil && !strings.EqualFold(scheme, "http") {
		ref = malformed(r.RequestURI, "the proxy fetches nothing but http:// itself")
		ref.hint = "ask for CONNECT " + t.String()
	}
	if ref != nil {
		refuse(w, r, c.life.p.record.refused("http", "", ref))
		return
	}
	if v := c.life.p.list.Decide(t); v.Allowed() && !v.entry.Plain {
		refuse(w, r, c.life.p.record.refused("http", t.String(), notTLS(t)))
		return
	}
	g, ref := c.life.admit("http", t)
	if ref != nil {
		refuse(w, r, ref)
		return
	}
	defer g.release()
	c.life.relay.serve(w, r, g, "http")
}

// refuse answers a request with a refusal. An HTTP/1 connection is closed after that.
func refuse(w http.ResponseWriter, r *http.Request, ref *Refusal) {
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

// say sends a last message and waits up to one second until the client has read it. If a connection is closed with
// unread input, the message can be lost.
func (c *client) say(words string) {
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c.Conn, words); err != nil {
		return
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		io.Copy(io.Discard, io.LimitReader(c.Conn, maxHead))
	}
}
