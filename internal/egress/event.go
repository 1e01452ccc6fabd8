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
	// Event is one occurrence, for the receipt.
	Event = bailey.EgressEvent
	// Totals are the sums of all events of a call.
	Totals = bailey.EgressTotals
)

// recorder reports events in order. Refusals have a limit of their own, so that allowed connections cannot displace
// them.
type recorder struct {
	tell func(Event)
	most int

	mu       sync.Mutex
	sum      Totals
	bad, all int // reported so far
}

func (r *recorder) recordEvent(e Event) {
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

// recordRefusal records a refusal and returns it.
func (r *recorder) recordRefusal(via, target string, ref *Refusal) *Refusal {
	r.recordEvent(Event{Kind: ref.kind, Via: via, Target: target, Reason: ref.why, Hint: ref.hint})
	return ref
}

// Totals returns the sums so far. They are complete when Serve and Forward have returned.
func (p *Proxy) Totals() Totals {
	p.record.mu.Lock()
	defer p.record.mu.Unlock()
	return p.record.sum
}
