package modelproxy

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"bailey"
)

// TestSessionsInUse checks that no session ends while a request uses it, however many others its agent begins, and that
// an agent cannot end the sessions of another.
func TestSessionsInUse(t *testing.T) {
	t.Parallel()
	var began, ended atomic.Int64
	p := &Proxy{held: map[sessionKey]*heldSession{}}
	p.Enter = func(_ context.Context, token string, known bailey.SessionID, _ Front) (bailey.Call, func(), error) {
		from := bailey.Call{Principal: bailey.Principal{Agent: token}, Session: bailey.Session{ID: known}}
		if known != "" {
			return from, nil, nil
		}
		from.Session.ID = bailey.SessionID(fmt.Sprint("s-", began.Add(1)))
		return from, func() { ended.Add(1) }, nil
	}
	enter := func(token, name string) (bailey.SessionID, func()) {
		r := &http.Request{Header: http.Header{sessionHeaders[0]: {name}}}
		from, leave, err := p.enterSession(t.Context(), token, Front{}, r)
		if err != nil {
			t.Fatal(err)
		}
		return from.Session.ID, leave
	}
	_, leave := enter("other", "A")
	leave()
	first, leave := enter("agent", "A")
	leave()
	_, leave = enter("agent", "A") // a long request
	for i := range 2 * maxHeld {
		_, leave := enter("agent", fmt.Sprint(i))
		leave()
	}
	if again, leave := enter("agent", "A"); again != first {
		t.Errorf("the session of a running request was replaced by %s", again)
	} else {
		leave()
	}
	leave()
	if n := p.Sessions(); n != maxHeld+1 || began.Load()-ended.Load() != int64(n) {
		t.Errorf("%d sessions are held, %d are open", n, began.Load()-ended.Load())
	}
	if again, leave := enter("other", "A"); again != "s-1" {
		t.Errorf("another agent ended the session, now %s", again)
	} else {
		leave()
	}
	p.Close()
	if began.Load() != ended.Load() {
		t.Errorf("%d sessions began, %d ended", began.Load(), ended.Load())
	}
}
