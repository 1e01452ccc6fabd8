package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/peer"
)

// Relay copies an agent's MCP lines to the gateway and the answers back. It understands of them only
// what it must: which requests wait for an answer, on either side. When the gateway ends, each of the
// agent's gets an error, each of the gateway's is withdrawn, and the next line starts a new gateway, to which the handshake
// is said again. No call is repeated, and no answer reaches another gateway than the one that asked.
func Relay(ctx context.Context, dial func(context.Context) (io.ReadWriteCloser, error), in io.Reader, out io.Writer) error {
	r := &relay{dial: dial, out: out, waiting: map[string]json.RawMessage{}, asked: map[string]json.RawMessage{}}
	defer r.hangUp()
	if err := r.connect(ctx); err != nil {
		return err
	}
	lines := make(chan []byte)
	ended := make(chan error, 1)
	go func() { ended <- readLines(in, lines, ctx.Done()) }()
	for {
		select {
		case line := <-lines:
			if err := r.forward(ctx, line); err != nil {
				return err
			}
		case err := <-ended:
			r.settle(ctx)
			return err
		case <-ctx.Done():
			if r.owes() {
				return context.Cause(ctx)
			}
			return nil
		}
	}
}

// owes reports whether a request is still without its answer.
func (r *relay) owes() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) > 0
}

const (
	// settlePatience bounds how long the last answers may take after the agent closed its side.
	settlePatience = 5 * time.Second
	gone           = "the gateway ended in mid-call: the call may have run; bailey receipts list shows it"
)

type relay struct {
	dial func(context.Context) (io.ReadWriteCloser, error)
	out  io.Writer

	outMu sync.Mutex // held for one whole line

	mu        sync.Mutex // guards all below; never held while anything is written
	conn      io.ReadWriteCloser
	ended     chan struct{}              // closed when conn has ended
	waiting   map[string]json.RawMessage // ids without an answer
	asked     map[string]json.RawMessage // those of the gateway's own requests
	handshake [][]byte                   // initialize and notifications/initialized, to say again
	swallow   string                     // id of a repeated initialize whose answer the agent has had
}

func (r *relay) connect(ctx context.Context) error {
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn, r.ended = conn, make(chan struct{})
	go r.answers(conn, r.ended)
	return nil
}

// envelope is what the relay reads of a message.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Params json.RawMessage `json:"params"`
}

// answer reports whether it answers a request.
func (e envelope) answer() bool {
	return e.Method == "" && len(e.ID) > 0 && (e.Result != nil || e.Error != nil)
}

// withdrawn is the id of the request that it withdraws.
func (e envelope) withdrawn() string {
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if e.Method == cancelled {
		json.Unmarshal(e.Params, &p) // of the gateway's own making
	}
	return string(p.ID)
}

const cancelled = "notifications/cancelled"

func (r *relay) forward(ctx context.Context, line []byte) error {
	var e envelope
	json.Unmarshal(line, &e) // what is not JSON is the gateway's to refuse
	r.mu.Lock()
	down := r.conn == nil
	stray := e.answer() && r.asked[string(e.ID)] == nil
	if e.answer() {
		delete(r.asked, string(e.ID))
	}
	r.mu.Unlock()
	if stray {
		return nil
	}
	if down {
		if err := r.reconnect(ctx); err != nil {
			return r.refuse(e, err)
		}
	}
	conn := r.expect(e, line)
	if conn == nil {
		return r.refuse(e, errors.New(gone))
	}
	conn.Write(line) // an error here is the reader's end of file, which answers for all that waits
	return nil
}

// expect notes what a line asks for and returns where it goes, nil when the gateway has just ended.
func (r *relay) expect(e envelope, line []byte) io.Writer {
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

func (r *relay) reconnect(ctx context.Context) error {
	if err := r.connect(ctx); err != nil {
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
		return errors.New(gone)
	}
	for _, line := range said {
		if _, err := conn.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// answers copies what the gateway says until it ends, then answers for it.
func (r *relay) answers(conn io.ReadWriteCloser, ended chan<- struct{}) {
	defer close(ended)
	lines := bufio.NewReaderSize(conn, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		if r.answered(line) {
			r.write(line)
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
		r.withdraw(id)
	}
	for _, id := range left {
		r.fail(id, gone)
	}
}

// answered notes which request a line answers; false when the agent has had that answer.
func (r *relay) answered(line []byte) bool {
	var e envelope
	json.Unmarshal(line, &e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Method != "" && len(e.ID) > 0 {
		r.asked[string(e.ID)] = e.ID
	}
	delete(r.asked, e.withdrawn())
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

func (r *relay) write(line []byte) error {
	r.outMu.Lock()
	defer r.outMu.Unlock()
	_, err := r.out.Write(line)
	return err
}

// refuse answers a request that could not be sent on; a notification is dropped.
func (r *relay) refuse(e envelope, err error) error {
	if len(e.ID) == 0 || e.Method == "" {
		return nil
	}
	text := err.Error()
	if hint := bailey.HintOf(err); hint != "" {
		text += "; " + hint
	}
	return r.fail(e.ID, text)
}

// fail writes a JSON-RPC error; -32000 is the first code left to implementations (JSON-RPC 2.0, 5.1).
func (r *relay) fail(id json.RawMessage, text string) error {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": -32000, "message": text}})
	if err != nil {
		return err
	}
	return r.write(append(b, '\n'))
}

// withdraw tells the agent that nobody waits for its answer to a request any more.
func (r *relay) withdraw(id json.RawMessage) {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": cancelled, "params": map[string]any{"requestId": id, "reason": "the gateway ended"}})
	if err == nil {
		r.write(append(b, '\n'))
	}
}

// settle passes the end of the agent's lines on and lets the gateway finish what is open.
func (r *relay) settle(ctx context.Context) {
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

// readLines reads lines of bounded length until the input ends.
func readLines(in io.Reader, out chan<- []byte, stop <-chan struct{}) error {
	br := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := readLine(br)
		if len(bytes.TrimSpace(line)) > 0 && err == nil {
			select {
			case out <- line:
			case <-stop:
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func readLine(br *bufio.Reader) (line []byte, err error) {
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > peer.MaxFrame:
			return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("a line is over the %d bytes allowed", peer.MaxFrame)}
		case err == nil:
			return line, nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return append(line, '\n'), nil // the next read ends
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
