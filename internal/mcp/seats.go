package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// Limits of open sessions and requests, in total and for each token. If a token has too many sessions, a new one
// replaces the one of this token that was idle longest. A token cannot displace sessions of other tokens, and cannot
// use all request slots.
const (
	maxSessions      = 1024
	maxTokenSessions = 256
	maxRequests      = 1024
	maxTokenRequests = 768
	// Incomplete bodies. Each may use [maxLine] of memory.
	maxBodies      = 256
	maxTokenBodies = 64
)

// httpSessions contains the HTTP sessions.
type httpSessions struct {
	idle time.Duration // set before the first request

	// guards the fields below and the marked fields of seat; not held while a session begins or ends
	mu       sync.Mutex
	all      map[string]*httpSession
	requests int            // open requests
	busy     map[string]int // open requests by token
	bodies   int            // bodies that are arriving
	arriving map[string]int // arriving bodies by token
	over     error          // reason why no new session may begin
	ended    sync.WaitGroup
}

// httpSession is one session. key and token never change.
type httpSession struct {
	key, token string
	old        bool          // the session began with initialize
	ready      chan struct{} // closed when the session has begun or failed to begin
	err        error         // reason for the failure; set before ready is closed
	closed     chan struct{} // closed when the session has ended completely

	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc

	// Set before ready is closed.
	session *session
	server  *sdk.Server
	leave   func()

	requests sync.Map // open requests, *asked by headerRequest
	numbers  atomic.Int64

	// Guarded by seats.mu.
	open  int       // open requests
	calls int       // calls that have not ended completely; may outlast their requests
	since time.Time // time of the last answer
	timer *time.Timer
	over  bool
	quiet chan struct{}      // closed when the session is over and has no calls
	peer  *sdk.ServerSession // SDK session of an old session after initialize
}

// oldKey is the key prefix of old sessions.
const oldKey = "old\x00"

type httpSessionKey struct{}

func sessionOf(r *http.Request) *httpSession {
	return r.Context().Value(httpSessionKey{}).(*httpSession)
}

// acquireSession returns the session of a request, and begins one if necessary. The session stays in use until leave is called.
func (h *HTTP) acquireSession(r *http.Request, who Caller, revision string,
	msgs []message) (*httpSession, func(), error) {
	var t *httpSession
	var err error
	name, fresh := r.Header.Get(headerSession), false
	switch {
	case revision >= newRevision:
		name = r.Header.Get(SessionHeader)
		if len(name) > maxSessionHeader || printableText(name, maxSessionHeader) != name {
			return nil, nil, refuseAs(http.StatusBadRequest, bailey.Invalid, "the header "+SessionHeader+" is invalid",
				fmt.Sprintf("use at most %d printable ASCII characters", maxSessionHeader))
		}
		t, fresh, err = h.findOrAddSession(who, "new\x00"+who.Principal.Token+"\x00"+name, false, true)
	case name != "":
		t, fresh, err = h.findOrAddSession(who, oldKey+name, true, false)
	case r.Method == http.MethodPost && len(msgs) == 1 && msgs[0].needsResponse() && msgs[0].Method == "initialize":
		t, fresh, err = h.findOrAddSession(who, oldKey+rand.Text(), true, true)
	default:
		return nil, nil, refuseAs(http.StatusBadRequest, bailey.Invalid, "the request names no session",
			"start one with initialize, then send its "+headerSession+" with each request")
	}
	if err != nil {
		return nil, nil, err
	}
	leave := func() { h.releaseRequest(t) }
	settled := false
	defer func() { // also if begin panics
		if !settled {
			leave()
		}
	}()
	if fresh {
		h.startSession(t, who)
	}
	<-t.ready
	if t.err != nil {
		return nil, nil, refuseHTTP(sessionErrorStatus(t.err), codeServer, t.err)
	}
	settled = true
	return t, leave, nil
}

// sessionErrorStatus returns the HTTP status for a session that could not begin.
func sessionErrorStatus(err error) int {
	if bailey.KindOf(err) == bailey.Unavailable {
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}

// reserveBody reserves a slot for the body of a request, until leave is called.
func (h *HTTP) reserveBody(token string) (leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bodies >= maxBodies || h.arriving[token] >= maxTokenBodies {
		return nil, refuseAs(http.StatusServiceUnavailable, bailey.Unavailable, "too many requests are arriving",
			"send each completely, and try again in a moment")
	}
	h.bodies++
	h.arriving[token]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.bodies--
		if h.arriving[token]--; h.arriving[token] == 0 {
			delete(h.arriving, token)
		}
	}, nil
}

