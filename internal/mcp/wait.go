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

// DefaultPatience is how long a call stays for a person's answer: the TypeScript SDK's client gives a request up after
// 60 s. Then it is parked, and the same call takes it up again.
const DefaultPatience = 45 * time.Second

// PatienceKey is the member of a tools/call's _meta that says, in milliseconds, how much less than that a client stays. 0
// is not at all.
const PatienceKey = "bailey/patienceMs"

// beat is how often a client that gave a progress token hears that its call still waits.
const beat = 10 * time.Second

// Question is an open one, as this door shows it.
type Question struct {
	bailey.Question
	// Local says that this client may be asked, and that its answer, which has no signature, would grant it.
	Local bool
}

// patience reads how long a call stays.
func (s *session) patience(meta sdk.Meta) (time.Duration, error) {
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

// wait is a call on behalf of which somebody is asked.
type wait struct {
	*session
	req    *sdk.CallToolRequest
	call   bailey.Call
	elicit bool // the client can be asked, in a request of ours
	tasked bool // it is a task, which says itself what its client is asked

	mu   sync.Mutex // guards over, held while a notification leaves
	over bool       // the call is answered: no progress any more
}

// asked is told of a question once it is open, and ends when the call waits no longer.
func (w *wait) asked(ctx context.Context, q bailey.Question) {
	if w.elicit {
		go w.ask(ctx, q.ID)
	}
	token := w.req.Params.GetProgressToken()
	if token == nil {
		return
	}
	tick := time.NewTicker(w.beat)
	defer tick.Stop()
	for since := time.Now(); ; {
		w.progress(ctx, token, time.Since(since), q)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// progress tells the client that its call waits. What it takes to be without life it would give up.
func (w *wait) progress(ctx context.Context, token any, waited time.Duration, q bailey.Question) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || ctx.Err() != nil {
		return
	}
	err := w.req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
		ProgressToken: token, Progress: waited.Seconds(), Total: w.call.Patience.Seconds(),
		Message: fmt.Sprintf("waits for a person: approval %s, open until %s", q.ID, stamp(q.Expires)),
	})
	if err != nil {
		w.Log.Debug("a client hears nothing of its call", "question", q.ID, "err", err)
	}
}

// end is said before the call is answered: the protocol has no progress after that.
func (w *wait) end() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
