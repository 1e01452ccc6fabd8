package mcp

import (
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// asks are the requests that we sent and that wait for an answer. Its zero value is empty and ready.
type asks struct {
	mu   sync.Mutex // guards open
	open map[jsonrpc.ID]bool
}

// sent notes a request of ours, and forgets one that we withdraw.
func (a *asks) sent(msg jsonrpc.Message) {
	r, ok := msg.(*jsonrpc.Request)
	switch {
	case !ok:
	case r.IsCall():
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.open == nil {
			a.open = map[jsonrpc.ID]bool{}
		}
		a.open[r.ID] = true
	case r.Method == "notifications/cancelled":
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(r.Params, &p) == nil {
			if id, ok := parseID(p.ID); ok {
				a.answered(id)
			}
		}
	}
}

// answered reports whether an answer is to a request of ours, the first time.
func (a *asks) answered(id jsonrpc.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := a.open[id]
	delete(a.open, id)
	return ok
}
