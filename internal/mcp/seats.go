package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
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
	maxSeats         = 1024
	maxTokenSeats    = 256
	maxRequests      = 1024
	maxTokenRequests = 768
	// Incomplete bodies. Each may use [maxLine] of memory.
	maxBodies      = 256
	maxTokenBodies = 64
)

// seats contains the HTTP sessions.
type seats struct {
	idle time.Duration // set before the first request

	// guards the fields below and the marked fields of seat; not held while a session begins or ends
	mu       sync.Mutex
	all      map[string]*seat
	requests int            // open requests
	busy     map[string]int // open requests by token
	bodies   int            // bodies that are arriving
	arriving map[string]int // arriving bodies by token
	over     error          // reason why no new session may begin
	ended    sync.WaitGroup
}

// seat is one session. key and token never change.
type seat struct {
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

type seatKey struct{}

func seatOf(r *http.Request) *seat { return r.Context().Value(seatKey{}).(*seat) }

// seat returns the session of a request, and begins one if necessary. The session stays in use until leave is called.
func (h *HTTP) seat(r *http.Request, who Caller, revision string, msgs []message) (*seat, func(), error) {
	var t *seat
	var err error
	name, fresh := r.Header.Get(headerSession), false
	switch {
	case revision >= newRevision:
		name = r.Header.Get(SessionHeader)
		if len(name) > maxSessionHeader || printable(name, maxSessionHeader) != name {
			return nil, nil, refuseAs(http.StatusBadRequest, bailey.Invalid, "the header "+SessionHeader+" is no name", fmt.Sprintf("at most %d printable characters of ASCII", maxSessionHeader))
		}
		t, fresh, err = h.take(who, "new\x00"+who.Principal.Token+"\x00"+name, false, true)
	case name != "":
		t, fresh, err = h.take(who, oldKey+name, true, false)
	case r.Method == http.MethodPost && len(msgs) == 1 && msgs[0].call() && msgs[0].Method == "initialize":
		t, fresh, err = h.take(who, oldKey+rand.Text(), true, true)
	default:
		return nil, nil, refuseAs(http.StatusBadRequest, bailey.Invalid, "the request names no session", "begin one with initialize, then send its "+headerSession+" with each request")
	}
	if err != nil {
		return nil, nil, err
	}
	leave := func() { h.release(t) }
	settled := false
	defer func() { // also if begin panics
		if !settled {
			leave()
		}
	}()
	if fresh {
		h.begin(t, who)
	}
	<-t.ready
	if t.err != nil {
		return nil, nil, refuseHTTP(status(t.err), codeServer, t.err)
	}
	settled = true
	return t, leave, nil
}

// status returns the HTTP status for a session that could not begin.
func status(err error) int {
	if bailey.KindOf(err) == bailey.Unavailable {
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}

// arrive reserves a slot for the body of a request, until leave is called.
func (h *HTTP) arrive(token string) (leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bodies >= maxBodies || h.arriving[token] >= maxTokenBodies {
		return nil, refuseAs(http.StatusServiceUnavailable, bailey.Unavailable, "too many requests are arriving", "send each whole, and ask again in a moment")
	}
	h.bodies++
	if h.arriving == nil {
		h.arriving = map[string]int{}
	}
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

// take counts a request of a session. If fresh is true, the caller must begin the session.
func (h *HTTP) take(who Caller, key string, old, begins bool) (t *seat, fresh bool, err error) {
	h.mu.Lock()
	if h.over != nil {
		h.mu.Unlock()
		return nil, false, refuseAs(http.StatusServiceUnavailable, bailey.Unavailable, h.over.Error(), "ask again: the next gateway begins with the next request")
	}
	if h.requests >= maxRequests || h.busy[who.Principal.Token] >= maxTokenRequests {
		h.mu.Unlock()
		return nil, false, refuseAs(http.StatusServiceUnavailable, bailey.Unavailable, "too many requests are open", "ask again in a moment")
	}
	if t := h.all[key]; t != nil && t.token == who.Principal.Token {
		h.count(t, 1)
		h.mu.Unlock()
		return t, false, nil
	}
	if !begins { // a session of another token counts as unknown
		h.mu.Unlock()
		return nil, false, refuseAs(http.StatusNotFound, bailey.NotFound, "there is no such session of this token: it ended, was idle for long, or its gateway ended", "begin one with initialize")
	}
	room, err := h.gives(who.Principal.Token)
	if err != nil {
		h.mu.Unlock()
		return nil, false, err
	}
	t = &seat{key: key, token: who.Principal.Token, old: old, ready: make(chan struct{}), closed: make(chan struct{}), quiet: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	if h.all == nil {
		h.all = map[string]*seat{}
	}
	h.all[key] = t
	h.count(t, 1)
	h.ended.Add(1)
	h.mu.Unlock()
	if room != nil {
		h.end(room, errRoom)
	}
	return t, true, nil
}

var errRoom = errors.New("the token began another session, and this one was idle longest")

// count changes the number of requests of a session. The caller must hold mu.
func (h *HTTP) count(t *seat, more int) {
	if h.busy == nil {
		h.busy = map[string]int{}
	}
	t.open += more
	h.requests += more
	if h.busy[t.token] += more; h.busy[t.token] == 0 {
		delete(h.busy, t.token)
	}
}

// gives returns the session that must end before the token can begin another one, or nil. The caller must hold mu.
func (h *HTTP) gives(token string) (*seat, error) {
	var longest *seat
	own := 0
	for _, t := range h.all {
		if t.token != token {
			continue
		}
		own++
		if t.open == 0 && !t.over && !t.session.tasks.busy() && (longest == nil || t.since.Before(longest.since)) {
			longest = t
		}
	}
	switch {
	case own < maxTokenSeats && len(h.all) < maxSeats:
		return nil, nil
	case longest != nil:
		return longest, nil
	}
	return nil, refuseAs(http.StatusServiceUnavailable, bailey.Unavailable, fmt.Sprintf("%d sessions of this token are open, of %d in all", own, len(h.all)), "end some (DELETE), or wait until they are idle")
}

// begin begins a session. If that fails, t stays valid for requests that wait for it, but gets no new ones.
func (h *HTTP) begin(t *seat, who Caller) {
	t.err = &bailey.Error{Kind: bailey.Internal, Message: "nobody said whether the session may begin"}
	defer func() { // also if Enter panics
		close(t.ready)
		if t.err != nil {
			h.end(t, t.err)
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
		t.server.AddReceivingMiddleware(h.follow(t))
	}
}

// follow observes the SDK session of an old session. When the SDK session ends, the session ends too.
func (h *HTTP) follow(t *seat) sdk.Middleware {
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			res, err := next(ctx, method, req)
			if peer, ok := req.GetSession().(*sdk.ServerSession); ok && err == nil && method == "initialize" {
				h.initialized(t, peer)
			}
			return res, err
		}
	}
}

func (h *HTTP) initialized(t *seat, peer *sdk.ServerSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.peer != nil {
		return
	}
	t.peer = peer
	go func() {
		peer.Wait()
		h.end(t, gone{})
	}()
}

// unbegun reports whether the initialize request of an old session failed.
func (h *HTTP) unbegun(t *seat) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t.peer == nil
}

// release counts a request as answered. A session without requests ends after the idle period, unless one of its tasks
// runs.
func (h *HTTP) release(t *seat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count(t, -1); t.open > 0 || t.over {
		return
	}
	t.since = time.Now()
	if t.timer == nil {
		t.timer = time.AfterFunc(h.idle, func() { h.expire(t) })
		return
	}
	t.timer.Reset(h.idle)
}

func (h *HTTP) expire(t *seat) {
	busy := t.session != nil && t.session.tasks.busy()
	h.mu.Lock()
	stays := t.open > 0 || busy || time.Since(t.since) < h.idle
	if stays && t.open == 0 && !t.over {
		t.timer.Reset(h.idle)
	}
	h.mu.Unlock()
	if !stays {
		h.end(t, errIdle)
	}
}

var errIdle = errors.New("the session was idle for long")

// end ends a session and returns when it has ended completely.
func (h *HTTP) end(t *seat, why error) {
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
	t.cancel(ended{why})
	<-t.ready
	if peer != nil {
		peer.Close()
	}
	if t.session != nil {
		t.session.tasks.close()
	}
	<-t.quiet
	if t.leave != nil {
		t.leave()
	}
}

// ended is the cancellation cause of the calls of an ended session.
type ended struct{ error }

func (e ended) Is(target error) bool { return target == context.Canceled }
func (e ended) Unwrap() error        { return e.error }

// Close ends all sessions and listeners, and returns when all sessions have ended completely. No new session can begin.
func (h *HTTP) Close(why error) {
	h.mu.Lock()
	h.over = why
	all := make([]*seat, 0, len(h.all))
	for _, t := range h.all {
		all = append(all, t)
	}
	h.mu.Unlock()
	for _, t := range all {
		go h.end(t, why)
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

// asked is an open request and the writer of its answer.
type asked struct {
	ctx context.Context
	*patient
}

// asking attaches the session and a number to a request.
func (t *seat) asking(r *http.Request, w *patient) *http.Request {
	number := fmt.Sprint(t.numbers.Add(1))
	r = r.WithContext(context.WithValue(r.Context(), seatKey{}, t))
	r.Header.Set(headerRequest, number)
	t.requests.Store(number, &asked{r.Context(), w})
	return r
}

// asked returns the HTTP request of an SDK request, or nil if it has ended.
func (t *seat) asked(req sdk.Request) *asked {
	extra := req.GetExtra()
	if extra == nil {
		return nil
	}
	a, _ := t.requests.Load(extra.Header.Get(headerRequest))
	found, _ := a.(*asked)
	return found
}

func (t *seat) answered(r *http.Request) { t.requests.Delete(r.Header.Get(headerRequest)) }

// carry binds a call to its request and to the session. In the old revisions the SDK lets a call continue without its
// request, so that the answer can be fetched later, but this front end does not store answers.
func (h *HTTP) carry(t *seat, ctx context.Context, req sdk.Request) (out context.Context, done func(), err error) {
	h.mu.Lock()
	if t.over {
		h.mu.Unlock()
		return nil, nil, context.Cause(t.ctx)
	}
	t.calls++
	h.mu.Unlock()
	out, end := context.WithCancelCause(ctx)
	stops := []func() bool{context.AfterFunc(t.ctx, func() { end(context.Cause(t.ctx)) })}
	if r := t.asked(req); r != nil {
		stops = append(stops, context.AfterFunc(r.ctx, func() { end(gone{}) }))
	} else {
		end(gone{}) // the request ended before its call began
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
