package mcp

import (
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

// What one connection may have open: requests that were taken and not answered yet.
const (
	maxOpen      = 256
	maxOpenBytes = 8 << 20
)

// grace is how long open requests may take after the peer has sent its last byte.
const grace = 2 * time.Second

// conn is one connection: a JSON message a line, each checked before the SDK sees it. The SDK's own
// stream transport ends the connection at the first bad line; this one answers it.
type conn struct {
	rw    io.ReadWriteCloser
	in    *lines
	queue []jsonrpc.Message // of a batch, not read yet; Read's alone

	batches atomic.Bool // the negotiated revision has batches

	closing sync.Once
	closed  chan struct{}

	writing sync.Mutex // one line at a time

	mu    sync.Mutex             // guards what follows
	open  map[jsonrpc.ID]request // by id, until the answer is about to be written
	bytes int                    // of the messages of open
	busy  int                    // requests whose answer is not written yet
	idle  chan struct{}          // closed when busy falls to 0, if somebody waits
}

// request is an open request.
type request struct {
	size  int
	batch *batch // nil when it came alone
}

// batch collects the answers to an array of requests, which go out as one array.
type batch struct {
	left    int
	answers []json.RawMessage
}

func newConn(rw io.ReadWriteCloser) *conn {
	return &conn{rw: rw, in: newLines(rw), closed: make(chan struct{}), open: map[jsonrpc.ID]request{}}
}

// Connect makes conn its own sdk.Transport.
func (c *conn) Connect(context.Context) (sdk.Connection, error) { return c, nil }

// SessionID is empty: the session is the gateway's.
func (c *conn) SessionID() string { return "" }

// Close ends a blocked Read and Write.
func (c *conn) Close() (err error) {
	c.closing.Do(func() {
		close(c.closed)
		err = c.rw.Close()
	})
	return err
}

// setRevision follows the negotiation: JSON-RPC batches went with 2025-06-18.
func (c *conn) setRevision(v string) { c.batches.Store(v < "2025-06-18") }

// Read returns the next message that is fit to be handled. Only one goroutine calls it.
func (c *conn) Read(context.Context) (jsonrpc.Message, error) {
	for len(c.queue) == 0 {
		line, err := c.in.next()
		if long, ok := errors.AsType[tooLong](err); ok {
			c.refuse(long.ID, jsonrpc.CodeInvalidRequest, err)
			continue
		}
		if err != nil {
			return nil, c.last(err)
		}
		c.queue = c.accept(line)
	}
	msg := c.queue[0]
	c.queue = c.queue[1:]
	return msg, nil
}

// last ends reading. It closes the connection, since a peer that reads no more would hold a Write, and
// with it the session, for ever.
func (c *conn) last(err error) error {
	select {
	case <-c.closed:
		return io.EOF
	default:
	}
	if err == io.EOF {
		c.drain()
	}
	c.Close()
	return err
}

// drain waits for the open requests, but not for long.
func (c *conn) drain() {
	c.mu.Lock()
	idle := make(chan struct{})
	if c.idle = idle; c.busy == 0 {
		close(idle)
		c.idle = nil
	}
	c.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(grace):
	case <-c.closed:
	}
}

// accept checks a line and returns its messages; what is wrong is answered here.
func (c *conn) accept(line []byte) []jsonrpc.Message {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil
	}
	if err := strict(line); err != nil {
		code := int64(jsonrpc.CodeInvalidRequest)
		if err == errSyntax {
			code = jsonrpc.CodeParseError
		}
		c.refuse(idOf(line), code, err)
		return nil
	}
	if line[0] == '[' {
		return c.acceptBatch(line)
	}
	msg, err := parse(line)
	if err == nil {
		err = c.take(nil, msg)
	}
	if err != nil {
		c.refuse(idOf(line), jsonrpc.CodeInvalidRequest, err)
		return nil
	}
	return known(msg)
}

// acceptBatch takes an array of messages, all or none.
func (c *conn) acceptBatch(line []byte) []jsonrpc.Message {
	var raws []json.RawMessage
	err := json.Unmarshal(line, &raws)
	switch {
	case err != nil:
	case !c.batches.Load():
		err = errors.New("a batch is not part of this revision of the protocol")
	case len(raws) == 0:
		err = errors.New("the batch is empty")
	}
	var all []message
	for i := 0; err == nil && i < len(raws); i++ {
		var m message
		m, err = parse(raws[i])
		all = append(all, m)
	}
	if err == nil {
		err = c.take(&batch{}, all...)
	}
	if err != nil {
		c.refuse(nil, jsonrpc.CodeInvalidRequest, err)
		return nil
	}
	return known(all...)
}

// take opens the requests among msgs, all or none.
func (c *conn) take(b *batch, msgs ...message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, size := map[jsonrpc.ID]bool{}, 0
	for _, m := range msgs {
		if !m.call() {
			continue
		}
		if _, used := c.open[m.ID]; used || seen[m.ID] {
			return errors.New("the id is in use by an open request")
		}
		seen[m.ID] = true
		size += m.size
	}
	if len(seen) > 0 && (c.busy+len(seen) > maxOpen || c.bytes+size > maxOpenBytes) {
		return errors.New("too many requests are open on this connection; wait for answers, then send it again")
	}
	for _, m := range msgs {
		if m.call() {
			c.open[m.ID] = request{size: m.size, batch: b}
		}
	}
	if b != nil {
		b.left = len(seen)
	}
	c.busy += len(seen)
	c.bytes += size
	return nil
}

// Write sends one message of ours.
func (c *conn) Write(_ context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if r, ok := msg.(*jsonrpc.Response); ok {
		var n int
		data, n = c.settle(r.ID, data)
		defer c.release(n)
	}
	if err != nil || data == nil {
		return err
	}
	return c.send(data)
}

// settle closes the request that data answers and returns what is to be written now, and how many
// requests that answers. The id is free before the answer leaves: its receiver may use it again at once.
func (c *conn) settle(id jsonrpc.ID, data []byte) ([]byte, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.open[id]
	if !ok {
		return data, 0
	}
	delete(c.open, id)
	c.bytes -= r.size
	b := r.batch
	if b == nil {
		return data, 1
	}
	if data != nil {
		b.answers = append(b.answers, data)
	}
	if b.left--; b.left > 0 {
		return nil, 1
	}
	all, err := json.Marshal(b.answers)
	if err != nil || len(b.answers) == 0 {
		return nil, 1
	}
	return all, 1
}

// release counts n requests as answered.
func (c *conn) release(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy -= n; c.busy == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

func (c *conn) send(data []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.rw.Write(append(data, '\n'))
	return err
}

// refuse answers a message that goes no further. An id that belongs to an open request is left out: the
// refusal must not pass for that request's answer. A failed write shows in the next read.
func (c *conn) refuse(raw json.RawMessage, code int64, why error) {
	if id, ok := parseID(raw); ok {
		c.mu.Lock()
		if _, used := c.open[id]; used {
			raw = nil
		}
		c.mu.Unlock()
	}
	data, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"` // nil is null, as JSON-RPC 2.0 section 5 has it
		Error   jsonrpc.Error   `json:"error"`
	}{"2.0", raw, jsonrpc.Error{Code: code, Message: why.Error()}})
	if err == nil {
		c.send(data)
	}
}
