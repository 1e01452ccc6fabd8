package mcp

import (
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// sentRequests contains the requests that the server has sent and that have no answer yet. The zero value is empty and ready.
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
