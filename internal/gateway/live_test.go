package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// shelf is a ledger that fails if open or seal is set.
type shelf struct{ open, seal error }

func (s shelf) Open(context.Context, bailey.Intent) (func(bailey.Outcome) error, error) {
	if s.open != nil {
		return nil, s.open
	}
	return func(bailey.Outcome) error { return s.seal }, nil
}

func TestLiveCalls(t *testing.T) {
	live, broken := &Live{}, errors.New("broken")
	if _, err := live.Ledger(shelf{open: broken}).Open(t.Context(), bailey.Intent{Receipt: "r-0"}); !errors.Is(err, broken) {
		t.Errorf("an intent that was not written: %v", err)
	}
	if calls, _ := live.Now(); calls == nil || len(calls) != 0 {
		t.Fatalf("a call that was not recorded is live: %v", calls)
	}
	at := time.Unix(1, 0)
	second, err := live.Ledger(shelf{seal: broken}).Open(t.Context(), bailey.Intent{Receipt: "r-2", Capability: "a.b", Agent: "x", Session: "s-1", Door: "mcp", StartedAt: at})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := live.Ledger(shelf{}).Open(t.Context(), bailey.Intent{Receipt: "r-1", StartedAt: at})
	calls, _ := live.Now()
	if len(calls) != 2 || calls[0].Receipt != "r-1" || calls[1] != (apitype.LiveCall{Receipt: "r-2", Capability: "a.b", Agent: "x", Session: "s-1", Door: "mcp", Since: at}) {
		t.Errorf("live calls: %+v", calls)
	}
	if err := second(bailey.Outcome{}); !errors.Is(err, broken) {
		t.Errorf("the outcome's error is lost: %v", err)
	}
	if err := first(bailey.Outcome{}); err != nil {
		t.Error(err)
	}
	if calls, _ := live.Now(); len(calls) != 0 {
		t.Errorf("ended calls are live: %v", calls)
	}
}

func TestLiveSessions(t *testing.T) {
	live := &Live{}
	_, client, _ := start(t, func(c *Config) { c.Live = live })
	conn, err := client.MCP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, sessions := live.Now()
	dir, _ := os.Getwd()
	if len(sessions) != 1 || sessions[0].Door != "mcp" || sessions[0].Dir != dir || sessions[0].Agent != "local" || sessions[0].Client != "" {
		t.Fatalf("sessions: %+v", sessions)
	}
	live.Ledger(shelf{}).Open(t.Context(), bailey.Intent{Receipt: "r-1", Session: sessions[0].ID, Client: "inspector 1"})
	live.Ledger(shelf{}).Open(t.Context(), bailey.Intent{Receipt: "r-2", Session: "s-other", Client: "stranger"})
	if _, sessions = live.Now(); len(sessions) != 1 || sessions[0].Client != "inspector 1" {
		t.Errorf("after a call: %+v", sessions)
	}
	conn.Close()
	for deadline := time.Now().Add(time.Minute); len(sessions) > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
		_, sessions = live.Now()
	}
	if len(sessions) > 0 {
		t.Errorf("a session outlived its connection: %+v", sessions)
	}
}

// TestLiveManyAtOnce records calls concurrently. It is for the race detector.
func TestLiveManyAtOnce(t *testing.T) {
	live := &Live{}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			id := fmt.Sprint(i)
			defer live.addSession(bailey.Call{Session: bailey.Session{ID: bailey.SessionID(id)}})()
			seal, _ := live.Ledger(shelf{}).Open(t.Context(), bailey.Intent{Receipt: bailey.ReceiptID(id), Session: bailey.SessionID(id), Client: "c"})
			live.Now()
			seal(bailey.Outcome{})
		})
	}
	all.Wait()
	if calls, sessions := live.Now(); len(calls)+len(sessions) != 0 {
		t.Errorf("left over: %v, %v", calls, sessions)
	}
}

// TestLookStartsNothing checks that a client without Start does not change the home.
func TestLookStartsNothing(t *testing.T) {
	home := localapi.Home(filepath.Join(t.TempDir(), "none"))
	_, err := ping.Ask(t.Context(), &localapi.Client{Home: home}, localapi.None{})
	if !errors.Is(err, localapi.ErrUnreachable) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a gateway: %v", err)
	}
	if _, err := os.Lstat(string(home)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a look made the home: %v", err)
	}
}
