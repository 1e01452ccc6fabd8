package gateway

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/localapi"
)

// issueNotes keeps the recorded events. If err is set, it refuses them.
type issueNotes struct {
	mu    sync.Mutex
	kinds []string
	data  []Issued
	err   error
}

func (n *issueNotes) note(_ context.Context, kind string, data any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return n.err
	}
	n.kinds = append(n.kinds, kind)
	i, _ := data.(Issued)
	n.data = append(n.data, i)
	return nil
}

func localAgent() bailey.Principal { return bailey.Principal{Agent: "local"} }

// endings collects the sessions that ended.
type endings struct {
	mu  sync.Mutex
	ids []bailey.SessionID
}

func (e *endings) end(id bailey.SessionID) {
	e.mu.Lock()
	e.ids = append(e.ids, id)
	e.mu.Unlock()
}

func (e *endings) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.ids)
}

// TestBearer checks that the ledger does not reveal the bearer, and that the bearer leads to the recorded session, also
// in a gateway that starts later.
func TestBearer(t *testing.T) {
	n := &issueNotes{}
	s := NewSessions(nil, n.note)
	bearer, id, err := s.Issue(t.Context(), localAgent())
	if err != nil {
		t.Fatal(err)
	}
	if other, _, _ := s.Issue(t.Context(), localAgent()); other == bearer {
		t.Error("two sessions have one bearer")
	}
	if len(bearer) != len("bs-")+32 || len(id) != len(bailey.NewSessionID()) || strings.Contains(string(id), bearer[3:]) {
		t.Errorf("bearer %q of session %q", bearer, id)
	}
	var remembered IssuedSessions
	for _, i := range n.data {
		remembered.Keep(i)
	}
	later := NewSessions(remembered, n.note)
	if got, err := later.enterSession(t.Context(), bearer, localAgent()); err != nil || got != id {
		t.Errorf("after a restart %q, %v; want %q", got, err, id)
	}
}

// TestBearerRefused checks that an unknown bearer is refused and never leads to another session.
func TestBearerRefused(t *testing.T) {
	n := &issueNotes{}
	s := NewSessions(nil, n.note)
	good, _, err := s.Issue(t.Context(), localAgent())
	if err != nil {
		t.Fatal(err)
	}
	for bearer, want := range map[string]bailey.Kind{
		"":                                 bailey.Invalid,
		"bs-":                              bailey.Invalid,
		"x":                                bailey.Invalid,
		good[3:]:                           bailey.Invalid,
		strings.ToUpper(good):              bailey.Invalid,
		good + "0":                         bailey.Invalid,
		good[:len(good)-1] + "g":           bailey.Invalid,
		"bs-" + strings.Repeat("0", 32):    bailey.NotFound,
		"bs-" + strings.Repeat("0", 1<<20): bailey.Invalid,
	} {
		if id, err := s.enterSession(t.Context(), bearer, localAgent()); id != "" || bailey.KindOf(err) != want || bailey.HintOf(err) == "" {
			t.Errorf("%.40q: %q, %v; want %v", bearer, id, err, want)
		} else if bearer != "" && bearer != "x" && strings.Contains(err.Error(), bearer[3:]) && bearer != "bs-" {
			t.Errorf("the refusal says the bearer: %v", err)
		}
	}
	if _, err := s.enterSession(t.Context(), good, bailey.Principal{Agent: "another"}); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("another agent's: %v", err)
	}
	foreign := slices.Clone(s.issued)
	foreign[0].UID = os.Geteuid() + 1
	if _, err := NewSessions(foreign, n.note).enterSession(t.Context(), good, localAgent()); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("another user's: %v", err)
	}
	n.err = errors.New("full")
	if _, _, err := s.Issue(t.Context(), localAgent()); bailey.KindOf(err) != bailey.Unavailable || len(s.issued) != 1 {
		t.Errorf("unrecorded: %v, %d sessions", err, len(s.issued))
	}
}