// findOrAddSession counts a request of a session. If fresh is true, the caller must begin the session.
func (h *HTTP) findOrAddSession(who Caller, key string, old, begins bool) (t *httpSession, fresh bool, err error) {
	t, room, fresh, err := h.countOrAdd(who.Principal.Token, key, old, begins)
	if room != nil {
		h.endSession(room, errEvicted)
	}
	return t, fresh, err
}

// countOrAdd does the part of findOrAddSession that needs mu. Room is the session that must end, or nil.
func (h *HTTP) countOrAdd(token, key string, old, begins bool) (t, room *httpSession, fresh bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over != nil {
		return nil, nil, false, refuseAs(http.StatusServiceUnavailable, bailey.Unavailable, h.over.Error(),
			"try again: the next request starts a new gateway")
	}
	if h.requests >= maxRequests || h.busy[token] >= maxTokenRequests {
		return nil, nil, false, refuseAs(http.StatusServiceUnavailable, bailey.Unavailable, "too many requests are open",
			"try again in a moment")
	}
	if t := h.all[key]; t != nil && t.token == token {
		h.countRequests(t, 1)
		return t, nil, false, nil
	}
	if !begins { // a session of another token counts as unknown
		return nil, nil, false, refuseAs(http.StatusNotFound, bailey.NotFound,
			"there is no such session of this token: it ended, was idle too long, or its gateway ended", "start one with initialize")
	}
	if room, err = h.sessionToEvict(token); err != nil {
		return nil, nil, false, err
	}
	t = &httpSession{key: key, token: token, old: old, ready: make(chan struct{}),
		closed: make(chan struct{}), quiet: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	h.all[key] = t
	h.countRequests(t, 1)
	h.ended.Add(1)
	return t, room, true, nil
}

var errEvicted = errors.New("the token started another session, and this one was idle longest")

// countRequests changes the number of requests of a session. The caller must hold mu.
func (h *HTTP) countRequests(t *httpSession, more int) {
	t.open += more
	h.requests += more
	if h.busy[t.token] += more; h.busy[t.token] == 0 {
		delete(h.busy, t.token)
	}
}

// sessionToEvict returns the session that must end before the token can begin another one, or nil. The caller must hold mu.
func (h *HTTP) sessionToEvict(token string) (*httpSession, error) {
	var longest *httpSession
	own := 0
	for _, t := range h.all {
		if t.token != token {
			continue
		}
		own++
		if t.open == 0 && !t.over && !t.session.tasks.hasRunning() &&
			(longest == nil || t.since.Before(longest.since)) {
			longest = t
		}
	}
	switch {
	case own < maxTokenSessions && len(h.all) < maxSessions:
		return nil, nil
	case longest != nil:
		return longest, nil
	}
	return nil, refuseAs(http.StatusServiceUnavailable, bailey.Unavailable,
		fmt.Sprintf("%d sessions of this token are open, %d in total", own,
			len(h.all)), "end some (DELETE), or wait until they are idle")
}

// startSession begins a session. If that fails, t stays valid for requests that wait for it, but gets no new ones.
func (h *HTTP) startSession(t *httpSession, who Caller) {
	t.err = bailey.Internal.New("nothing is configured to admit the session", "")
	defer func() { // also if Enter panics
		close(t.ready)
		if t.err != nil {
			h.endSession(t, t.err)
		}
	}()
	cfg, leave, err := h.Enter(t.ctx, who)
	if err != nil {
		t.err = err
		return
	}
	t.leave = leave
	t.session = newSession(cfg)
	if t.old {
		t.session.name = strings.TrimPrefix(t.key, oldKey)
	}
	if t.server, t.err = h.open(t); t.err == nil && t.old {
		t.server.AddReceivingMiddleware(h.watchMiddleware(t))
	}
}

// watchMiddleware observes the SDK session of an old session. When the SDK session ends, the session ends too.
func (h *HTTP) watchMiddleware(t *httpSession) sdk.Middleware {
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			res, err := next(ctx, method, req)
			if peer, ok := req.GetSession().(*sdk.ServerSession); ok && err == nil && method == "initialize" {
				h.attachPeer(t, peer)
			}
			return res, err
		}
	}
}

func (h *HTTP) attachPeer(t *httpSession, peer *sdk.ServerSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.peer != nil {
		return
	}
	t.peer = peer
	go func() {
		peer.Wait()
		h.endSession(t, disconnectedError{})
	}()
}

// isUninitialized reports whether the initialize request of an old session failed.
func (h *HTTP) isUninitialized(t *httpSession) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t.peer == nil
}

