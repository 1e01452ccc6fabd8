package mcp

import (
	"bytes"
	"context"
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
)

// maxFront limits the connections of one listener: three quarters of the HTTP connections that a gateway serves. If it
// is reached, the next one waits.
const maxFront = 768

// firstPatience is how long a connection may take to send its first byte, including the TLS handshake.
const firstPatience = 10 * time.Second

// Forward connects each connection of a listener to the gateway until ctx ends. It does not parse the data. dial must
// connect to a gateway, start one if none runs, and pass it the source of the connection. If the listener counts
// strangers, a connection is one until its first byte. Then the gateway limits the connections without a token.
func Forward(ctx context.Context, l net.Listener,
	dial func(ctx context.Context, source string) (io.ReadWriteCloser, error), log *slog.Logger) error {
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
		case peer.Temporary(err):
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
			if err := forwardConn(ctx, conn, dial, log); err != nil {
				log.Debug("a connection ended", "err", err)
			}
		})
	}
}

func forwardConn(ctx context.Context, conn net.Conn, dial func(context.Context, string) (io.ReadWriteCloser, error),
	log *slog.Logger) error {
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
		writeUnavailable(conn)
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

// writeUnavailable answers the first request if no gateway is reachable. It gives no reason, because the client has not
// presented a token yet.
func writeUnavailable(conn net.Conn) {
	const body = `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"no gateway answers","data":{"kind":"unavailable","hint":"see the messages of bailey serve where it runs"}}}`
	r := http.Response{StatusCode: http.StatusServiceUnavailable, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		ContentLength: int64(len(body)),
		Header:        http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
	r.Write(conn)
}