// TestBearerExpires checks that a bearer expires after eight hours without use, also across a restart, and not while it
// is used.
func TestBearerExpires(t *testing.T) {
	n := &issueNotes{}
	now := time.Now()
	s := NewSessions(nil, n.note)
	s.now = func() time.Time { return now }
	bearer, id, err := s.Issue(t.Context(), localAgent())
	if err != nil {
		t.Fatal(err)
	}
	end := func(bailey.SessionID) {}
	for range 3 {
		now = now.Add(7 * time.Hour)
		if _, err := s.enterSession(t.Context(), bearer, localAgent()); err != nil {
			t.Fatal(err)
		}
		s.leaveSession(id, end)
	}
	if want := []string{IssueEvent, UseEvent, UseEvent, UseEvent}; !slices.Equal(n.kinds, want) {
		t.Errorf("noted %v, want %v", n.kinds, want)
	}
	if _, err := s.enterSession(t.Context(), bearer, localAgent()); err != nil || len(n.kinds) != 4 {
		t.Errorf("used again at once: %v, noted %v", err, n.kinds)
	}
	s.leaveSession(id, end)
	now = now.Add(bearerTTL + time.Second)
	if _, err := s.enterSession(t.Context(), bearer, localAgent()); bailey.KindOf(err) != bailey.NotFound {
		t.Errorf("unused for over eight hours: %v", err)
	}
	var remembered IssuedSessions
	for _, i := range n.data {
		remembered.Keep(i)
	}
	restarted := NewSessions(remembered, n.note)
	restarted.now = s.now
	if _, err := restarted.enterSession(t.Context(), bearer, localAgent()); bailey.KindOf(err) != bailey.NotFound {
		t.Errorf("over a restart: %v", err)
	}
}

// TestIssuedIsBounded checks that issued sessions are limited in number and in rate.
func TestIssuedIsBounded(t *testing.T) {
	var l IssuedSessions
	at := time.Unix(0, 0)
	for i := range maxIssued + 10 {
		l.Keep(Issued{Session: bailey.NewSessionID(), At: at.Add(time.Duration(i) * time.Second)})
	}
	if len(l) != maxIssued || !l[0].At.Equal(at.Add(10*time.Second)) {
		t.Errorf("%d are kept, the first of %v", len(l), l[0].At)
	}
	if l.Keep(Issued{Session: "s-late", At: at.Add(100 * time.Hour)}); len(l) != 1 {
		t.Errorf("%d are kept after all had their time", len(l))
	}
	s := NewSessions(nil, (&issueNotes{}).note)
	var err error
	for range maxIssuance + 1 {
		_, _, err = s.Issue(t.Context(), localAgent())
	}
	if bailey.KindOf(err) != bailey.Unavailable {
		t.Errorf("session after session: %v", err)
	}
}

// TestSessionLingers checks that the state of a session ends some time after its last connection and not before.
func TestSessionLingers(t *testing.T) {
	var e endings
	s := NewSessions(nil, (&issueNotes{}).note)
	s.linger = time.Hour
	bearer, id, err := s.Issue(t.Context(), localAgent())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.enterSession(t.Context(), bearer, localAgent()); err != nil {
			t.Fatal(err)
		}
	}
	first := s.held[id]
	s.leaveSession(id, e.end)
	s.removeState(id, first, e.end) // an outdated timer
	if e.count() != 0 || s.held[id] != first {
		t.Fatal("it ended while it was connected")
	}
	s.leaveSession(id, e.end)
	if e.count() != 0 {
		t.Fatal("it ended with its connection")
	}
	s.removeState(id, first, e.end) // the timer
	if e.count() != 1 || s.held[id] != nil {
		t.Errorf("ended %d times", e.count())
	}
	s.removeState(id, first, e.end)
	if e.count() != 1 {
		t.Error("it ended twice")
	}
	s.linger = time.Millisecond
	if _, err := s.enterSession(t.Context(), bearer, localAgent()); err != nil {
		t.Fatal(err)
	}
	s.leaveSession(id, e.end)
	for deadline := time.Now().Add(time.Minute); e.count() < 2 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if e.count() != 2 {
		t.Error("it never ended")
	}
}

