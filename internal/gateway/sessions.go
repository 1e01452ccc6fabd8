package gateway

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"bailey"
)

// What a session with a bearer holds (its workspace, its token map, its budgets) stays for so long after its last
// connection, and of so many such sessions at most.
const (
	linger      = 10 * time.Minute
	maxLingers  = 64
	maxIssuance = 300 // a minute
)

// Sessions knows the sessions that outlive a connection, by the bearers that it gave for them. It is safe for concurrent
// use.
type Sessions struct {
	note   func(ctx context.Context, kind string, data any) error
	now    func() time.Time
	linger time.Duration

	mu     sync.Mutex // guards what follows; never held while anything is noted or ended
	issued IssuedSessions
	held   map[bailey.SessionID]*holding
}

// holding is what there is of a session in this gateway.
type holding struct {
	issued Issued // as it was when its last connection began or it was last noted
	uses   *time.Timer
	conns  int
	idle   time.Time     // since when it has none
	timer  *time.Timer   // ends it
	stays  int           // connections of MCP among conns
	begun  *beginning    // nil: it has not begun, or ended since
	over   func()        // is told when it ends; nil: nobody is
	ending chan struct{} // closed when all that it held is forgotten; nil until that begins
}

// NewSessions knows what the ledger holds. note writes one event durably.
func NewSessions(issued IssuedSessions, note func(context.Context, string, any) error) *Sessions {
	return &Sessions{note: note, now: time.Now, linger: linger, issued: slices.Clone(issued), held: map[bailey.SessionID]*holding{}}
}

// Issue begins a session for p, once that is recorded, and returns the bearer that its calls show.
func (s *Sessions) Issue(ctx context.Context, p bailey.Principal) (bearer string, id bailey.SessionID, err error) {
	return s.issue(ctx, Issued{Agent: p.Agent})
}

// IssueWall begins a session for an agent inside the wall: whoever shows its bearer is that agent.
func (s *Sessions) IssueWall(ctx context.Context, agent, project string) (bearer string, id bailey.SessionID, err error) {
	return s.issue(ctx, Issued{Agent: agent, Door: WallDoor, Dir: project})
}

// WallDoor is the door of calls from inside the wall.
const WallDoor = "wrap"

func (s *Sessions) issue(ctx context.Context, i Issued) (bearer string, id bailey.SessionID, err error) {
	now := s.now()
	s.mu.Lock()
	lately := 0
	for _, i := range s.issued {
		if ago := now.Sub(i.At); ago >= 0 && ago < time.Minute { // the clock may have been ahead
			lately++
		}
	}
	s.mu.Unlock()
	if lately >= maxIssuance {
		return "", "", &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("%d sessions were begun within a minute", lately), Hint: "use one for many calls; or wait a minute"}
	}
	bearer = newBearer()
	if id, err = sessionOf(bearer); err != nil {
		return "", "", err
	}
	i.Session, i.UID, i.At = id, os.Geteuid(), now.UTC()
	if err := s.note(context.WithoutCancel(ctx), IssueEvent, i); err != nil {
		return "", "", &bailey.Error{Kind: bailey.Unavailable, Message: "the session could not be recorded, so there is none", Hint: "see that the ledger can be written", Err: err}
	}
	s.mu.Lock()
	s.issued.Keep(i)
	s.mu.Unlock()
	return bearer, id, nil
}

// enter finds the session of a bearer and keeps what it holds until leave. No bearer but one of p's own is taken, and
// there is no other session in its place.
func (s *Sessions) enter(ctx context.Context, bearer string, p bailey.Principal) (bailey.SessionID, error) {
	id, err := sessionOf(bearer)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	i, ok := s.known(id)
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
	note := s.touch(s.take(i))
	s.mu.Unlock()
	note(ctx)
	return id, nil
}

// Wall is a session as it was issued, where it is of an agent inside the wall. It is connected.
func (s *Sessions) Wall(id bailey.SessionID) (Issued, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.known(id)
	return i, ok && i.Door != ""
}

