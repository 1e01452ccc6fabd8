package modelproxy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"net/http"
	"time"

	"bailey"
)

// A session is held open after its last request, because its token map must live as long as the conversation: the
// client
// sends the whole history again with each request. If there are too many, the one with the oldest last use ends.
const (
	heldFor = 8 * time.Hour
	maxHeld = 64
)

// heldSession is a session that stays open between requests.
type heldSession struct {
	from  bailey.Call
	leave func()
	used  time.Time
	timer *time.Timer
}

// sessionKey identifies the conversation of a client: its token, and the name that the client gives to the conversation
// if the token is that of an agent, which may have many.
type sessionKey [sha256.Size]byte

// sessionHeaders name the conversation: Claude Code, Codex.
var sessionHeaders = []string{"X-Claude-Code-Session-Id", "Session-Id", "Session_id"}

func keyOfClient(token string, r *http.Request) sessionKey {
	name := ""
	for _, h := range sessionHeaders {
		name = cmp.Or(name, r.Header.Get(h))
	}
	return sha256.Sum256([]byte(token + "\x00" + name))
}

// enterSession returns the session of a request. The token is verified each time.
func (p *Proxy) enterSession(ctx context.Context, token string, f Front, r *http.Request) (bailey.Call, func(), error) {
	key := keyOfClient(cmp.Or(token, f.Session), r)
	p.mu.Lock()
	known := bailey.SessionID("")
	if h := p.held[key]; h != nil {
		known = h.from.Session.ID
	}
	p.mu.Unlock()
	from, leave, err := p.Enter(ctx, cmp.Or(token, f.Session), known, f)
	if err != nil {
		return from, nil, err
	}
	if from.Door == "" {
		from.Door = Door
	}
	return from, func() { p.holdSession(key, from, leave) }, nil
}

// holdSession keeps a session open after a request, in place of an earlier hold of it.
func (p *Proxy) holdSession(key sessionKey, from bailey.Call, leave func()) {
	p.mu.Lock()
	before := p.held[key]
	if before != nil {
		before.timer.Stop()
		if leave == nil { // the session itself continues
			leave, before = before.leave, nil
		}
	}
	h := &heldSession{from: from, leave: leave, used: time.Now()}
	h.timer = time.AfterFunc(heldFor, func() { p.dropSession(key, h) })
	p.held[key] = h
	oldest := key
	for k, o := range p.held {
		if o.used.Before(p.held[oldest].used) {
			oldest = k
		}
	}
	over := p.held[oldest]
	crowded := len(p.held) > maxHeld
	p.mu.Unlock()
	if before != nil {
		before.leave()
	}
	if crowded {
		p.dropSession(oldest, over)
	}
}

// dropSession ends the hold of a session, unless it was used again.
func (p *Proxy) dropSession(key sessionKey, h *heldSession) {
	p.mu.Lock()
	mine := p.held[key] == h
	if mine {
		delete(p.held, key)
	}
	p.mu.Unlock()
	if mine {
		h.timer.Stop()
		h.leave()
	}
}

// Sessions returns the number of sessions that are held open.
func (p *Proxy) Sessions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

// Close ends all connections and sessions.
func (p *Proxy) Close() {
	p.mu.Lock()
	server, held := p.server, p.held
	p.held = map[sessionKey]*heldSession{}
	p.mu.Unlock()
	if server != nil {
		server.Close()
	}
	for _, h := range held {
		h.timer.Stop()
		h.leave()
	}
}
