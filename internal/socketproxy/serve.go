package socketproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"bailey"
)

// exchange is one connection from the cage, and its only request.
type exchange struct {
	*socketProxy
	client idleConn
	asked  string // the request as it is reported
	more   bool   // more bytes follow the header
}

// serveConn answers one request and closes the connection.
func (w *socketProxy) serveConn(ctx context.Context, c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	x := &exchange{socketProxy: w, client: idleConn{c, w.limits.Idle}}
	defer func() { // a panic on one connection must not end the gateway
		if fault := recover(); fault != nil {
			w.tally.addEvent(bailey.EgressEvent{Kind: bailey.EgressFailed, Target: w.api.String(),
				Reason: "the proxy of " + w.api.Socket + " failed"})
		}
	}()
	c.SetReadDeadline(time.Now().Add(w.limits.Head))
	head, err := x.readHead(c)
	if len(head) == 0 {
		return // the client sent nothing
	}
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	x.asked = quoteLine(line)
	if err == nil {
		var r request
		if r, err = parseHead(head); r.path != nil {
			x.asked = r.String()
			err = x.forwardOrRefuse(ctx, r, err)
		}
	}
	var f requestFault
	if errors.As(err, &f) {
		x.refuseRequest(http.StatusBadRequest, fmt.Sprintf("%s was sent a malformed request: %s", w.api.Socket, f),
			"use HTTP/1.1, one request without a body for each connection")
	}
}

// forwardOrRefuse forwards a request or refuses it. If a request is not allowed and also invalid, the client is told that it is
// not allowed.
func (x *exchange) forwardOrRefuse(ctx context.Context, r request, odd error) error {
	switch {
	case !isAllowed(x.routes, r):
		x.refuseRequest(http.StatusForbidden, fmt.Sprintf("%s request %s is not allowed", x.api.Socket, x.asked),
			"allowed: "+strings.Join(x.api.Allow, ", "))
	case x.more:
		return requestFault("more data follows it")
	case odd != nil:
		return odd
	case !x.tally.countRequest(x.limits.Total):
		x.refuseRequest(http.StatusServiceUnavailable,
			fmt.Sprintf("%s received %d requests, the maximum for a call", x.api.Socket, x.limits.Total), "request less")
	default:
		x.forwardRequest(ctx, r)
	}
	return nil
}

// readHead reads up to the empty line, and notes whether the same read returned more. Later bytes are never read.
func (x *exchange) readHead(c net.Conn) ([]byte, error) {
	b := make([]byte, 0, 1024)
	for {
		if len(b) == maxHead {
			return b, requestFault("its head is too long")
		}
		if len(b) == cap(b) {
			b = append(make([]byte, 0, min(2*cap(b), maxHead)), b...)
		}
		from := len(b)
		n, err := c.Read(b[from:cap(b)])
		b = b[:from+n]
		if end := bytes.Index(b[max(0, from-3):], []byte("\r\n\r\n")); end >= 0 {
			end += max(0, from-3) + 4
			x.more = end < len(b)
			return b[:end], nil
		}
		if err != nil {
			return b, requestFault("it is incomplete")
		}
	}
}

// forwardRequest sends the request to the daemon and returns its response to the client.
func (x *exchange) forwardRequest(ctx context.Context, r request) {
	e := bailey.EgressEvent{Kind: bailey.EgressClosed, Target: x.api.String() + " " + x.asked, Address: x.api.Path}
	err := x.relayResponse(ctx, r, &e)
	if err != nil && ctx.Err() == nil {
		e.Kind, e.Reason, e.Hint = bailey.EgressFailed, fmt.Sprintf("%s did not answer %s: %v", x.api.Socket, x.asked,
			err), bailey.HintOf(err)
	}
	x.tally.addEvent(e)
	if e.Kind == bailey.EgressFailed && e.Down == 0 {
		x.sendError(http.StatusBadGateway, e.Words())
	}
}