// releaseRequest counts a request as answered. A session without requests ends after the idle period, unless one of its tasks
// runs.
func (h *HTTP) releaseRequest(t *httpSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.countRequests(t, -1); t.open > 0 || t.over {
		return
	}
	t.since = time.Now()
	if t.timer == nil {
		t.timer = time.AfterFunc(h.idle, func() { h.expireSession(t) })
		return
	}
	t.timer.Reset(h.idle)
}

func (h *HTTP) expireSession(t *httpSession) {
	busy := t.session != nil && t.session.tasks.hasRunning()
	h.mu.Lock()
	stays := t.open > 0 || busy || time.Since(t.since) < h.idle
	if stays && t.open == 0 && !t.over {
		t.timer.Reset(h.idle)
	}
	h.mu.Unlock()
	if !stays {
		h.endSession(t, errIdle)
	}
}

var errIdle = errors.New("the session was idle too long")

// endSession ends a session and returns when it has ended completely.
func (h *HTTP) endSession(t *httpSession, why error) {
	h.mu.Lock()
	if t.over {
		h.mu.Unlock()
		<-t.closed
		return
	}
	t.over = true
	delete(h.all, t.key)
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.calls == 0 {
		close(t.quiet)
	}
	peer := t.peer
	h.mu.Unlock()
	defer h.ended.Done()
	defer close(t.closed)
	t.cancel(sessionEndedError{why})
	<-t.ready
	if peer != nil {
		peer.Close()
	}
	if t.session != nil {
		t.session.tasks.endAll()
	}
	<-t.quiet
	if t.leave != nil {
		t.leave()
	}
}

// sessionEndedError is the cancellation cause of the calls of an ended session.
type sessionEndedError struct{ error }

func (e sessionEndedError) Is(target error) bool { return target == context.Canceled }
func (e sessionEndedError) Unwrap() error        { return e.error }

// Close ends all sessions and listeners, and returns when all sessions have ended completely. No new session can begin.
func (h *HTTP) Close(why error) {
	h.mu.Lock()
	h.over = why
	all := slices.Collect(maps.Values(h.all))
	h.mu.Unlock()
	for _, t := range all {
		go h.endSession(t, why)
	}
	h.ended.Wait()
	h.close()
}

// Sessions returns the number of open sessions.
func (h *HTTP) Sessions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// openHTTPRequest is an open request and the writer of its answer.
type openHTTPRequest struct {
	ctx context.Context
	*deadlineWriter
}

// registerRequest attaches the session and a number to a request.
func (t *httpSession) registerRequest(r *http.Request, w *deadlineWriter) *http.Request {
	number := fmt.Sprint(t.numbers.Add(1))
	r = r.WithContext(context.WithValue(r.Context(), httpSessionKey{}, t))
	r.Header.Set(headerRequest, number)
	t.requests.Store(number, &openHTTPRequest{r.Context(), w})
	return r
}

// findRequest returns the HTTP request of an SDK request, or nil if it has ended.
func (t *httpSession) findRequest(req sdk.Request) *openHTTPRequest {
	extra := req.GetExtra()
	if extra == nil {
		return nil
	}
	a, _ := t.requests.Load(extra.Header.Get(headerRequest))
	found, _ := a.(*openHTTPRequest)
	return found
}

func (t *httpSession) removeRequest(r *http.Request) { t.requests.Delete(r.Header.Get(headerRequest)) }

// bindCall binds a call to its request and to the session. In the old revisions the SDK lets a call continue without its
// request, so that the answer can be fetched later, but this front end does not store answers.
func (h *HTTP) bindCall(t *httpSession, ctx context.Context,
	req sdk.Request) (out context.Context, done func(), err error) {
	h.mu.Lock()
	if t.over {
		h.mu.Unlock()
		return nil, nil, context.Cause(t.ctx)
	}
	t.calls++
	h.mu.Unlock()
	out, end := context.WithCancelCause(ctx)
	stops := []func() bool{context.AfterFunc(t.ctx, func() { end(context.Cause(t.ctx)) })}
	if r := t.findRequest(req); r != nil {
		stops = append(stops, context.AfterFunc(r.ctx, func() { end(disconnectedError{}) }))
	} else {
		end(disconnectedError{}) // the request ended before its call began
	}
	return out, func() {
		for _, stop := range stops {
			stop()
		}
		end(nil)
		h.mu.Lock()
		defer h.mu.Unlock()
		if t.calls--; t.calls == 0 && t.over {
			close(t.quiet)
		}
	}, nil
}
