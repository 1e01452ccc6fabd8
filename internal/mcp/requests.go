package mcp

import (
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Limits of the requests of one connection that are accepted and not answered yet.
const (
	maxOpen      = 256
	maxOpenBytes = 8 << 20
)

// openRequests contains the open requests of a connection.
type openRequests struct {
	mu    sync.Mutex                 // guards the fields below
	open  map[jsonrpc.ID]openRequest // by id, until the answer is about to be written
	bytes int                        // size of the messages in open
	busy  int                        // requests whose answers are not written yet
	idle  chan struct{}              // closed when busy becomes 0, if drain waits
}

// openRequest is an open request.
type openRequest struct {
	size  int
	batch *batch // nil if the request was not in a batch
}

// batch collects the answers to an array of requests, which are sent as one array.
type batch struct {
	left    int
	answers []json.RawMessage
}

// waitUntilIdle waits for the open requests, at most for grace.
func (t *openRequests) waitUntilIdle(closed <-chan struct{}, grace time.Duration) {
	t.mu.Lock()
	idle := make(chan struct{})
	if t.idle = idle; t.busy == 0 {
		close(idle)
		t.idle = nil
	}
	t.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(grace):
	case <-closed:
	}
}

// addRequests adds all requests among msgs, or none.
func (t *openRequests) addRequests(b *batch, msgs ...message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen, size := map[jsonrpc.ID]bool{}, 0
	for _, m := range msgs {
		if !m.needsResponse() {
			continue
		}
		if _, used := t.open[m.ID]; used || seen[m.ID] {
			return errors.New("the id is in use by an open request")
		}
		seen[m.ID] = true
		size += m.size
	}
	if len(seen) > 0 && (t.busy+len(seen) > maxOpen || t.bytes+size > maxOpenBytes) {
		return errors.New("too many requests are open on this connection; wait for answers, then send it again")
	}
	for _, m := range msgs {
		if m.needsResponse() {
			t.open[m.ID] = openRequest{size: m.size, batch: b}
		}
	}
	if b != nil {
		b.left = len(seen)
	}
	t.busy += len(seen)
	t.bytes += size
	return nil
}

// completeRequest removes the request that data answers. It returns the bytes to write now and the number of requests that they
// answer. The id is free before the answer is sent, because the receiver may reuse it immediately.
func (t *openRequests) completeRequest(id jsonrpc.ID, data []byte) ([]byte, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.open[id]
	if !ok {
		return data, 0
	}
	delete(t.open, id)
	t.bytes -= r.size
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

// releaseRequests counts n requests as answered.
func (t *openRequests) releaseRequests(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy -= n; t.busy == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// isOpen reports whether id belongs to an open request.
func (t *openRequests) isOpen(id jsonrpc.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, used := t.open[id]
	return used
}

// sentRequests contains the requests that the server has sent and that have no answer yet.
type sentRequests struct {
	mu   sync.Mutex // guards open
	open map[jsonrpc.ID]bool
}

// recordSent records a request of the server, and removes a request that the server cancels.
func (a *sentRequests) recordSent(msg jsonrpc.Message) {
	r, ok := msg.(*jsonrpc.Request)
	switch {
	case !ok:
	case r.IsCall():
		a.mu.Lock()
		defer a.mu.Unlock()
		a.open[r.ID] = true
	case r.Method == "notifications/cancelled":
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(r.Params, &p) == nil {
			if id, ok := parseID(p.ID); ok {
				a.matchAnswer(id)
			}
		}
	}
}

// matchAnswer reports whether an answer belongs to an open request of the server. It returns true only once for each
// request.
func (a *sentRequests) matchAnswer(id jsonrpc.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := a.open[id]
	delete(a.open, id)
	return ok
}
