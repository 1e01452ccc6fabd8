package mcp

import (
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// asks contains the requests that the server has sent and that have no answer yet. The zero value is empty and ready.
type asks struct {
	mu   sync.Mutex // guards open
	open map[jsonrpc.ID]bool
}

// sent records a request of the server, and removes a request that the server cancels.
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

// answered reports whether an answer belongs to an open request of the server. It returns true only once for each
// request.
func (a *asks) answered(id jsonrpc.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := a.open[id]
	delete(a.open, id)
	return ok
}
