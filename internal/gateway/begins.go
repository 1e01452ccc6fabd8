package gateway

import (
	"context"

	"bailey"
)

// beginning is the state while a session begins or ends.
type beginning struct {
	done chan struct{}
	end  bool  // the session ends; a waiting connection must begin it again
	err  error // why the session may not begin; set before done is closed
}

// begins asks whether a session with a bearer may begin, and reports its end: when its last MCP connection closes, or,
// if it made only calls, when its state is discarded.
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

// begin lets the first connection of a session ask; others wait for that answer. If the answer is an error, the next
// connection asks again. The caller must be connected.
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
	defer func() { // must also run if ask panics
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

// stay counts an MCP connection, before that connection begins the session. When the last one leaves, the session ends.
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

// part reports the end of a session that has begun. A connection that arrives meanwhile then begins it again.
func (s *Sessions) part(h *holding) {
	s.mu.Lock()
	over := h.over
	if over == nil || h.stays > 0 { // another connection arrived after the last one left
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