func (x *exchange) relayResponse(ctx context.Context, r request, e *bailey.EgressEvent) error {
	d, err := x.socket.dialTrusted(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	defer context.AfterFunc(ctx, func() { d.Close() })()
	daemon := idleConn{d, x.limits.Idle}
	if r.mayBeQuiet() {
		daemon.idle = x.limits.Quiet
	}
	n, err := io.WriteString(daemon, r.wireText())
	if e.Up = int64(n); err != nil {
		return err
	}
	bounded := &io.LimitedReader{R: daemon, N: maxAnswerHead}
	in := bufio.NewReader(bounded)
	res, err := http.ReadResponse(in, &http.Request{Method: r.method})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 {
		return fmt.Errorf("it would switch the protocol of the connection, by status %d", res.StatusCode)
	}
	bounded.N = x.limits.Bytes
	out := &countingWriter{w: x.client, n: &e.Down}
	b := bufio.NewWriterSize(out, 32<<10)
	if err := rewriteResponse(res, bounded).Write(b); err != nil {
		return err
	}
	return b.Flush()
}

// maxAnswerHead limits the header of a response and the bytes read with it.
const maxAnswerHead = 1 << 20

// hopByHopFields lists the hop-by-hop fields (RFC 9110, section 7.6.1).
var hopByHopFields = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade"}

// rewriteResponse returns a daemon's response, newly written. If it is cut short, it ends without its last chunk or before its
// declared length, so that no client takes it for complete.
func rewriteResponse(res *http.Response, bounded *io.LimitedReader) *http.Response {
	head := res.Header.Clone()
	for _, name := range hopByHopFields {
		head.Del(name)
	}
	out := &http.Response{Status: res.Status, StatusCode: res.StatusCode, ProtoMajor: 1, ProtoMinor: 1, Header: head,
		Body:          io.NopCloser(boundedBody{res.Body, bounded}),
		ContentLength: res.ContentLength, Close: true, Request: res.Request}
	if out.ContentLength < 0 {
		out.TransferEncoding = []string{"chunked"}
	}
	return out
}

// boundedBody returns an error if the limit ends a body. Otherwise a body that ends with its connection would look complete.
type boundedBody struct {
	io.Reader
	bounded *io.LimitedReader
}

func (w boundedBody) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if err != nil && w.bounded.N <= 0 {
		err = errors.New("its answer is too long")
	}
	return n, err
}

// refuseRequest records a refusal and sends it.
func (x *exchange) refuseRequest(status int, why, hint string) {
	e := bailey.EgressEvent{Kind: bailey.EgressRefused, Target: x.api.String() + " " + x.asked, Reason: why, Hint: hint}
	x.tally.addEvent(e)
	x.sendError(status, e.Words())
}

// sendError sends the reason in the fields that the clients of these daemons read. It then waits until they are read: if a
// socket is closed with unread input, the response can be lost.
func (x *exchange) sendError(status int, why string) {
	body, _ := json.Marshal(map[string]any{"message": why, "cause": "bailey", "response": status, "type": "error",
		"error": why, "error_code": status})
	fmt.Fprintf(x.client, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, http.StatusText(status), len(body), body)
	if half, ok := x.client.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		x.client.SetReadDeadline(time.Now().Add(x.limits.Linger))
		io.CopyN(io.Discard, x.client.Conn, 1<<20)
	}
}

// idleConn limits the wait for each byte, in both directions.
type idleConn struct {
	net.Conn
	idle time.Duration
}

func (p idleConn) Read(b []byte) (int, error) {
	p.SetReadDeadline(time.Now().Add(p.idle))
	return p.Conn.Read(b)
}

func (p idleConn) Write(b []byte) (int, error) {
	p.SetWriteDeadline(time.Now().Add(p.idle))
	return p.Conn.Write(b)
}

// countingWriter counts the written bytes.
type countingWriter struct {
	w io.Writer
	n *int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	*c.n += int64(n)
	return n, err
}

// quoteLine returns foreign text on one line. It shortens nothing that is reported: the recorder masks secrets first, and
// could not recognise one that was cut.
func quoteLine(b []byte) string { return strconv.QuoteToASCII(string(b[:min(len(b), maxTarget)])) }
