package egress

import (
	"sync"
	"time"

	"bailey"
)

// The kinds of an [Event].
const (
	KindClosed  = bailey.EgressClosed
	KindRefused = bailey.EgressRefused
	KindMisused = bailey.EgressMisused
	KindFailed  = bailey.EgressFailed
)

type (
	// Event is one thing that came to pass, for the receipt.
	Event = bailey.EgressEvent
	// Totals are all events of a call.
	Totals = bailey.EgressTotals
)

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
