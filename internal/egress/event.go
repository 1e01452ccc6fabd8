package egress

import (
	"sync"
	"time"
)

// The kinds of an [Event].
const (
	KindClosed  = "closed"  // a connection that was allowed has ended
	KindRefused = "refused" // something was not allowed
	KindMisused = "misused" // a placeholder was sent where its secret does not go
	KindFailed  = "failed"  // something was allowed and did not come about
)

// Event is one thing that came to pass, for the receipt. What comes from the cage is quoted in it.
type Event struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Via     string    `json:"via"`               // connect, http, socks, forward, tls
	Target  string    `json:"target,omitempty"`  // host:port; "" where nobody could tell
	Address string    `json:"address,omitempty"` // that was connected to
	Reason  string    `json:"reason,omitempty"`
	Hint    string    `json:"hint,omitempty"`
	Up      int64     `json:"up,omitempty"`   // bytes out of the cage
	Down    int64     `json:"down,omitempty"` // and into it
}

// Totals are all events of a call, those included that were too many to be told.
type Totals struct {
	Connections int64 `json:"connections"` // that were allowed
	Refused     int64 `json:"refused"`     // and misused
	Failed      int64 `json:"failed"`
	Up          int64 `json:"up"`
	Down        int64 `json:"down"`
	Untold      int64 `json:"untold"` // events that nobody was told of
}

// recorder tells events in their order. Refusals have a bound of their own: connections that are allowed cannot be made to
// push them out.
type recorder struct {
	tell func(Event)
	most int

	mu       sync.Mutex
	sum      Totals
	bad, all int // told so far
}

func (r *recorder) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Time = time.Now()
	told := &r.all
	switch e.Kind {
	case KindClosed:
		r.sum.Connections++
	case KindFailed:
		r.sum.Failed++
	default:
		r.sum.Refused++
		told = &r.bad
	}
	r.sum.Up += e.Up
	r.sum.Down += e.Down
	if *told >= r.most {
		r.sum.Untold++
		return
	}
	*told++
	if r.tell != nil {
		r.tell(e)
	}
}

// refused notes a refusal and gives it back.
func (r *recorder) refused(via, target string, ref *Refusal) *Refusal {
	r.add(Event{Kind: ref.kind, Via: via, Target: target, Reason: ref.why, Hint: ref.hint})
	return ref
}

// Totals are the sums so far; they are whole once Serve and Forward have returned.
func (p *Proxy) Totals() Totals {
	p.record.mu.Lock()
	defer p.record.mu.Unlock()
	return p.record.sum
}
