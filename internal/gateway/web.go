package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/peer"
	"bailey/internal/strangers"
)

// Web serves HTTP and has its own sessions.
type Web interface {
	Serve(l net.Listener) error // serves until l ends; its connections must be of type *[WebConn]
	Sessions() int              // number of open sessions
	Close(why error)            // ends all sessions and connections and waits for them
}

// WebConn is a connection that carries HTTP.
type WebConn struct {
	*net.UnixConn
	Dir    string          // directory in which the listener was started
	Front  json.RawMessage // the listener's description of itself
	once   sync.Once
	closed chan struct{}
}

func (c *WebConn) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.UnixConn.Close()
}

// webListener passes connections to a server.
type webListener struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
	addr  net.Addr
}

func (l *webListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *webListener) Close() error { l.once.Do(func() { close(l.ended) }); return nil }

func (l *webListener) Addr() net.Addr { return l.addr }

// serveWeb serves HTTP on the connections that http passes on, until stop is called.
func (g *Gateway) serveWeb() (stop func(why error)) {
	if g.Web == nil {
		return func(error) {}
	}
	g.web = &webListener{conns: make(chan net.Conn), ended: make(chan struct{}), addr: &net.UnixAddr{Name: g.Home.Socket(), Net: "unix"}}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := g.Web.Serve(g.web); err != nil {
			g.Log.Error("HTTP is served no more", "err", err)
		}
	})
	return func(why error) {
		g.Web.Close(why)
		g.web.Close()
		serving.Wait()
	}
}

// http passes a connection on to the HTTP server and returns when it is closed.
func (g *Gateway) http(ctx context.Context, conn *peer.Conn, q localapi.Query) {
	if g.web == nil {
		conn.WriteJSON(localapi.FrameError, localapi.NewFailure(&bailey.Error{Kind: bailey.NotFound, Message: "this gateway serves no HTTP"}))
		return
	}
	select {
	case g.webs <- struct{}{}:
		defer func() { <-g.webs }()
	default:
		conn.WriteJSON(localapi.FrameError, localapi.NewFailure(errCrowded))
		return
	}
	if err := conn.WriteFrame(localapi.FrameResult, nil); err != nil {
		return
	}
	c := &WebConn{UnixConn: conn.UnixConn, Dir: q.Dir, Front: q.Front, closed: make(chan struct{})}
	select {
	case g.web.conns <- c:
	case <-g.web.ended:
		return
	case <-ctx.Done():
		return
	}
	<-c.closed
}

// Enter begins a session of a principal that outlives connections. The caller must use from for each call and leave to
// end the session.
func (g *Gateway) Enter(ctx context.Context, p bailey.Principal, dir string) (from bailey.Call, leave func(), err error) {
	p.Person = g.person
	from = bailey.Call{Principal: p, Door: "mcp", Dir: dir, Session: bailey.Session{ID: bailey.NewSessionID()}}
	part, err := g.opens(ctx, from, map[string]any{"transport": "http"}, true)
	if err != nil {
		g.endSession(from.Session.ID)
		return from, nil, err
	}
	return from, func() { part(); g.endSession(from.Session.ID) }, nil
}

// maxFront limits the connections of one listener. If it is reached, the next one waits.
const maxFront = maxWebs * 3 / 4

// firstPatience is how long a connection may take to send its first byte, including the TLS handshake.
const firstPatience = 10 * time.Second

// Forward connects each connection of a listener to the gateway until ctx ends. It does not parse the data. dial must
// connect to a gateway, start one if none runs, and pass it the source of the connection. If the listener counts
// strangers, a connection is one until its first byte. Then the gateway limits the connections without a token.
func Forward(ctx context.Context, l net.Listener, dial func(ctx context.Context, source string) (io.ReadWriteCloser, error), log *slog.Logger) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var open sync.WaitGroup
	defer open.Wait()
	places := make(chan struct{}, maxFront)
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case passing(err):
			time.Sleep(50 * time.Millisecond)
			continue
		case err != nil:
			return err
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			conn.Close()
			return nil
		}
		open.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			if err := forward(ctx, conn, dial, log); err != nil {
				log.Debug("a connection ended", "err", err)
			}
		})
	}
}

func forward(ctx context.Context, conn net.Conn, dial func(context.Context, string) (io.ReadWriteCloser, error), log *slog.Logger) error {
	conn.SetDeadline(time.Now().Add(firstPatience))
	first := make([]byte, 4<<10)
	n, err := conn.Read(first) // for TLS, this includes the handshake
	if n == 0 {
		return err
	}
	if s := strangers.Of(conn); s != nil {
		s.Known()
	}
	far, err := dial(ctx, strangers.Source(conn))
	if err != nil {
		unavailable(conn)
		log.Error("no gateway answers", "err", err, "hint", bailey.HintOf(err))
		return nil
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { far.Close() })()
	conn.SetDeadline(time.Time{})
	go func() {
		io.Copy(far, io.MultiReader(bytes.NewReader(first[:n]), conn))
		far.Close() // if a client closes its write side, HTTP servers end its calls
		conn.Close()
	}()
	_, err = io.Copy(conn, far)
	return err
}

// unavailable answers the first request if no gateway is reachable. It gives no reason, because the client has not
// presented a token yet.
func unavailable(conn net.Conn) {
	const body = `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"no gateway answers","data":{"kind":"unavailable","hint":"where bailey serve runs it is said why"}}}`
	r := http.Response{StatusCode: http.StatusServiceUnavailable, ProtoMajor: 1, ProtoMinor: 1, Close: true, ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
	r.Write(conn)
}
