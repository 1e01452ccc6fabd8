package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// DefaultGrace is the time that open requests may take after the peer has closed its side.
const DefaultGrace = 2 * time.Second

// conn is one connection. Each line is a JSON message, which is checked before the SDK gets it. The stream transport of
// the SDK closes the connection at the first invalid line; conn answers it instead.
type conn struct {
	rw    io.ReadWriteCloser
	in    *lineReader
	queue []jsonrpc.Message // rest of a batch; used only by Read

	batches atomic.Bool // the negotiated revision supports batches

	hide  func(string) string // see Config.Hide
	grace time.Duration       // see Config.Grace

	closing sync.Once
	closed  chan struct{}

	writing sync.Mutex // one line at a time
	asks    sentRequests
	open    openRequests
}

func newConn(rw io.ReadWriteCloser, hide func(string) string, grace time.Duration) *conn {
	return &conn{rw: rw, hide: hide, grace: grace, in: newLines(rw), closed: make(chan struct{}),
		asks: sentRequests{open: map[jsonrpc.ID]bool{}}, open: openRequests{open: map[jsonrpc.ID]openRequest{}}}
}

// Connect implements sdk.Transport.
func (c *conn) Connect(context.Context) (sdk.Connection, error) { return c, nil }

// SessionID is empty, because the gateway manages the session.
func (c *conn) SessionID() string { return "" }

// Close ends a blocked Read and Write.
func (c *conn) Close() (err error) {
	c.closing.Do(func() {
		close(c.closed)
		err = c.rw.Close()
	})
	return err
}

// setRevision stores the result of the negotiation.
func (c *conn) setRevision(v string) { c.batches.Store(hasBatches(v)) }

// Read returns the next valid message. It must be called from one goroutine only.
func (c *conn) Read(context.Context) (jsonrpc.Message, error) {
	for len(c.queue) == 0 {
		line, err := c.in.nextLine()
		if long, ok := errors.AsType[tooLong](err); ok {
			c.refuseMessage(long.ID, jsonrpc.CodeInvalidRequest, err)
			continue
		}
		if err != nil {
			return nil, c.finishReading(err)
		}
		c.queue = c.acceptLine(line)
	}
	msg := c.queue[0]
	c.queue = c.queue[1:]
	return msg, nil
}

// finishReading ends reading. It closes the connection, because a peer that no longer reads could block a Write, and with it the
// session, forever.
func (c *conn) finishReading(err error) error {
	select {
	case <-c.closed:
		return io.EOF
	default:
	}
	if err == io.EOF {
		c.open.waitUntilIdle(c.closed, c.grace)
	}
	c.Close()
	return err
}

// acceptLine checks a line and returns its messages. It answers invalid messages itself.
func (c *conn) acceptLine(line []byte) []jsonrpc.Message {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil
	}
	msgs, id, code, err := parseMessages(line, c.batches.Load())
	if err == nil {
		var b *batch
		if line[0] == '[' {
			b = &batch{}
		}
		err = c.open.addRequests(b, msgs...)
	}
	if err != nil {
		c.refuseMessage(id, code, err)
		return nil
	}
	return c.dropUnsolicited(msgs...)
}

// parseMessages parses a message, or a batch if the revision has them. If it fails, it returns the id of the message
// and an error code.
func parseMessages(data []byte, batches bool) (msgs []message, id json.RawMessage, code int64, err error) {
	if err = checkStrictJSON(data); err == errSyntax {
		return nil, idOf(data), jsonrpc.CodeParseError, err
	}
	if err == nil && data[0] == '[' {
		msgs, err = parseBatch(data, batches)
		return msgs, nil, jsonrpc.CodeInvalidRequest, err
	}
	var m message
	if err == nil {
		m, err = parseMessage(data)
	}
	return []message{m}, idOf(data), jsonrpc.CodeInvalidRequest, err
}

// dropUnsolicited drops zero messages, and answers to requests that the server has not sent.
func (c *conn) dropUnsolicited(msgs ...message) (out []jsonrpc.Message) {
	for _, m := range msgs {
		switch {
		case m.Request != nil:
			out = append(out, m.Request)
		case m.answer != nil && c.asks.matchAnswer(m.answer.ID):
			out = append(out, m.answer)
		}
	}
	return out
}

