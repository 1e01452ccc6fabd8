package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"bailey"
)

// SuppressedEvent is the kind of the entry that stands for calls which a [Limit] refused.
const SuppressedEvent = "suppressed"

// Suppressed is the data of such an entry: one a minute for each principal that asked too often.
type Suppressed struct {
	Agent  string    `json:"agent"`
	Person string    `json:"person,omitempty"`
	Door   string    `json:"door,omitempty"`
	Calls  int       `json:"calls"`
	From   time.Time `json:"from"` // the first of them
	To     time.Time `json:"to"`   // the last
}

// LimitConfig says how often a principal, an agent and the person it acts for, may call through one door, so that an
// agent in a loop leaves the person's own command line alone. Gate and Note have to be set.
type LimitConfig struct {
	Gate  Gate
	Note  func(ctx context.Context, kind string, data any) error
	Rate  float64          // calls a second that go on for ever; 0 is 200
	Burst float64          // calls at once; 0 is 2,000
	Every time.Duration    // between two entries for one principal; 0 is a minute
	Now   func() time.Time // nil is time.Now
	Log   *slog.Logger     // nil is silent
}

// Limit stands before the spine. A call beyond a principal's rate goes no further and has no receipt of its own, so
// that an agent in a loop fills no disk: one counted entry a minute stands for all of them.
type Limit struct {
	Gate
	c LimitConfig

	mu      sync.Mutex
	buckets map[principal]*bucket // guarded by mu
	closed  bool                  // guarded by mu
	writing sync.WaitGroup        // writes that are due or under way
	total   uint64                // calls refused; guarded by mu
}

type principal struct{ agent, person, door string }

type bucket struct {
	tokens  float64
	at      time.Time // when tokens was right
	refused Suppressed
	due     *time.Timer // writes refused; nil while there is nothing
}

// most principals are known one by one; further ones share a bucket, so that inventing names helps nobody.
const most = 1024

// NewLimit returns c.Gate behind a limit.
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
	return &Limit{Gate: c.Gate, c: c, buckets: map[principal]*bucket{}}
}

// Do carries a call, unless its principal has asked too often.
func (l *Limit) Do(ctx context.Context, call bailey.Call) bailey.Result {
	if l.take(principal{call.Principal.Agent, call.Principal.Person, call.Door}) {
		return l.Gate.Do(ctx, call)
	}
	return bailey.Result{Status: bailey.Refused, DryRun: call.DryRun, Err: &bailey.Error{
		Kind:    bailey.Denied,
		Message: fmt.Sprintf("too many calls: more than %g a second by one agent, after %g at once", l.c.Rate, l.c.Burst),
		Hint:    "call again in a second, less often; the call was not made and has no receipt",
	}}
}

// take takes a token of the principal's, or counts the call as refused.
func (l *Limit) take(p principal) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.c.Now()
	p, b := l.bucket(p, now)
	b.tokens = min(l.c.Burst, b.tokens+l.c.Rate*max(0, now.Sub(b.at).Seconds()))
	b.at = now
	if b.tokens >= 1 {
		b.tokens--
		return true
	}
	if b.refused.Calls == 0 {
		b.refused = Suppressed{Agent: p.agent, Person: p.person, Door: p.door, From: now.UTC()}
	}
	l.total++
	b.refused.Calls++
	b.refused.To = now.UTC()
	l.schedule(b)
	return false
}

// Refused returns how many calls were refused so far.
func (l *Limit) Refused() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// bucket returns the principal's bucket, and under which name.
func (l *Limit) bucket(p principal, now time.Time) (principal, *bucket) {
	if b := l.buckets[p]; b != nil {
		return p, b
	}
	if len(l.buckets) >= most {
		l.forget(now)
	}
	if len(l.buckets) >= most {
		p = principal{agent: "others"} // through no door: nobody is called that
		if b := l.buckets[p]; b != nil {
			return p, b
		}
	}
	b := &bucket{tokens: l.c.Burst, at: now}
	l.buckets[p] = b
	return p, b
}

// forget drops the buckets that are full again by now: a new one is no different.
func (l *Limit) forget(now time.Time) {
	for p, b := range l.buckets {
		if b.refused.Calls == 0 && b.tokens+l.c.Rate*now.Sub(b.at).Seconds() >= l.c.Burst {
			delete(l.buckets, p)
		}
	}
}

// schedule lets write come in a while, unless it will come already. The caller holds mu.
func (l *Limit) schedule(b *bucket) {
	if b.due != nil || l.closed {
		return
	}
	l.writing.Add(1)
	b.due = time.AfterFunc(l.c.Every, func() {
		defer l.writing.Done()
		l.write(b)
	})
}

// write leaves the entry that stands for what was refused. What cannot be written now counts among the next.
func (l *Limit) write(b *bucket) {
	l.mu.Lock()
	s := b.refused
	b.refused, b.due = Suppressed{}, nil
	l.mu.Unlock()
	if s.Calls == 0 {
		return
	}
	err := l.c.Note(context.Background(), SuppressedEvent, s)
	if err == nil {
		return
	}
	l.c.Log.Error("refused calls are not recorded", "agent", s.Agent, "calls", s.Calls, "err", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	later := b.refused
	b.refused = s
	if b.refused.Calls += later.Calls; later.Calls > 0 {
		b.refused.To = later.To
	}
	l.schedule(b)
}

// Close writes what is still to be said of refused calls.
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
		l.write(b)
	}
}
