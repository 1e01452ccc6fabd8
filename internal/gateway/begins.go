package gateway

import (
	"context"

	"bailey"
)

// beginning is one time that a session begins, or ends.
type beginning struct {
	done chan struct{}
	end  bool  // it ends: whoever waits for that begins it again
	err  error // why it may not begin; set before done is closed
}

// begins asks about a session that has a bearer, and tells of its end: when its last MCP connection is over, and where calls alone
// were made when nothing of it is held any more.
func (g *Gateway) begins(ctx context.Context, from bailey.Call) error {
	id := from.Session.ID
	from.Dir = g.Redaction.Text(id, from.Dir)
	err := g.Sessions.begin(id, func() error { return g.Begin(ctx, from) }, func() { g.End(g.last, from) })
	if err != nil {
		g.Log.Info("a session did not begin", "session", id, "err", err)
		return hidden(err, g.Redaction, id).Err()
	}
	return nil
}

// begin has the first connection of a session ask, and those that come meanwhile wait for that answer. Whoever comes after a no asks
// again. The caller is connected.
func (s *Sessions) begin(id bailey.SessionID, ask func() error, over func()) error {
	s.mu.Lock()
	h := s.held[id]
	for h.begun != nil {
		b := h.begun
		s.mu.Unlock()
		if <-b.done; !b.end {
			return b.err
		}
		s.mu.Lock()
	}
	b := &beginning{done: make(chan struct{}), err: &bailey.Error{Kind: bailey.Internal, Message: "nobody said whether the session may begin"}}
	h.begun = b
	s.mu.Unlock()
	defer func() { // also when ask panics
		s.mu.Lock()
		if h.over = over; b.err != nil {
			h.begun, h.over = nil, nil
		}
		s.mu.Unlock()
		close(b.done)
	}()
	b.err = ask()
	return b.err
}

// stay counts an MCP connection, before it begins the session. With the last of them the session ends.
func (s *Sessions) stay(id bailey.SessionID) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id]
	h.stays++
	return func() {
		s.mu.Lock()
		h.stays--
		last := h.stays == 0
		s.mu.Unlock()
		if last {
			s.part(h)
		}
	}
}

// part tells of the end of a session that has begun. Whoever comes meanwhile begins it again when that is told.
func (s *Sessions) part(h *holding) {
	s.mu.Lock()
	over := h.over
	if over == nil || h.stays > 0 { // another connection came since the last one left
		s.mu.Unlock()
		return
	}
	b := &beginning{done: make(chan struct{}), end: true}
	h.begun, h.over = b, nil
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		h.begun = nil
		s.mu.Unlock()
		close(b.done)
	}()
	over()
}