// Write sends one message of the server.
func (c *conn) Write(_ context.Context, msg jsonrpc.Message) error {
	r, answers := msg.(*jsonrpc.Response)
	if answers && r.Error != nil {
		msg = &jsonrpc.Response{ID: r.ID, Error: hiddenError(r.Error, c.hide)}
	}
	c.asks.recordSent(msg)
	data, err := jsonrpc.EncodeMessage(msg)
	if answers {
		var n int
		data, n = c.open.completeRequest(r.ID, data)
		defer c.open.releaseRequests(n)
	}
	if err != nil || data == nil {
		return err
	}
	return c.writeLine(data)
}

func (c *conn) writeLine(data []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.rw.Write(append(data, '\n'))
	return err
}

// refuseMessage answers an invalid message. If its id belongs to an open request, the id is omitted, so the refusal cannot be
// taken for the answer to that request. If the write fails, the next read fails too.
func (c *conn) refuseMessage(raw json.RawMessage, code int64, why error) {
	if id, ok := parseID(raw); ok && c.open.isOpen(id) {
		raw = nil
	}
	data, err := json.Marshal(errorMessage{"2.0", raw,
		*hiddenError(&jsonrpc.Error{Code: code, Message: why.Error()}, c.hide)})
	if err == nil {
		c.writeLine(data)
	}
}

// errorMessage is the answer to an invalid request.
type errorMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"` // nil is written as null (JSON-RPC 2.0, section 5)
	Error   jsonrpc.Error   `json:"error"`
}

// hiddenError redacts a protocol error, which may quote client data. It omits Data if redaction makes it invalid JSON.
func hiddenError(err error, hide func(string) string) *jsonrpc.Error {
	out := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: hide(err.Error())}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		out.Code = e.Code
		if data := hide(string(e.Data)); json.Valid([]byte(data)) {
			out.Data = json.RawMessage(data)
		}
	}
	return out
}

// maxLine limits one message in bytes, without its line end.
const maxLine = 1 << 20

// lineReader splits a stream into lines and keeps at most maxLine of each.
type lineReader struct {
	r   *bufio.Reader
	buf []byte
}

func newLines(r io.Reader) *lineReader { return &lineReader{r: bufio.NewReaderSize(r, 64<<10)} }

// tooLong means that a line was longer than maxLine. The line was read to its end and dropped. ID is its id, if one was
// found.
type tooLong struct{ ID json.RawMessage }

func (tooLong) Error() string { return "the message is over 1 MiB" }

// nextLine returns the next line, which is valid until the next call. After a tooLong error, reading can continue. The last
// line need not end in a line feed.
func (l *lineReader) nextLine() ([]byte, error) {
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		if len(l.buf)+len(part) > maxLine+1 {
			return nil, l.skipRest(part, err)
		}
		l.buf = append(l.buf, part...)
		switch {
		case err == bufio.ErrBufferFull:
		case err == nil:
			return l.checkLength(l.buf[:len(l.buf)-1])
		case len(l.buf) > 0 && err == io.EOF:
			return l.checkLength(l.buf)
		default:
			return nil, err
		}
	}
}

// checkLength refuses a last line that is one byte too long because it has no line feed.
func (l *lineReader) checkLength(line []byte) ([]byte, error) {
	if len(line) > maxLine {
		return nil, tooLong{idOf(line)}
	}
	return line, nil
}

// skipRest drops the rest of a line that begins in buf and part.
func (l *lineReader) skipRest(part []byte, err error) error {
	var f idFinder
	f.Write(l.buf)
	for {
		f.Write(part)
		if err != bufio.ErrBufferFull {
			break
		}
		part, err = l.r.ReadSlice('\n')
	}
	if err != nil && err != io.EOF {
		return err
	}
	return tooLong{f.ID()}
}

// idOf returns the id of a refused message, or nil.
func idOf(line []byte) json.RawMessage {
	var f idFinder
	f.Write(line)
	return f.ID()
}
