package gateway

import (
	"context"
	"encoding/json"
	"net"
	"sync"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/peer"
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
	g.web = &webListener{conns: make(chan net.Conn), ended: make(chan struct{}),
		addr: &net.UnixAddr{Name: g.Home.Socket(), Net: "unix"}}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := g.Web.Serve(g.web); err != nil {
			g.Log.Error("HTTP is no longer served", "err", err)
		}
	})
	return func(why error) {
		g.Web.Close(why)
		g.web.Close()
		serving.Wait()
	}
}

// serveHTTP passes a connection on to the HTTP server and returns when it is closed.
func (g *Gateway) serveHTTP(ctx context.Context, conn *peer.Conn, q localapi.Query) error {
	if g.web == nil {
		return bailey.NotFound.New("this gateway serves no HTTP", "")
	}
	select {
	case g.webs <- struct{}{}:
		defer func() { <-g.webs }()
	default:
		return errCrowded
	}
	if conn.WriteFrame(localapi.FrameResult, nil) != nil {
		return nil
	}
	c := &WebConn{UnixConn: conn.UnixConn, Dir: q.Dir, Front: q.Front, closed: make(chan struct{})}
	select {
	case g.web.conns <- c:
		<-c.closed
	case <-g.web.ended:
	case <-ctx.Done():
	}
	return nil
}

// Enter begins a session of a principal that outlives connections. The caller must use from for each call and leave to
// end the session.
func (g *Gateway) Enter(ctx context.Context, p bailey.Principal,
	dir string) (from bailey.Call, leave func(), err error) {
	p.Person = g.person
	from = bailey.Call{Principal: p, Door: "mcp", Dir: dir, Session: bailey.Session{ID: bailey.NewSessionID()}}
	part, err := g.recordStart(ctx, from, map[string]any{"transport": "http"}, true)
	if err != nil {
		g.endSession(from.Session.ID)
		return from, nil, err
	}
	return from, func() { part(); g.endSession(from.Session.ID) }, nil
}
