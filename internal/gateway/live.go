package gateway

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/localapi/apitype"
)

// Live holds the running calls (between intent and outcome) and the connected sessions, for `bailey status`. It decides
// nothing. Its zero value is ready.
type Live struct {
	mu       sync.Mutex // guards the maps; not held during writes
	calls    map[bailey.ReceiptID]apitype.LiveCall
	sessions map[bailey.SessionID]apitype.LiveSession
	conns    map[bailey.SessionID]int
}

// Ledger returns a ledger that records each durable intent of inner until its outcome is written or the write has
// failed. It wraps the ledger because the receipt id is known there for every front end, so a live call is one that the
// ledger has open.
func (l *Live) Ledger(inner gate.Ledger) gate.Ledger { return watched{l, inner} }

type watched struct {
	live  *Live
	inner gate.Ledger
}

func (w watched) Open(ctx context.Context, i bailey.Intent) (func(bailey.Outcome) error, error) {
	seal, err := w.inner.Open(ctx, i)
	if err != nil {
		return seal, err
	}
	w.live.begin(i)
	return func(o bailey.Outcome) error {
		defer w.live.end(i.Receipt)
		return seal(o)
	}, nil
}

func (l *Live) begin(i bailey.Intent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = map[bailey.ReceiptID]apitype.LiveCall{}
	}
	l.calls[i.Receipt] = apitype.LiveCall{Receipt: i.Receipt, Capability: i.Capability, Agent: i.Agent, Session: i.Session, Door: i.Door, Since: i.StartedAt}
	if s, ok := l.sessions[i.Session]; ok && i.Client != "" {
		s.Client = i.Client
		l.sessions[i.Session] = s
	}
}

func (l *Live) end(id bailey.ReceiptID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, id)
}

// connect records a session until disconnect is called. If l is nil, it does nothing.
func (l *Live) connect(from bailey.Call) (disconnect func()) {
	if l == nil {
		return func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions == nil {
		l.sessions, l.conns = map[bailey.SessionID]apitype.LiveSession{}, map[bailey.SessionID]int{}
	}
	id := from.Session.ID
	l.conns[id]++
	l.sessions[id] = apitype.LiveSession{ID: id, Door: from.Door, Agent: from.Principal.Agent, Dir: from.Dir, Since: time.Now().UTC()}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.conns[id]--; l.conns[id] == 0 {
			delete(l.sessions, id)
			delete(l.conns, id)
		}
	}
}

// Now returns the running calls and the connected sessions, oldest first. The slices are never nil.
func (l *Live) Now() ([]apitype.LiveCall, []apitype.LiveSession) {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := make([]apitype.LiveCall, 0, len(l.calls))
	for _, c := range l.calls {
		calls = append(calls, c)
	}
	sessions := make([]apitype.LiveSession, 0, len(l.sessions))
	for _, s := range l.sessions {
		sessions = append(sessions, s)
	}
	slices.SortFunc(calls, func(a, b apitype.LiveCall) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Receipt, b.Receipt))
	})
	slices.SortFunc(sessions, func(a, b apitype.LiveSession) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return calls, sessions
}
