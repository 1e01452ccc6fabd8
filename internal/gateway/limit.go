package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"bailey"
)

// suppressedEvent is the kind of the ledger entry for calls refused by a [Limit].
const suppressedEvent = "suppressed"

// suppressedCalls is the data of such an entry: one a minute for each principal that exceeds its rate.
type suppressedCalls struct {
	Agent  string    `json:"agent"`
	Person string    `json:"person,omitempty"`
	Door   string    `json:"door,omitempty"`
	Calls  int       `json:"calls"`
	From   time.Time `json:"from"` // first refused call
	To     time.Time `json:"to"`   // last refused call
}

// LimitConfig says how often a principal (an agent and the user it acts for) may call through one front end, so that an
// agent in a loop does not disturb the user's own command line. Gate and Note must be set.
type LimitConfig struct {
	Gate  Gate
	Note  func(ctx context.Context, kind string, data any) error
	Rate  float64          // sustained calls per second; 0: 200
	Burst float64          // calls at once; 0: 2,000
	Every time.Duration    // interval between two entries for one principal; 0: one minute
	Now   func() time.Time // nil: time.Now
	Log   *slog.Logger     // nil: no log
}

// Limit stands before the gate. If a principal exceeds its rate, the call is refused and has no receipt of its own. One
// entry a minute counts all such calls, so that an agent in a loop cannot fill the disk.
type Limit struct {
	Gate
	c LimitConfig

	mu      sync.Mutex
	buckets map[limitKey]*bucket // guarded by mu
	closed  bool                 // guarded by mu
	writing sync.WaitGroup       // scheduled or running writes
	total   uint64               // refused calls; guarded by mu
}

type limitKey struct{ agent, person, door string }

type bucket struct {
	tokens  float64
	at      time.Time // when tokens was computed
	refused suppressedCalls
	due     *time.Timer // writes refused; nil if nothing is pending
}

// maxBuckets is the maximum number of principals with their own bucket. All others share one, so an agent gains nothing by
// inventing names.
const maxBuckets = 1024

// NewLimit returns a limit before c.Gate.
func NewLimit(c LimitConfig) *Limit {
	if c.Rate <= 0 {
		c.Rate = 200
	}
	if c.Burst <= 0 {
		c.Burst = 2000
	}
	if c.Every <= 0 {
		c.Every = time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Limit{Gate: c.Gate, c: c, buckets: map[limitKey]*bucket{}}
}

// Do passes the call to the gate. If its principal exceeds the rate, Do returns a result with status Refused and an
// error of the kind Denied, and the call has no receipt.
func (l *Limit) Do(ctx context.Context, call bailey.Call) bailey.Result {
	if l.takeToken(limitKey{call.Principal.Agent, call.Principal.Person, call.Door}) {
		return l.Gate.Do(ctx, call)
	}
	return bailey.Result{Status: bailey.Refused, DryRun: call.DryRun,
		Err: bailey.Denied.Errorf("call again in a second, less often; the call was not made and has no receipt",
			"too many calls: more than %g a second by one agent, after a burst of %g", l.c.Rate, l.c.Burst)}
}

// takeToken removes a token from the principal's bucket. If the bucket is empty, it counts the call as refused.
func (l *Limit) takeToken(p limitKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.c.Now()
	p, b := l.findBucket(p, now)
	b.tokens = min(l.c.Burst, b.tokens+l.c.Rate*max(0, now.Sub(b.at).Seconds()))
	b.at = now
	if b.tokens >= 1 {
		b.tokens--
		return true
	}
	if b.refused.Calls == 0 {
		b.refused = suppressedCalls{Agent: p.agent, Person: p.person, Door: p.door, From: now.UTC()}
	}
	l.total++
	b.refused.Calls++
	b.refused.To = now.UTC()
	l.scheduleWrite(b)
	return false
}

// Refused returns how many calls were refused so far.
func (l *Limit) Refused() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// findBucket returns the principal's bucket and the name under which it is stored.
func (l *Limit) findBucket(p limitKey, now time.Time) (limitKey, *bucket) {
	if b := l.buckets[p]; b != nil {
		return p, b
	}
	if len(l.buckets) >= maxBuckets {
		l.dropFullBuckets(now)
	}
	if len(l.buckets) >= maxBuckets {
		p = limitKey{agent: "others"} // without a front end, so no real principal equals it
		if b := l.buckets[p]; b != nil {
			return p, b
		}
	}
	b := &bucket{tokens: l.c.Burst, at: now}
	l.buckets[p] = b
	return p, b
}

// dropFullBuckets removes the buckets that are full again, because a new one would be equal.
func (l *Limit) dropFullBuckets(now time.Time) {
	for p, b := range l.buckets {
		if b.refused.Calls == 0 && b.tokens+l.c.Rate*now.Sub(b.at).Seconds() >= l.c.Burst {
			delete(l.buckets, p)
		}
	}
}

// scheduleWrite starts the timer for write, unless it is already running. The caller must hold mu.
func (l *Limit) scheduleWrite(b *bucket) {
	if b.due != nil || l.closed {
		return
	}
	l.writing.Add(1)
	b.due = time.AfterFunc(l.c.Every, func() {
		defer l.writing.Done()
		l.writeSuppressed(b)
	})
}

// writeSuppressed writes the entry for the refused calls. If that fails, they are counted in the next entry.
func (l *Limit) writeSuppressed(b *bucket) {
	l.mu.Lock()
	s := b.refused
	b.refused, b.due = suppressedCalls{}, nil
	l.mu.Unlock()
	if s.Calls == 0 {
		return
	}
	err := l.c.Note(context.Background(), suppressedEvent, s)
	if err == nil {
		return
	}
	l.c.Log.Error("cannot record refused calls", "agent", s.Agent, "calls", s.Calls, "err", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	later := b.refused
	b.refused = s
	if b.refused.Calls += later.Calls; later.Calls > 0 {
		b.refused.To = later.To
	}
	l.scheduleWrite(b)
}

// Close writes the entries that are still pending.
func (l *Limit) Close() {
	l.mu.Lock()
	l.closed = true
	var open []*bucket
	for _, b := range l.buckets {
		if b.due != nil && b.due.Stop() {
			l.writing.Done()
		}
		open = append(open, b)
	}
	l.mu.Unlock()
	l.writing.Wait()
	for _, b := range open {
		l.writeSuppressed(b)
	}
}
