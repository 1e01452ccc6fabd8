package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/peer"
)

// Relay copies an agent's MCP lines to the gateway and the answers back. It parses them only to know which requests of
// either side are pending. If the gateway ends, each pending request of the agent gets an error, and each of the
// gateway is withdrawn. The next line starts a new gateway, to which Relay repeats the handshake. Relay repeats no
// call, and it must not pass an answer to another gateway than the one that asked.
func Relay(ctx context.Context, dial func(context.Context) (io.ReadWriteCloser, error), in io.Reader,
	out io.Writer) error {
	r := &relay{dial: dial, out: out, waiting: map[string]json.RawMessage{}, asked: map[string]json.RawMessage{}}
	defer r.hangUp()
	if err := r.dialGateway(ctx); err != nil {
		return err
	}
	lines := make(chan []byte)
	ended := make(chan error, 1)
	go func() { ended <- readLines(in, lines, ctx.Done()) }()
	for {
		select {
		case line := <-lines:
			if err := r.forwardLine(ctx, line); err != nil {
				return err
			}
		case err := <-ended:
			r.drainAnswers(ctx)
			return err
		case <-ctx.Done():
			if r.hasPending() {
				return context.Cause(ctx)
			}
			return nil
		}
	}
}

// hasPending reports whether a request of the agent has no answer yet.
func (r *relay) hasPending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) > 0
}

const (
	// settlePatience limits how long the last answers may take after the agent closed its side.
	settlePatience = 5 * time.Second
	lostCall       = "the gateway stopped during the call: the call may have run; see bailey receipts list"
)

type relay struct {
	dial func(context.Context) (io.ReadWriteCloser, error)
	out  io.Writer

	outMu sync.Mutex // held for one complete line

	mu        sync.Mutex // guards the fields below; not held during writes
	conn      io.ReadWriteCloser
	ended     chan struct{}              // closed when conn has ended
	waiting   map[string]json.RawMessage // ids of pending requests of the agent
	asked     map[string]json.RawMessage // ids of pending requests of the gateway
	handshake [][]byte                   // initialize and notifications/initialized, for repetition
	swallow   string                     // id of a repeated initialize, whose answer the agent already has
}

func (r *relay) dialGateway(ctx context.Context) error {
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn, r.ended = conn, make(chan struct{})
	go r.copyAnswers(conn, r.ended)
	return nil
}

// envelope has the fields of a message that the relay reads.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Params json.RawMessage `json:"params"`
}

// isAnswer reports whether the message answers a request.
func (e envelope) isAnswer() bool {
	return e.Method == "" && len(e.ID) > 0 && (e.Result != nil || e.Error != nil)
}

// cancelledID returns the id of the request that the message cancels, or "".
func (e envelope) cancelledID() string {
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if e.Method == cancelled {
		json.Unmarshal(e.Params, &p) // written by the gateway
	}
	return string(p.ID)
}

const cancelled = "notifications/cancelled"

func (r *relay) forwardLine(ctx context.Context, line []byte) error {
	var e envelope
	json.Unmarshal(line, &e) // the gateway refuses invalid JSON
	r.mu.Lock()
	down := r.conn == nil
	stray := e.isAnswer() && r.asked[string(e.ID)] == nil
	if e.isAnswer() {
		delete(r.asked, string(e.ID))
	}
	r.mu.Unlock()
	if stray {
		return nil
	}
	if down {
		if err := r.reconnectGateway(ctx); err != nil {
			return r.refuseRequest(e, err)
		}
	}
	conn := r.trackAgentLine(e, line)
	if conn == nil {
		return r.refuseRequest(e, errors.New(lostCall))
	}
	conn.Write(line) // after an error, the reader gets EOF and fails all pending requests
	return nil
}

// trackAgentLine records a pending request and returns the connection. It returns nil if the gateway has just ended.
func (r *relay) trackAgentLine(e envelope, line []byte) io.Writer {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Method {
	case "initialize":
		r.handshake = [][]byte{line}
	case "notifications/initialized":
		r.handshake = append(r.handshake, line)
	}
	if r.conn == nil {
		return nil
	}
	if len(e.ID) > 0 && e.Method != "" {
		r.waiting[string(e.ID)] = e.ID
	}
	return r.conn
}

