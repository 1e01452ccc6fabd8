package modelproxy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"net/http"
	"time"

	"bailey"
)

// A session is held open after its last request, because its token map must live as long as the conversation: the client
// sends the whole history again with each request. If an agent has too many, the one that it has not used for the
// longest time ends. A session that a request uses never ends in this way.
const (
	heldFor = 8 * time.Hour
	maxHeld = 64 // of one agent
)

// heldSession is a session that stays open between requests.
type heldSession struct {
	from  bailey.Call
	leave func()
	uses  int // requests in progress
	used  time.Time
	timer *time.Timer // runs while no request uses the session
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

// enterSession returns the session of a request. The token is verified each time. The caller must call leave when the
// request has ended.
func (p *Proxy) enterSession(ctx context.Context, token string, f Front, r *http.Request) (bailey.Call, func(), error) {
	key := keyOfClient(cmp.Or(token, f.Session), r)
	h := p.useSession(key)
	known := bailey.SessionID("")
	if h != nil {
		known = h.from.Session.ID
	}
	from, leave, err := p.Enter(ctx, cmp.Or(token, f.Session), known, f)
	if err != nil {
		p.unuseSession(key, h)
		return from, nil, err
	}
	if from.Door == "" {
		from.Door = Door
	}
	if h == nil {
		h, leave = p.holdSession(key, from, leave)
	}
	return from, func() {
		if leave != nil { // the session itself stays open with its hold
			leave()
		}
		p.unuseSession(key, h)
	}, nil
}

// useSession counts a request that uses a held session, which cannot end meanwhile. It returns nil if there is none.
func (p *Proxy) useSession(key sessionKey) *heldSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.held[key]
	if h != nil {
		h.uses++
		h.timer.Stop()
	}
	return h
}

// holdSession keeps the new session of a request open. If a concurrent request of the client began one first, that one
// is held, and the request itself must call the leave that is returned.
func (p *Proxy) holdSession(key sessionKey, from bailey.Call, leave func()) (h *heldSession, rest func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h = p.held[key]; h != nil {
		h.uses++
		h.timer.Stop()
		return h, leave
	}
	h = &heldSession{from: from, leave: leave, uses: 1}
	h.timer = time.AfterFunc(heldFor, func() { p.dropSession(key, h) })
	p.held[key] = h
	return h, nil
}

// unuseSession ends the use of a held session by a request. If the agent has too many, the oldest unused one ends.
func (p *Proxy) unuseSession(key sessionKey, h *heldSession) {
	if h == nil {
		return
	}
	p.mu.Lock()
	h.used = time.Now()
	if h.uses--; h.uses == 0 && p.held[key] == h {
		h.timer.Reset(heldFor)
	}
	count, oldest := 0, key
	for k, o := range p.held {
		if o.from.Principal.Agent != h.from.Principal.Agent || o.from.Principal.Token != h.from.Principal.Token {
			continue
		}
		count++
		if first := p.held[oldest]; o.uses == 0 && (first == nil || first.uses > 0 || o.used.Before(first.used)) {
			oldest = k
		}
	}
	over := p.held[oldest]
	p.mu.Unlock()
	if count > maxHeld {
		p.dropSession(oldest, over)
	}
}

// dropSession ends the hold of a session, unless a request uses it.
func (p *Proxy) dropSession(key sessionKey, h *heldSession) {
	p.mu.Lock()
	mine := h != nil && p.held[key] == h && h.uses == 0
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
