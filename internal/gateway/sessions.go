package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"os"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/localapi"
)

// The state of a session with a bearer (workspace, token map, budgets) is kept for linger after its last connection,
// for at most maxLingers sessions.
const (
	linger      = 10 * time.Minute
	maxLingers  = 64
	maxIssuance = 300 // per minute
)

// Sessions holds the sessions that outlive a connection, and issues their bearers. It is safe for concurrent use.
type Sessions struct {
	note   func(ctx context.Context, kind string, data any) error
	now    func() time.Time
	linger time.Duration

	mu     sync.Mutex // guards the fields below; must not be held while an event is recorded or a session ends
	issued IssuedSessions
	held   map[bailey.SessionID]*sessionState
}

// sessionState is the state of a session in this gateway.
type sessionState struct {
	issued Issued // as of the start of its last connection or its last recorded use
	uses   *time.Timer
	conns  int
	idle   time.Time     // since when conns is 0
	timer  *time.Timer   // ends the session
	stays  int           // MCP connections among conns
	begun  *transition   // nil: it has not begun, or has ended since
	over   func()        // called when it ends; nil: no call
	ending chan struct{} // closed when all its state is removed; nil until that begins
}

// NewSessions returns Sessions with the ledger's state. note must write one event durably.
func NewSessions(issued IssuedSessions, note func(context.Context, string, any) error) *Sessions {
	return &Sessions{note: note, now: time.Now, linger: linger, issued: slices.Clone(issued),
		held: map[bailey.SessionID]*sessionState{}}
}

// Issue begins a session for p, after that is recorded, and returns the bearer that its calls must present.
func (s *Sessions) Issue(ctx context.Context, p bailey.Principal) (bearer string, id bailey.SessionID, err error) {
	return s.issueBearer(ctx, Issued{Agent: p.Agent})
}

// IssueWall begins a session for an agent inside the agent jail. The bearer alone identifies that agent.
func (s *Sessions) IssueWall(ctx context.Context, agent,
	project string) (bearer string, id bailey.SessionID, err error) {
	return s.issueBearer(ctx, Issued{Agent: agent, Door: wallDoor, Dir: project})
}

// wallDoor is the name of the front end for calls from inside the agent jail.
const wallDoor = "wrap"

func (s *Sessions) issueBearer(ctx context.Context, i Issued) (bearer string, id bailey.SessionID, err error) {
	now := s.now()
	s.mu.Lock()
	lately := 0
	for _, i := range s.issued {
		if ago := now.Sub(i.At); ago >= 0 && ago < time.Minute { // if the clock was ahead, ago is negative
			lately++
		}
	}
	s.mu.Unlock()
	if lately >= maxIssuance {
		return "", "", bailey.Unavailable.Errorf("use one session for many calls, or wait a minute",
			"%d sessions were started within a minute, the maximum", lately)
	}
	bearer = newBearer()
	if id, err = sessionOf(bearer); err != nil {
		return "", "", err
	}
	i.Session, i.UID, i.At = id, os.Geteuid(), now.UTC()
	if err := s.note(context.WithoutCancel(ctx), IssueEvent, i); err != nil {
		return "", "", bailey.Unavailable.Wrap(err, "cannot record the session, so it did not start",
			"make sure that the ledger can be written")
	}
	s.mu.Lock()
	s.issued.Keep(i)
	s.mu.Unlock()
	return bearer, id, nil
}

// enterSession returns the session of a bearer and keeps its state until leave is called. It accepts only bearers that were
// issued to p. If the bearer is invalid, it does not begin another session.
func (s *Sessions) enterSession(ctx context.Context, bearer string, p bailey.Principal) (bailey.SessionID, error) {
	id, err := sessionOf(bearer)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	i, ok := s.findValid(id)
	switch {
	case !ok:
		err = unknownSession()
	case i.Door == "" && i.Agent != p.Agent || i.UID != os.Geteuid():
		err = foreignSession()
	}
	if err != nil {
		s.mu.Unlock()
		return "", err
	}
	note := s.extendLife(s.addConn(i))
	s.mu.Unlock()
	note(ctx)
	return id, nil
}

// Wall returns the issued session if it belongs to an agent inside the agent jail. The session must be connected.
func (s *Sessions) Wall(id bailey.SessionID) (Issued, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.findValid(id)
	return i, ok && i.Door != ""
}

// Projects returns the project directories of agent jails with valid sessions, because agents inside can write there.
func (s *Sessions) Projects() (dirs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.issued {
		if i.Door != "" && !slices.Contains(dirs, i.Dir) {
			dirs = append(dirs, i.Dir)
		}
	}
	for _, h := range s.held { // a connected session is valid, whatever its age
		if i := h.issued; i.Door != "" && !slices.Contains(dirs, i.Dir) {
			dirs = append(dirs, i.Dir)
		}
	}
	return dirs
}