func (r *relay) reconnectGateway(ctx context.Context) error {
	if err := r.dialGateway(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	conn, said := r.conn, r.handshake
	if len(said) > 0 {
		var e envelope
		json.Unmarshal(said[0], &e)
		r.swallow = string(e.ID)
	}
	r.mu.Unlock()
	if conn == nil {
		return errors.New(lostCall)
	}
	for _, line := range said {
		if _, err := conn.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// copyAnswers copies the gateway's lines until it ends. Then it fails the pending requests.
func (r *relay) copyAnswers(conn io.ReadWriteCloser, ended chan<- struct{}) {
	defer close(ended)
	lines := bufio.NewReaderSize(conn, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		if r.trackGatewayLine(line) {
			r.writeLine(line)
		}
	}
	r.mu.Lock()
	conn.Close()
	var left, asked []json.RawMessage
	if r.conn == conn {
		r.conn, r.swallow = nil, ""
		left = slices.Collect(maps.Values(r.waiting))
		asked = slices.Collect(maps.Values(r.asked))
		clear(r.waiting)
		clear(r.asked)
	}
	r.mu.Unlock()
	for _, id := range asked {
		r.writeCancelled(id)
	}
	for _, id := range left {
		r.writeError(id, lostCall)
	}
}

// trackGatewayLine records which request a line answers. It returns false if the agent already has that answer.
func (r *relay) trackGatewayLine(line []byte) bool {
	var e envelope
	json.Unmarshal(line, &e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Method != "" && len(e.ID) > 0 {
		r.asked[string(e.ID)] = e.ID
	}
	delete(r.asked, e.cancelledID())
	if e.Method != "" || len(e.ID) == 0 {
		return true
	}
	if string(e.ID) == r.swallow {
		r.swallow = ""
		return false
	}
	delete(r.waiting, string(e.ID))
	return true
}

func (r *relay) writeLine(line []byte) error {
	r.outMu.Lock()
	defer r.outMu.Unlock()
	_, err := r.out.Write(line)
	return err
}

// refuseRequest answers a request that could not be forwarded with an error. A notification is dropped.
func (r *relay) refuseRequest(e envelope, err error) error {
	if len(e.ID) == 0 || e.Method == "" {
		return nil
	}
	text := err.Error()
	if hint := bailey.HintOf(err); hint != "" {
		text += "; " + hint
	}
	return r.writeError(e.ID, text)
}

// writeError writes a JSON-RPC error. -32000 is the first code that implementations may define (JSON-RPC 2.0, 5.1).
func (r *relay) writeError(id json.RawMessage, text string) error {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id,
		"error": map[string]any{"code": -32000, "message": text}})
	if err != nil {
		return err
	}
	return r.writeLine(append(b, '\n'))
}

// writeCancelled tells the agent that the gateway needs no answer to a request any more.
func (r *relay) writeCancelled(id json.RawMessage) {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": cancelled,
		"params": map[string]any{"requestId": id, "reason": "the gateway ended"}})
	if err == nil {
		r.writeLine(append(b, '\n'))
	}
}

// drainAnswers closes the write side of the connection after the agent's last line and lets the gateway finish open requests,
// for at most settlePatience.
func (r *relay) drainAnswers(ctx context.Context) {
	r.mu.Lock()
	half, _ := r.conn.(interface{ CloseWrite() error })
	ended := r.ended
	r.mu.Unlock()
	if half == nil || half.CloseWrite() != nil {
		return
	}
	select {
	case <-ended:
	case <-ctx.Done():
	case <-time.After(settlePatience):
	}
}

func (r *relay) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		r.conn.Close()
		r.conn = nil
	}
}

// readLines reads lines of limited length until the input ends.
func readLines(in io.Reader, out chan<- []byte, stop <-chan struct{}) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, peer.MaxFrame)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		select {
		case out <- append(bytes.Clone(lines.Bytes()), '\n'):
		case <-stop:
			return nil
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return bailey.Invalid.Errorf("", "a line has more than %d bytes", peer.MaxFrame)
	}
	return lines.Err()
}
