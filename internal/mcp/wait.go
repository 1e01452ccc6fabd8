package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// DefaultPatience is the time that a call waits for an answer. The client of the TypeScript SDK gives up after 60 s.
// After DefaultPatience the call is pending, and the same call resumes it.
const DefaultPatience = 45 * time.Second

// PatienceKey is the member of a tools/call's _meta for a shorter waiting time, in milliseconds. 0 means no waiting.
const PatienceKey = "bailey/patienceMs"

// beat is the interval of progress messages for a client with a progress token whose call waits.
const beat = 10 * time.Second

// Question is an open question in the form of this front end.
type Question struct {
	bailey.Question
	// Local means that this client may be asked, and that its unsigned answer is sufficient.
	Local bool
}

// callPatience returns the waiting time of a call.
func (s *session) callPatience(meta sdk.Meta) (time.Duration, error) {
	most := s.Patience
	if most == 0 {
		most = DefaultPatience
	}
	v, said := meta[PatienceKey]
	if !said {
		return most, nil
	}
	ms, ok := v.(float64)
	if n, num := v.(json.Number); num {
		var err error
		ms, err = n.Float64()
		ok = err == nil
	}
	if !ok || ms < 0 || ms != math.Trunc(ms) {
		return 0, invalidParams("_meta " + PatienceKey + " is a whole number of milliseconds, 0 or more")
	}
	if ms >= float64(most/time.Millisecond) {
		return most, nil
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// waitingCall is a call that may wait for a person.
type waitingCall struct {
	*session
	req    *sdk.CallToolRequest
	call   bailey.Call
	elicit bool // the server can ask the client with a request
	tasked bool // the call is a task, whose status shows the question

	mu   sync.Mutex // guards over; held while a notification is sent
	over bool       // the call is answered, so no more progress is sent
}

// reportWaiting is called when a question is open. It returns when the call no longer waits.
func (w *waitingCall) reportWaiting(ctx context.Context, q bailey.Question) {
	if w.elicit {
		go w.askClient(ctx, q.ID)
	}
	token := w.req.Params.GetProgressToken()
	if token == nil {
		return
	}
	tick := time.NewTicker(w.beat)
	defer tick.Stop()
	for since := time.Now(); ; {
		w.sendProgress(ctx, token, time.Since(since), q)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sendProgress tells the client that its call waits. Without progress a client could give up.
func (w *waitingCall) sendProgress(ctx context.Context, token any, waited time.Duration, q bailey.Question) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || ctx.Err() != nil {
		return
	}
	err := w.req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
		ProgressToken: token, Progress: waited.Seconds(), Total: w.call.Patience.Seconds(),
		Message: fmt.Sprintf("waits for a person: approval %s, open until %s", q.ID, formatTime(q.Expires)),
	})
	if err != nil {
		w.Log.Debug("a client hears nothing of its call", "question", q.ID, "err", err)
	}
}

// stopProgress must be called before the call is answered, because the protocol allows no progress after that.
func (w *waitingCall) stopProgress() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