// findValid finds a valid session. The caller must hold mu.
func (s *Sessions) findValid(id bailey.SessionID) (Issued, bool) {
	if h := s.held[id]; h != nil && h.conns > 0 {
		return h.issued, true
	}
	return s.issued.findIssued(id, s.now())
}

// extendLife extends the life of a session, if its last recorded use is at least an hour ago. The caller must hold mu, and
// must call note after it has released mu.
func (s *Sessions) extendLife(h *sessionState) (note func(context.Context)) {
	if s.now().Sub(h.issued.At) <= bearerNote {
		return func(context.Context) {}
	}
	h.issued.At = s.now().UTC()
	i := h.issued
	s.issued.Keep(i)
	return func(ctx context.Context) { // if it is not recorded, the session ends too early after a restart
		s.note(context.WithoutCancel(ctx), UseEvent, i)
	}
}

// extendConnected extends the life of a connected session, one hour after the last time.
func (s *Sessions) extendConnected(id bailey.SessionID, h *sessionState) {
	s.mu.Lock()
	if s.held[id] != h || h.conns == 0 {
		s.mu.Unlock()
		return
	}
	note := s.extendLife(h)
	h.uses.Reset(bearerNote + time.Second)
	s.mu.Unlock()
	note(context.Background())
}

// Lasts reports whether a session has a bearer, so that a client can return to it.
func (s *Sessions) Lasts(id bailey.SessionID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.findValid(id)
	return ok
}

// addConn counts a connection. The caller must hold mu, which take releases while old state of the session is being
// removed, so that state of the new connection is not removed with it.
func (s *Sessions) addConn(i Issued) *sessionState {
	id := i.Session
	for {
		h := s.held[id]
		switch {
		case h == nil:
			h = &sessionState{issued: i, conns: 1}
			h.uses = time.AfterFunc(bearerNote+time.Second, func() { s.extendConnected(id, h) })
			s.held[id] = h
			return h
		case h.ending == nil:
			if h.conns++; h.conns == 1 {
				h.issued = i
				h.timer.Stop()
				h.uses.Reset(bearerNote + time.Second)
			}
			return h
		}
		s.mu.Unlock()
		<-h.ending
		s.mu.Lock()
	}
}

// leaveSession counts a connection that has ended. end is called later to remove the state of the session.
func (s *Sessions) leaveSession(id bailey.SessionID, end func(bailey.SessionID)) {
	s.mu.Lock()
	h := s.held[id]
	if h.conns--; h.conns > 0 {
		s.mu.Unlock()
		return
	}
	note := s.extendLife(h)
	h.uses.Stop()
	h.idle = s.now()
	h.timer = time.AfterFunc(s.linger, func() { s.removeState(id, h, end) })
	oldest, n := id, 0
	for other, o := range s.held {
		if o.conns > 0 || o.ending != nil {
			continue
		}
		if n++; o.idle.Before(s.held[oldest].idle) {
			oldest = other
		}
	}
	first := s.held[oldest]
	s.mu.Unlock()
	note(context.Background())
	if n > maxLingers {
		s.removeState(oldest, first, end)
	}
}

// removeState removes the state of a session, unless it is connected again.
func (s *Sessions) removeState(id bailey.SessionID, h *sessionState, end func(bailey.SessionID)) {
	s.mu.Lock()
	if s.held[id] != h || h.conns > 0 || h.ending != nil {
		s.mu.Unlock()
		return
	}
	h.ending = make(chan struct{})
	h.timer.Stop()
	s.mu.Unlock()
	s.reportEnd(h)
	end(id)
	s.mu.Lock()
	delete(s.held, id)
	s.mu.Unlock()
	close(h.ending)
}

// removeAll removes the state of all sessions without a connection immediately, and returns when that is done.
func (s *Sessions) removeAll(end func(bailey.SessionID)) {
	s.mu.Lock()
	all := make(map[bailey.SessionID]*sessionState, len(s.held))
	for id, h := range s.held {
		all[id] = h
	}
	s.mu.Unlock()
	var ends sync.WaitGroup
	defer ends.Wait()
	for id, h := range all {
		ends.Go(func() {
			s.removeState(id, h, end)
			s.mu.Lock()
			ending := h.ending
			s.mu.Unlock()
			if ending != nil {
				<-ending
			}
		})
	}
}

// Kinds of ledger entries for sessions that outlive a connection. The data of both is an [Issued].
const (
	IssueEvent = "session.issue"
	UseEvent   = "session.use" // still in use; written hourly, so that a restart does not shorten the session
)

