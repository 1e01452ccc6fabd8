package daemon

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
	*way
	client patient
	asked  string // the request as it is reported
	more   bool   // more bytes follow the header
}

// serve answers one request and closes the connection.
func (w *way) serve(ctx context.Context, c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	x := &exchange{way: w, client: patient{c, w.limits.Idle}}
	defer func() { // a panic on one connection must not end the gateway
		if fault := recover(); fault != nil {
			w.tally.add(bailey.EgressEvent{Kind: bailey.EgressFailed, Target: w.api.String(), Reason: "the way to " + w.api.Socket + " met a fault of its own"})
		}
	}()
	c.SetReadDeadline(time.Now().Add(w.limits.Head))
	head, err := x.head(c)
	if len(head) == 0 {
		return // the client sent nothing
	}
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	x.asked = shown(line)
	if err == nil {
		var r request
		if r, err = parse(head); r.path != nil {
			x.asked = r.String()
			err = x.decide(ctx, r, err)
		}
	}
	var f fault
	if errors.As(err, &f) {
		x.refuse(http.StatusBadRequest, fmt.Sprintf("%s was sent what is no plain request: %s", w.api.Socket, f), "speak HTTP/1.1, one request without a body for each connection")
	}
}

// decide forwards a request or refuses it. If a request is not allowed and also invalid, the client is told that it is
// not allowed.
func (x *exchange) decide(ctx context.Context, r request, odd error) error {
	switch {
	case !allows(x.routes, r):
		x.refuse(http.StatusForbidden, fmt.Sprintf("%s is not asked for %s", x.api.Socket, x.asked), "allowed: "+strings.Join(x.api.Allow, ", "))
	case x.more:
		return fault("something follows it")
	case odd != nil:
		return odd
	case !x.tally.another(x.limits.Total):
		x.refuse(http.StatusServiceUnavailable, fmt.Sprintf("%s was asked %d times, which is all a call may", x.api.Socket, x.limits.Total), "ask for less")
	default:
		x.pass(ctx, r)
	}
	return nil
}

// head reads up to the empty line, and notes whether the same read returned more. Later bytes are never read.
func (x *exchange) head(c net.Conn) ([]byte, error) {
	b := make([]byte, 0, 1024)
	for {
		if len(b) == maxHead {
			return b, fault("its head is too long")
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
			return b, fault("it did not come to its end")
		}
	}
}

// pass sends the request to the daemon and returns its response to the client.
func (x *exchange) pass(ctx context.Context, r request) {
	e := bailey.EgressEvent{Kind: bailey.EgressClosed, Target: x.api.String() + " " + x.asked, Address: x.api.Path}
	err := x.converse(ctx, r, &e)
	if err != nil && ctx.Err() == nil {
		e.Kind, e.Reason, e.Hint = bailey.EgressFailed, fmt.Sprintf("%s did not answer %s: %v", x.api.Socket, x.asked, err), bailey.HintOf(err)
	}
	x.tally.add(e)
	if e.Kind == bailey.EgressFailed && e.Down == 0 {
		x.answer(http.StatusBadGateway, e.Words())
	}
}

func (x *exchange) converse(ctx context.Context, r request, e *bailey.EgressEvent) error {
	d, err := x.socket.dial(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	defer context.AfterFunc(ctx, func() { d.Close() })()
	daemon := patient{d, x.limits.Idle}
	n, err := io.WriteString(daemon, r.wire())
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
		return fmt.Errorf("it would have the connection become something else, by status %d", res.StatusCode)
	}
	bounded.N = x.limits.Bytes
	out := &counted{w: x.client, n: &e.Down}
	b := bufio.NewWriterSize(out, 32<<10)
	if err := anew(res, bounded).Write(b); err != nil {
		return err
	}
	return b.Flush()
}

// maxAnswerHead limits the header of a response and the bytes read with it.
const maxAnswerHead = 1 << 20

// hops lists the hop-by-hop fields (RFC 9110, section 7.6.1).
var hops = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// anew returns a daemon's response, newly written. If it is cut short, it ends without its last chunk or before its
// declared length, so that no client takes it for complete.
func anew(res *http.Response, bounded *io.LimitedReader) *http.Response {
	head := res.Header.Clone()
	for _, name := range hops {
		head.Del(name)
	}
	out := &http.Response{Status: res.Status, StatusCode: res.StatusCode, ProtoMajor: 1, ProtoMinor: 1, Header: head, Body: io.NopCloser(whole{res.Body, bounded}),
		ContentLength: res.ContentLength, Close: true, Request: res.Request}
	if out.ContentLength < 0 {
		out.TransferEncoding = []string{"chunked"}
	}
	return out
}

// whole returns an error if the limit ends a body. Otherwise a body that ends with its connection would look complete.
type whole struct {
	io.Reader
	bounded *io.LimitedReader
}

func (w whole) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if err != nil && w.bounded.N <= 0 {
		err = errors.New("its answer is too long")
	}
	return n, err
}

// refuse records a refusal and sends it.
func (x *exchange) refuse(status int, why, hint string) {
	e := bailey.EgressEvent{Kind: bailey.EgressRefused, Target: x.api.String() + " " + x.asked, Reason: why, Hint: hint}
	x.tally.add(e)
	x.answer(status, e.Words())
}

// answer sends the reason in the fields that the clients of these daemons read. It then waits until they are read: if a
// socket is closed with unread input, the response can be lost.
func (x *exchange) answer(status int, why string) {
	body, _ := json.Marshal(map[string]any{"message": why, "cause": "bailey", "response": status, "type": "error", "error": why, "error_code": status})
	fmt.Fprintf(x.client, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, http.StatusText(status), len(body), body)
	if half, ok := x.client.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		x.client.SetReadDeadline(time.Now().Add(x.limits.Linger))
		io.CopyN(io.Discard, x.client.Conn, 1<<20)
	}
}

// patient limits the wait for each byte, in both directions.
type patient struct {
	net.Conn
	idle time.Duration
}

func (p patient) Read(b []byte) (int, error) {
	p.SetReadDeadline(time.Now().Add(p.idle))
	return p.Conn.Read(b)
}

func (p patient) Write(b []byte) (int, error) {
	p.SetWriteDeadline(time.Now().Add(p.idle))
	return p.Conn.Write(b)
}

// counted counts the written bytes.
type counted struct {
	w io.Writer
	n *int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	*c.n += int64(n)
	return n, err
}

// shown returns foreign text on one line. It shortens nothing that is reported: the recorder masks secrets first, and
// could not recognise one that was cut.
func shown(b []byte) string { return strconv.QuoteToASCII(string(b[:min(len(b), maxTarget)])) }