// TestLingeringIsBounded checks that if too many sessions have no connection, those that had none for longest end
// first, and that all end with the gateway.
func TestLingeringIsBounded(t *testing.T) {
	var e endings
	now := time.Now()
	s := NewSessions(nil, (&issueNotes{}).note)
	s.now = func() time.Time { now = now.Add(time.Minute); return now }
	var ids []bailey.SessionID
	for range maxLingers + 2 {
		bearer, id, err := s.Issue(t.Context(), localAgent())
		if err == nil {
			_, err = s.enterSession(t.Context(), bearer, localAgent())
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		s.leaveSession(id, e.end)
	}
	if !slices.Equal(e.ids, ids[:2]) {
		t.Errorf("ended %v, want %v", e.ids, ids[:2])
	}
	s.removeAll(e.end)
	if e.count() != len(ids) || len(s.held) != 0 {
		t.Errorf("%d of %d ended with the gateway", e.count(), len(ids))
	}
}

// TestEachLingersForItself checks that each of several sessions without a connection ends at its own time.
func TestEachLingersForItself(t *testing.T) {
	var e endings
	s := NewSessions(nil, (&issueNotes{}).note)
	s.linger = 20 * time.Millisecond
	for range 3 {
		bearer, id, err := s.Issue(t.Context(), localAgent())
		if err == nil {
			_, err = s.enterSession(t.Context(), bearer, localAgent())
		}
		if err != nil {
			t.Fatal(err)
		}
		s.leaveSession(id, e.end)
	}
	for deadline := time.Now().Add(time.Minute); e.count() < 3 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if e.count() != 3 {
		t.Errorf("%d of 3 ended", e.count())
	}
}

// TestEnterWhileEnding checks that a connection that comes while its session ends must wait until the end is complete.
func TestEnterWhileEnding(t *testing.T) {
	s := NewSessions(nil, (&issueNotes{}).note)
	bearer, id, err := s.Issue(t.Context(), localAgent())
	if err == nil {
		_, err = s.enterSession(t.Context(), bearer, localAgent())
	}
	if err != nil {
		t.Fatal(err)
	}
	h := s.held[id]
	s.leaveSession(id, func(bailey.SessionID) {})
	ending, release := make(chan struct{}), make(chan struct{})
	var order endings
	go s.removeState(id, h, func(bailey.SessionID) { close(ending); <-release; order.end("forgotten") })
	<-ending
	entered := make(chan error, 1)
	go func() {
		_, err := s.enterSession(context.Background(), bearer, localAgent())
		order.end("entered")
		entered <- err
	}()
	time.Sleep(10 * time.Millisecond) // The connection may wait already or not yet. Both must work.
	close(release)
	if err := <-entered; err != nil || order.ids[0] != "forgotten" || s.held[id] == nil || s.held[id].conns != 1 {
		t.Errorf("%v, %v", order.ids, err)
	}
}

// TestSessionOverTheSocket checks that two connections and a call with one bearer are one session, and that a call
// without a bearer is a single call.
func TestSessionOverTheSocket(t *testing.T) {
	var mu sync.Mutex
	var seen []bailey.Session
	n := &issueNotes{}
	sessions := NewSessions(nil, n.note)
	g, client, _ := start(t, func(c *Config) {
		c.Sessions = sessions
		c.MCP = func(_ context.Context, from bailey.Call, conn io.ReadWriteCloser) error {
			mu.Lock()
			seen = append(seen, from.Session)
			mu.Unlock()
			_, err := io.Copy(conn, conn)
			return err
		}
	})
	bearer, id, err := sessions.Issue(t.Context(), localAgent())
	if err != nil {
		t.Fatal(err)
	}
	client.Session = bearer
	for range 2 {
		conn, err := client.MCP(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, err := client.Call(t.Context(), localapi.CallQuery{Capability: "x"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	client.Session = ""
	if _, err := client.Call(t.Context(), localapi.CallQuery{Capability: "x"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		mu.Lock()
		n := len(seen)
		mu.Unlock()
		if n == 2 && len(g.sessions()) == 2 && g.endings() == 1 {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if want := (bailey.Session{ID: id}); len(seen) != 2 || seen[0] != want || seen[1] != want {
		t.Errorf("the connections are of %v, want %v twice", seen, want)
	}
	calls := g.sessions()
	if len(calls) != 2 || calls[0] != (bailey.Session{ID: id}) || calls[1].ID == id || !calls[1].Single {
		t.Errorf("the calls are of %+v", calls)
	}
	if g.endings() != 1 {
		t.Errorf("%d sessions have ended, want the single call's alone", g.endings())
	}
	client.Session = "bs-00000000000000000000000000000000"
	if _, err := client.Call(t.Context(), localapi.CallQuery{Capability: "x"}, nil, nil); !errors.Is(err, bailey.NotFound) || bailey.HintOf(err) == "" {
		t.Errorf("an unknown session: %v", err)
	}
	if _, err := client.MCP(t.Context()); !errors.Is(err, bailey.NotFound) {
		t.Errorf("an unknown session of MCP: %v", err)
	}
	if len(g.sessions()) != 2 {
		t.Error("a call of an unknown session reached the gate")
	}
}

func FuzzBearer(f *testing.F) {
	f.Add("bs-00000000000000000000000000000000")
	f.Add("bs-")
	f.Add("bs-0000000000000000000000000000000G")
	f.Fuzz(func(t *testing.T, bearer string) {
		id, err := sessionOf(bearer)
		if err == nil && (len(bearer) != 35 || bearer != strings.ToLower(bearer)) || (err == nil) != (id != "") {
			t.Errorf("%q is taken for %q, %v", bearer, id, err)
		}
	})
}

// TestIssueAfterTheClockWentBack checks that sessions with a time in the future do not prevent a new session, for
// example after the clock was set back.
func TestIssueAfterTheClockWentBack(t *testing.T) {
	now := time.Now().Add(time.Hour)
	s := NewSessions(nil, (&issueNotes{}).note)
	s.now = func() time.Time { return now }
	for range 2 * maxIssuance {
		if _, _, err := s.Issue(t.Context(), localAgent()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	now = now.Add(-time.Hour)
	bearer, _, err := s.Issue(t.Context(), localAgent())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.enterSession(t.Context(), bearer, localAgent()); err != nil {
		t.Error(err)
	}
	for range maxIssuance - 1 {
		if _, _, err := s.Issue(t.Context(), localAgent()); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Issue(t.Context(), localAgent()); !errors.Is(err, bailey.Unavailable) {
		t.Errorf("of as many as one likes: %v", err)
	}
}

// TestConnectedSessionIsUsed checks that a session does not expire while it is connected. This must hold for further
// connections, for the ledger, and for eight hours after its last connection.
func TestConnectedSessionIsUsed(t *testing.T) {
	now, n := time.Now(), &issueNotes{}
	s := NewSessions(nil, n.note)
	s.now, s.linger = func() time.Time { return now }, time.Hour
	bearer, id, err := s.Issue(t.Context(), localAgent())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.enterSession(t.Context(), bearer, localAgent()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now = now.Add(9 * time.Hour)
		if _, _, err := s.Issue(t.Context(), localAgent()); err != nil { // Issue removes expired sessions
			t.Fatal(err)
		}
		if got, err := s.enterSession(t.Context(), bearer, localAgent()); err != nil || got != id || !s.Lasts(id) {
			t.Fatalf("%q, %v", got, err)
		}
		s.leaveSession(id, func(bailey.SessionID) {})
	}
	now = now.Add(7 * time.Hour)
	s.mu.Lock()
	h := s.held[id]
	s.mu.Unlock()
	s.extendConnected(id, h) // as each hour
	var remembered IssuedSessions
	for _, i := range n.data {
		remembered.Keep(i)
	}
	later := NewSessions(remembered, n.note)
	later.now = func() time.Time { return now.Add(bearerTTL - time.Minute) }
	if !later.Lasts(id) {
		t.Error("a gateway that starts does not know that it was used")
	}
	now = now.Add(9 * time.Hour)
	s.leaveSession(id, func(bailey.SessionID) {})
	now = now.Add(bearerTTL - time.Minute)
	if !s.Lasts(id) {
		t.Error("it ends before its time")
	}
	now = now.Add(2 * time.Minute)
	if _, err := s.enterSession(t.Context(), bearer, localAgent()); !errors.Is(err, bailey.NotFound) || s.Lasts(id) {
		t.Errorf("it does not end: %v", err)
	}
}
