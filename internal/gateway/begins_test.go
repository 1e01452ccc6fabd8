package gateway

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
)

// TestBeginsOnce checks that only one connection of a session asks whether the session may begin, and that all of them
// get the answer. If the answer is no, the next connection asks again. The end is reported once.
func TestBeginsOnce(t *testing.T) {
	s := NewSessions(nil, (&issueNotes{}).note)
	bearer, id, err := s.Issue(t.Context(), localAgent())
	if err != nil {
		t.Fatal(err)
	}
	var asked, over atomic.Int32
	no := errors.New("not today")
	round := func(answer error) (yes int) {
		var conns, all sync.WaitGroup
		var agreed atomic.Int32
		conns.Add(8)
		for range 8 {
			all.Go(func() {
				if _, err := s.enterSession(t.Context(), bearer, localAgent()); err != nil {
					t.Error(err)
				}
				conns.Done()
				switch err := s.startOnce(id, func() error { conns.Wait(); asked.Add(1); return answer }, func() { over.Add(1) }); err {
				case nil:
					agreed.Add(1)
				case no:
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		return int(agreed.Load())
	}
	leave := func() {
		for range 8 {
			s.leaveSession(id, func(bailey.SessionID) {})
		}
	}
	if n := round(no); n != 0 || asked.Load() == 0 {
		t.Errorf("%d began, asked %d times", n, asked.Load())
	}
	leave()
	s.removeAll(func(bailey.SessionID) {})
	if over.Load() != 0 {
		t.Error("what never began is over")
	}
	asked.Store(0)
	if n := round(nil); n != 8 || asked.Load() != 1 {
		t.Errorf("%d of 8 began, asked %d times", n, asked.Load())
	}
	if leave(); over.Load() != 0 {
		t.Error("over with its connections")
	}
	if n := round(nil); n != 8 || asked.Load() != 1 {
		t.Errorf("it lingers: %d of 8 began, asked %d times", n, asked.Load())
	}
	leave()
	s.removeAll(func(bailey.SessionID) {
		if over.Load() != 1 {
			t.Error("what it held is forgotten before its end is told")
		}
	})
	if over.Load() != 1 {
		t.Errorf("over %d times", over.Load())
	}
	if round(nil); asked.Load() != 2 {
		t.Errorf("it came back: asked %d times", asked.Load())
	}
	s.reportEnd(s.held[id])
	func() {
		defer func() { recover() }()
		s.startOnce(id, func() error { panic("broken") }, nil)
	}()
	if err := s.startOnce(id, func() error { return nil }, func() {}); err != nil {
		t.Errorf("after one who broke: %v", err)
	}
}

// TestSessionsBegin checks that calls and MCP connections with the same bearer belong to one session, which begins with
// the first of them and ends with its last connection or with the gateway. A single call has no begin and no end.
func TestSessionsBegin(t *testing.T) {
	var mu sync.Mutex
	var told []string
	var refuse atomic.Bool
	tell := func(what string, from bailey.Call) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, what+" "+string(from.Session.ID))
	}
	var s *Sessions
	g, client, done := start(t, func(c *Config) {
		s = NewSessions(nil, c.Note)
		c.Sessions = s
		c.Begin = func(_ context.Context, from bailey.Call) error {
			tell("begin", from)
			if refuse.Load() {
				return &bailey.Error{Kind: bailey.Denied, Message: "not from here", Hint: "elsewhere"}
			}
			return nil
		}
		c.End = func(ctx context.Context, from bailey.Call) {
			tell("end", from)
			if ctx.Err() != nil {
				t.Error("nobody can be told any more")
			}
		}
	})
	list := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(told)
	}
	call := func() error {
		_, err := client.Call(t.Context(), localapi.CallQuery{Capability: "echo"}, nil, nil)
		return err
	}
	if err := call(); err != nil || len(list()) != 0 {
		t.Errorf("a single call: %v, %v", err, list())
	}
	bearer, id, err := s.Issue(t.Context(), localAgent())
	if err != nil {
		t.Fatal(err)
	}
	client.Session = bearer
	refuse.Store(true)
	if err := call(); bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), "not from here") || bailey.HintOf(err) != "elsewhere" || len(g.sessions()) != 1 {
		t.Errorf("a session that may not begin: %v, %v", err, g.sessions())
	}
	refuse.Store(false)
	mu.Lock()
	told = nil
	mu.Unlock()
	begin, end := "begin "+string(id), "end "+string(id)
	for range 2 { // the session has begun when the second connection comes, and lives as long as one connection
		if err := call(); err != nil {
			t.Fatal(err)
		}
		var conns []io.Closer
		for range 2 {
			rw, err := client.MCP(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, rw)
		}
		conns[0].Close()
		if err := call(); err != nil {
			t.Fatal(err)
		}
		if want := []string{begin}; !slices.Equal(list(), want) {
			t.Errorf("%v, want %v", list(), want)
		}
		conns[1].Close()
		for len(list()) < 2 { // bounded by the time limit of the test
			time.Sleep(time.Millisecond)
		}
		if want := []string{begin, end}; !slices.Equal(list(), want) {
			t.Errorf("%v, want %v", list(), want)
		}
		mu.Lock()
		told = nil
		mu.Unlock()
	}
	client.Session = ""
	rw, err := client.MCP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rw.Close()
	for len(list()) < 2 {
		time.Sleep(time.Millisecond)
	}
	if got := list(); strings.Contains(got[0], string(id)) || got[1] != strings.Replace(got[0], "begin", "end", 1) {
		t.Errorf("a connection without a bearer: %v", got)
	}
	client.Session = bearer
	mu.Lock()
	told = nil
	mu.Unlock()
	if err := call(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-done
	if want := []string{begin, end}; !slices.Equal(list(), want) {
		t.Errorf("%v, want %v", list(), want)
	}
}

// TestLastLeavesWhileAnotherComes checks that a connection that comes before the last one's end was reported has a
// session that continues or has begun again. The session must not be over.
func TestLastLeavesWhileAnotherComes(t *testing.T) {
	ktest.Long(t)
	s := NewSessions(nil, (&issueNotes{}).note)
	bearer, id, err := s.Issue(t.Context(), localAgent())
	if err != nil {
		t.Fatal(err)
	}
	var begun, over atomic.Int32
	come := func() (leave func()) {
		if _, err := s.enterSession(t.Context(), bearer, localAgent()); err != nil {
			t.Error(err)
		}
		leave = s.addMCPConn(id)
		if err := s.startOnce(id, func() error { begun.Add(1); return nil }, func() { over.Add(1) }); err != nil {
			t.Error(err)
		}
		return leave
	}
	done := make(chan struct{})
	defer close(done)
	for range 8 { // so that no goroutine gets the lock twice in a row
		go func() {
			for {
				select {
				case <-done:
					return
				default:
					s.Lasts(id)
				}
			}
		}()
	}
	leave := come()
	for range 2000 {
		var both sync.WaitGroup
		var next func()
		both.Go(leave)
		both.Go(func() { next = come() })
		both.Wait()
		if n := begun.Load() - over.Load(); n != 1 {
			t.Fatalf("%d begun and not over while one is connected", n)
		}
		s.leaveSession(id, func(bailey.SessionID) {})
		leave = next
	}
}