// Projects are those of walls whose sessions count: agents inside write them.
func (s *Sessions) Projects() (dirs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.issued {
		if i.Door != "" && !slices.Contains(dirs, i.Dir) {
			dirs = append(dirs, i.Dir)
		}
	}
	for _, h := range s.held { // one that is connected counts, however long
		if i := h.issued; i.Door != "" && !slices.Contains(dirs, i.Dir) {
			dirs = append(dirs, i.Dir)
		}
	}
	return dirs
}

// known finds a session that counts: one that is connected does, however long. The caller holds mu.
func (s *Sessions) known(id bailey.SessionID) (Issued, bool) {
	if h := s.held[id]; h != nil && h.conns > 0 {
		return h.issued, true
	}
	return s.issued.find(id, s.now())
}

// touch keeps a session for longer, if it was kept so long ago that this is worth an entry of the ledger. The caller holds
// mu, and calls note when it does not.
func (s *Sessions) touch(h *holding) (note func(context.Context)) {
	if s.now().Sub(h.issued.At) <= bearerNote {
		return func(context.Context) {}
	}
	h.issued.At = s.now().UTC()
	i := h.issued
	s.issued.Keep(i)
	return func(ctx context.Context) { // unrecorded, it ends earlier than it had to
		s.note(context.WithoutCancel(ctx), UseEvent, i)
	}
}

// use keeps a session that is connected, an hour after the last time.
func (s *Sessions) use(id bailey.SessionID, h *holding) {
	s.mu.Lock()
	if s.held[id] != h || h.conns == 0 {
		s.mu.Unlock()
		return
	}
	note := s.touch(h)
	h.uses.Reset(bearerNote + time.Second)
	s.mu.Unlock()
	note(context.Background())
}

// Lasts reports whether a session has a bearer: who has that can come back to it.
func (s *Sessions) Lasts(id bailey.SessionID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known(id)
	return ok
}

// take counts a connection. The caller holds mu, which is let go while the session is being forgotten: what the new
// connection begins must not be.
func (s *Sessions) take(i Issued) *holding {
	id := i.Session
	for {
		h := s.held[id]
		switch {
		case h == nil:
			h = &holding{issued: i, conns: 1}
			h.uses = time.AfterFunc(bearerNote+time.Second, func() { s.use(id, h) })
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

// leave counts a connection that has ended. end forgets what the session held, later.
func (s *Sessions) leave(id bailey.SessionID, end func(bailey.SessionID)) {
	s.mu.Lock()
	h := s.held[id]
	if h.conns--; h.conns > 0 {
		s.mu.Unlock()
		return
	}
	note := s.touch(h)
	h.uses.Stop()
	h.idle = s.now()
	h.timer = time.AfterFunc(s.linger, func() { s.end(id, h, end) })
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
		s.end(oldest, first, end)
	}
}

// end forgets what a session held, unless it is connected again.
func (s *Sessions) end(id bailey.SessionID, h *holding, end func(bailey.SessionID)) {
	s.mu.Lock()
	if s.held[id] != h || h.conns > 0 || h.ending != nil {
		s.mu.Unlock()
		return
	}
	h.ending = make(chan struct{})
	h.timer.Stop()
	s.mu.Unlock()
	s.part(h)
	end(id)
	s.mu.Lock()
	delete(s.held, id)
	s.mu.Unlock()
	close(h.ending)
}

// close forgets what all sessions hold that are not connected, at once, and returns when that is done.
func (s *Sessions) close(end func(bailey.SessionID)) {
	s.mu.Lock()
	all := make(map[bailey.SessionID]*holding, len(s.held))
	for id, h := range s.held {
		all[id] = h
	}
	s.mu.Unlock()
	var ends sync.WaitGroup
	defer ends.Wait()
	for id, h := range all {
		ends.Go(func() {
			s.end(id, h, end)
			s.mu.Lock()
			ending := h.ending
			s.mu.Unlock()
			if ending != nil {
				<-ending
			}
		})
	}
}
