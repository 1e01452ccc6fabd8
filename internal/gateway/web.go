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
	"bailey/internal/peer"
	"bailey/internal/strangers"
	"bailey/internal/wire"
)

// Web serves HTTP, and has sessions of its own.
type Web interface {
	Serve(l net.Listener) error // until l ends; its connections are of type *[WebConn]
	Sessions() int              // that are open
	Close(why error)            // ends them all, and what is served, and returns when nothing of it is left
}

// WebConn is a connection that HTTP is spoken on.
type WebConn struct {
	*net.UnixConn
	Dir    string          // where the listener was started
	Front  json.RawMessage // what it says of itself
	once   sync.Once
	closed chan struct{}
}

// Close closes it.
func (c *WebConn) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.UnixConn.Close()
}

// webListener hands connections to a server.
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

func (l *webListener) Close() error   { l.once.Do(func() { close(l.ended) }); return nil }
func (l *webListener) Addr() net.Addr { return l.addr }

// serveWeb serves HTTP on the connections that are handed over, until stop.
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

// http hands a connection over, and returns when it is closed.
func (g *Gateway) http(ctx context.Context, conn *peer.Conn, q wire.Query) {
	if g.web == nil {
		conn.WriteJSON(wire.FrameError, wire.NewFailure(&bailey.Error{Kind: bailey.NotFound, Message: "this gateway serves no HTTP"}))
		return
	}
	select {
	case g.webs <- struct{}{}:
		defer func() { <-g.webs }()
	default:
		conn.WriteJSON(wire.FrameError, wire.NewFailure(errCrowded))
		return
	}
	if err := conn.WriteFrame(wire.FrameResult, nil); err != nil {
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

// Enter begins a session of the principal's, which outlives connections. Every call of it is as from is; leave ends it.
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

// maxFront bounds the connections of one listener; the next one waits for a place.
const maxFront = maxWebs * 3 / 4

// firstPatience bounds how long a connection may stay without a byte, or without having shaken hands.
const firstPatience = 10 * time.Second

// Forward gives each connection of a listener to the gateway, until ctx ends. It understands nothing of what passes. dial leads to
// a gateway, which it starts if there is none, and tells it where the connection comes from. A connection without a byte
// is a stranger to a listener that has them; from then on the gateway bounds those that show no token.
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
	n, err := conn.Read(first) // of TLS, this shakes hands
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
		far.Close() // who says no more is gone, as HTTP servers take it: its calls end
		conn.Close()
	}()
	_, err = io.Copy(conn, far)
	return err
}

// unavailable answers the first request of a connection that leads nowhere. Who asks has shown no token yet: why is not told.
func unavailable(conn net.Conn) {
	const body = `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"no gateway answers","data":{"kind":"unavailable","hint":"where bailey serve runs it is said why"}}}`
	r := http.Response{StatusCode: http.StatusServiceUnavailable, ProtoMajor: 1, ProtoMinor: 1, Close: true, ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
	r.Write(conn)
}
