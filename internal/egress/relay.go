package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"
)

// relay forwards requests that the proxy can read: those inside opened TLS, and plain ones. Each goes to the granted
// target, whatever target the request names. The relay follows no redirect, and its connections belong to this life.
type relay struct {
	life *serveScope
	// old is HTTP/1.1, for requests that came so; new is HTTP/2 if the host supports it, for requests that came as
	// HTTP/2
	old, new *http.Transport
}

func newRelay(l *serveScope) *relay {
	r := &relay{life: l, old: newTransport(l), new: newTransport(l)}
	r.new.Protocols.SetHTTP2(true)
	r.new.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 20} // of a response that its client does not read
	return r
}

func newTransport(l *serveScope) *http.Transport {
	p := l.p
	t := &http.Transport{DialContext: func(_ context.Context, _, addr string) (net.Conn, error) { return l.redialTarget(addr) },
		TLSClientConfig:     &tls.Config{RootCAs: p.roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: p.limits.Connect, IdleConnTimeout: p.limits.Idle, MaxConnsPerHost: p.limits.Open,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 1 << 20, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(true)
	return t
}

// redialTarget dials a target that was granted before, for a transport.
func (l *serveScope) redialTarget(addr string) (net.Conn, error) {
	g, ok := l.grants.Load(addr)
	if !ok {
		return nil, errNotGranted
	}
	c, ref := l.p.dialTarget(l.ctx, l, g.(*grant))
	if ref != nil {
		return nil, &refused{ref: ref}
	}
	return c, nil
}

var errNotGranted = errors.New("no access was granted there")

// refused carries a refusal through code that handles errors only.
type refused struct {
	ref   *Refusal
	noted bool
}

func (r *refused) Error() string { return r.ref.String() }

func (r *relay) closeIdle() {
	r.old.CloseIdleConnections()
	r.new.CloseIdleConnections()
}

// serveInner handles requests inside opened TLS.
func (p *Proxy) serveInner(w http.ResponseWriter, r *http.Request) {
	c := requestConn(r).client
	g := c.grant
	host, ref := hostOf(r.Host, map[bool]string{false: "443", true: "80"}[g.entry.Plain])
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace || !strings.HasPrefix(r.RequestURI, "/") &&
		r.RequestURI != "*":
		ref = deniedRefusal("egress to "+g.target.String()+" is not allowed in this form: "+
			quoteShort(r.Method+" "+r.RequestURI), "request a path of the host")
	case ref != nil || host != g.target:
		ref = deniedRefusal("egress to "+g.target.String()+" is not allowed: the inner request names another host, "+
			quoteShort(r.Host), "send the Host of the CONNECT request")
		ref.status = http.StatusMisdirectedRequest
	}
	if ref != nil {
		writeRefusal(w, r, p.record.recordRefusal("tls", g.target.String(), ref))
		return
	}
	c.life.relay.forwardRequest(w, r, g, "https")
}

// forwardRequest forwards a request after it has replaced the placeholders.
func (r *relay) forwardRequest(w http.ResponseWriter, in *http.Request, g *grant, scheme string) {
	p := g.p
	defer p.asks.Add(-1)
	if p.asks.Add(1) > int64(p.limits.Streams) {
		ref := deniedRefusal(fmt.Sprintf("egress to %s must wait: this call has %d open requests, the maximum", g.target, p.limits.Streams), "try again when others have ended")
		ref.status = http.StatusServiceUnavailable
		writeRefusal(w, in, p.record.recordRefusal(g.via, g.target.String(), ref))
		return
	}
	ctx, cancel := context.WithCancel(in.Context())
	defer cancel()
	defer context.AfterFunc(r.life.ctx, cancel)()
	out := in.Clone(ctx)
	ref := checkUpgrade(g, out, scheme)
	if ref == nil {
		ref = g.injectSecrets(out)
	}
	if ref != nil {
		writeRefusal(w, in, g.p.record.recordRefusal(g.via, g.target.String(), ref))
		return
	}
	if held, ok := out.Body.(*heldBody); ok { // the reverse proxy does not close a request's body
		defer held.Close()
	}
	var via http.RoundTripper = r.old
	if in.ProtoMajor == 2 {
		via = r.new
	}
	if other := p.through[g.target.String()]; other != nil {
		via = other
	}
	proxy := httputil.ReverseProxy{Transport: via, FlushInterval: -1,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, 0),
		Rewrite:        func(pr *httputil.ProxyRequest) { rewriteTarget(pr, g, scheme) },
		ModifyResponse: func(res *http.Response) error { g.maskHeader(res.Header); return nil },
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, err error) { r.answerFailure(w, in, g, err) }}
	proxy.ServeHTTP(maskingWriter{w, g}, out)
	g.maskHeader(w.Header()) // trailers, which follow the body
}

// rewriteTarget sends a request to the granted target, whatever the request itself says. The query stays as it was
// written.
func rewriteTarget(pr *httputil.ProxyRequest, g *grant, scheme string) {
	pr.Out.URL.Scheme, pr.Out.URL.Host = scheme, g.target.String()
	pr.Out.URL.User, pr.Out.URL.RawQuery = nil, pr.In.URL.RawQuery
	pr.Out.Host = g.hostHeader(scheme)
	pr.Out.Trailer = nil
}

// hostHeader returns the header Host of a request to the target.
func (g *grant) hostHeader(scheme string) string {
	host := g.target.hostText()
	if g.target.addr.Is6() {
		host = "[" + host + "]"
	}
	if g.target.port != map[string]uint16{"http": 80, "https": 443}[scheme] {
		host = g.target.String()
	}
	return host
}

// checkUpgrade allows a connection with opened TLS to become a WebSocket, and nothing else. An upgrade to HTTP/2 would
// be a tunnel that the proxy cannot read.
func checkUpgrade(g *grant, r *http.Request, scheme string) *Refusal {
	to := r.Header.Values("Upgrade")
	if len(to) == 0 || r.ProtoMajor == 2 || scheme == "https" && len(to) == 1 && strings.EqualFold(to[0], "websocket") {
		return nil
	}
	return deniedRefusal("egress to "+g.target.String()+" is not allowed to become "+quoteShort(strings.Join(to, ", ")),
		"continue with HTTP; negotiate HTTP/2 in TLS (ALPN)")
}

// answerFailure answers if no response came back. The error text of a transport may quote the request, so it is not
// used.
func (r *relay) answerFailure(w http.ResponseWriter, in *http.Request, g *grant, err error) {
	if r.life.ctx.Err() != nil || in.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	ref := unreachableRefusal(g.target, "it closed the connection without an answer")
	var mine *refused
	var bad *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &mine):
		ref = mine.ref
	case errors.As(err, &bad), errors.As(err, &unknown):
		ref = unreachableRefusal(g.target, "its certificate is not trusted by this machine for that name")
	case errors.As(err, new(*net.OpError)), errors.Is(err, context.DeadlineExceeded):
		ref = unreachableRefusal(g.target, dialFault(err))
	}
	if mine == nil || !mine.noted {
		g.p.record.recordRefusal(g.via, g.target.String(), ref)
	}
	writeRefusal(w, in, ref)
}
