package gateway

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
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
	Bearer string          // of the session that the listener names, for requests to models
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

// serveWeb serves HTTP on the connections that serveHTTP passes on, until stop is called.
func (g *Gateway) serveWeb() (stop func(why error)) {
	var stops []func(why error)
	g.web, stops = g.serveOn(g.Web, stops)
	g.model, stops = g.serveOn(g.Model, stops)
	return func(why error) {
		for _, stop := range stops {
			stop(why)
		}
	}
}

// serveOn has a server serve a listener of its own, and adds a function that ends it.
func (g *Gateway) serveOn(w Web, stops []func(why error)) (*webListener, []func(why error)) {
	if w == nil {
		return nil, stops
	}
	l := &webListener{conns: make(chan net.Conn), ended: make(chan struct{}),
		addr: &net.UnixAddr{Name: g.Home.Socket(), Net: "unix"}}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := w.Serve(l); err != nil {
			g.Log.Error("HTTP is no longer served", "err", err)
		}
	})
	return l, append(stops, func(why error) {
		w.Close(why)
		l.Close()
		serving.Wait()
	})
}

// serveHTTP passes a connection on to an HTTP server and returns when it is closed.
func (g *Gateway) serveHTTP(ctx context.Context, conn *peer.Conn, q localapi.Query) error {
	l := g.web
	if q.Verb == localapi.ModelVerb {
		l = g.model
	}
	if l == nil {
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
	c := &WebConn{UnixConn: conn.UnixConn, Dir: q.Dir, Front: q.Front, Bearer: q.Session, closed: make(chan struct{})}
	select {
	case l.conns <- c:
		<-c.closed
	case <-l.ended:
	case <-ctx.Done():
	}
	return nil
}

// EnterModel begins or continues the session of a client of models: that of a session's bearer, or one of an agent with a
// token. known is the session that EnterModel began before for the same client, or "". The caller must call leave when
// it does not need the session any more; the session of a token ends when all have left.
func (g *Gateway) EnterModel(ctx context.Context, token string, known bailey.SessionID,
	dir string) (from bailey.Call, leave func(), err error) {
	from = bailey.Call{Principal: bailey.Principal{Agent: apitype.LocalAgent, Person: g.person}, Dir: dir}
	q := localapi.Query{Verb: "call"}
	switch {
	case token == "":
		return from, nil, bailey.Denied.New("the request has no token of Bailey",
			"give the client the session's bearer, which bailey model start prints, or an agent's token as its key")
	case strings.HasPrefix(token, bearerPrefix):
		q.Session = token
	default:
		return g.enterAgent(ctx, token, known, from)
	}
	leave, err = g.openSession(ctx, q, &from)
	return from, leave, err
}

// enterAgent verifies a token and continues the known session, or begins one. The known session stays open as long as
// its first leave was not called.
func (g *Gateway) enterAgent(ctx context.Context, token string, known bailey.SessionID,
	from bailey.Call) (bailey.Call, func(), error) {
	if err := g.identifyAgent(token, &from.Principal); err != nil {
		return from, nil, err
	}
	if known != "" {
		from.Session = bailey.Session{ID: known}
		return from, nil, nil
	}
	from, leave, err := g.Enter(ctx, from.Principal, from.Dir)
	from.Door = ""
	return from, leave, err
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