// A bearer expires bearerTTL after its last use. Beyond maxIssued, those with the oldest last use are removed.
const (
	bearerTTL  = 8 * time.Hour
	bearerNote = time.Hour
	maxIssued  = 1000
)

// Issued is a session for which a bearer was issued. The bearer itself is not stored: the session's id is its hash.
type Issued struct {
	Session bailey.SessionID `json:"session"`
	Agent   string           `json:"agent"`
	UID     int              `json:"uid"`
	At      time.Time        `json:"at"` // time of issue, or of the last recorded use
	// Door and Dir are set for an agent inside the agent jail: the front end of its calls, and its project, which is
	// its workspace if the home names none. The agent is the one the bearer was issued to, whichever process connects.
	Door string `json:"door,omitempty"`
	Dir  string `json:"dir,omitempty"`
}

// IssuedSessions are the valid sessions, sorted by last use, oldest first.
type IssuedSessions []Issued

// Keep adds a session from a ledger event and removes expired ones.
func (l *IssuedSessions) Keep(i Issued) {
	kept := make(IssuedSessions, 0, len(*l)+1) // a new slice, so that copies of the old list stay unchanged
	for _, o := range *l {
		if o.Session != i.Session && i.At.Sub(o.At) <= bearerTTL {
			kept = append(kept, o)
		}
	}
	kept = append(kept, i)
	*l = kept[max(0, len(kept)-maxIssued):]
}

func (l IssuedSessions) findIssued(id bailey.SessionID, now time.Time) (Issued, bool) {
	i := slices.IndexFunc(l, func(o Issued) bool { return o.Session == id && now.Sub(o.At) <= bearerTTL })
	if i < 0 {
		return Issued{}, false
	}
	return l[i], true
}

const bearerPrefix = "bs-"

// newBearer returns 128 random bits in a form that fits an environment variable.
func newBearer() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return bearerPrefix + hex.EncodeToString(b[:])
}

// idEncoding is the encoding of all other ids.
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// sessionOf returns the id of a bearer's session: 128 bits of a SHA-256, from which the bearer cannot be computed.
func sessionOf(bearer string) (bailey.SessionID, error) {
	if !isBearer(bearer, bearerPrefix, 16) {
		return "", bailey.Invalid.New(localapi.SessionVariable+" does not contain a session", freshSession)
	}
	sum := sha256.Sum256([]byte("bailey session 1\x00" + bearer))
	return bailey.SessionID("s-" + idEncoding.EncodeToString(sum[:16])), nil
}

const freshSession = `run eval "$(bailey session)" for a new one; unset ` + localapi.SessionVariable +
	` to give each call its own session`

func unknownSession() error {
	return bailey.NotFound.Errorf(freshSession,
		"the session of %s is unknown to this gateway: it did not issue it, or it was not used for %d hours", localapi.SessionVariable, int(bearerTTL.Hours()))
}

func foreignSession() error {
	return bailey.Denied.New("the session of "+localapi.SessionVariable+" belongs to another agent or user",
		freshSession)
}

// transition is the state while a session begins or ends.
type transition struct {
	done chan struct{}
	end  bool  // the session ends; a waiting connection must begin it again
	err  error // why the session may not begin; set before done is closed
}

// startSession asks whether a session with a bearer may begin, and reports its end: when its last MCP connection closes, or,
// if it made only calls, when its state is discarded.
func (g *Gateway) startSession(ctx context.Context, from bailey.Call) error {
	id := from.Session.ID
	from.Dir = g.Redaction.Text(id, from.Dir)
	err := g.Sessions.startOnce(id, func() error { return g.Begin(ctx, from) }, func() { g.End(g.last, from) })
	if err != nil {
		g.Log.Info("a session could not start", "session", id, "err", err)
		return redactError(err, g.Redaction, id)
	}
	return nil
}

// startOnce lets the first connection of a session ask; others wait for that answer. If the answer is an error, the next
// connection asks again. The caller must be connected.
func (s *Sessions) startOnce(id bailey.SessionID, ask func() error, over func()) error {
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
	b := &transition{done: make(chan struct{}), err: bailey.Internal.New("nothing is configured to admit the session",
		"")}
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

// addMCPConn counts an MCP connection, before that connection begins the session. When the last one leaves, the session ends.
func (s *Sessions) addMCPConn(id bailey.SessionID) (leave func()) {
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
			s.reportEnd(h)
		}
	}
}

// reportEnd reports the end of a session that has begun. A connection that arrives meanwhile then begins it again.
func (s *Sessions) reportEnd(h *sessionState) {
	s.mu.Lock()
	over := h.over
	if over == nil || h.stays > 0 { // another connection arrived after the last one left
		s.mu.Unlock()
		return
	}
	b := &transition{done: make(chan struct{}), end: true}
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
