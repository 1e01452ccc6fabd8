package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
	"bailey/internal/wire"
)

// recall reads from a ledger's end until it knows what is remembered: to the newest lore that was written down whole, or
// to the beginning. It is a [ledger.Recaller].
type recall struct {
	folds    map[string]fold
	segment  []event // of the one that is being read
	base     lore    // behind which events stand
	events   []event // in the segments that were read, in their order
	segments int     // that were read
	found    bool
}

func newRecall() *recall { return &recall{folds: folds()} }

// Read takes an entry. What stands before a lore is in it.
func (r *recall) Read(e audit.Entry) {
	if _, ok := r.folds[e.Kind]; !ok && e.Kind != memoryEvent {
		return
	}
	r.segment = append(r.segment, event{e.Seq, e.Kind, e.Data})
	if base, ok := readBack(r.folds, r.segment); ok {
		r.base, r.segment, r.found = base, nil, true
	}
}

// Enough puts the segment before those that were read. A lore that lies across two segments is not used: those before
// hold another, or all that it says.
func (r *recall) Enough() bool {
	r.events, r.segment = append(r.segment, r.events...), nil
	r.segments++
	return r.found
}

// lore is what is remembered.
func (r *recall) lore() (lore, error) {
	l := r.base
	return l, l.take(r.folds, r.events)
}

// recalled reads what a gateway would remember from the ledger of a home without one.
func recalled(home wire.Home) (lore, error) {
	r := newRecall()
	if err := ledger.Backward(home.Ledger(), r); err != nil {
		return lore{}, err
	}
	return r.lore()
}

// scribe stands between all that note and the ledger, and remembers what they noted. When a segment began it writes that
// down, so that a start reads the last segment, or a few after a kill, however old the ledger is.
type scribe struct {
	ledger *ledger.Log
	log    *slog.Logger
	folds  map[string]fold

	mu   sync.Mutex // held while an event that is remembered is noted, and while the lore is: none stands between
	lore lore       // guarded by mu
}

// openScribe reads what is remembered of a ledger that nobody has written to since it was opened; r has read its last
// segment.
func openScribe(l *ledger.Log, r *recall, log *slog.Logger) (*scribe, error) {
	var err error
	if !r.Enough() {
		err = l.Before(r)
	}
	s := &scribe{ledger: l, log: log, folds: r.folds}
	if err == nil {
		s.lore, err = r.lore()
	}
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "what operators did cannot be read from the ledger", Hint: "bailey audit verify", Err: err}
	}
	if r.segments > 1 {
		s.write()
	}
	return s, nil
}

// note records an event, durably.
func (s *scribe) note(ctx context.Context, kind string, data any) error {
	return s.noteCaged(ctx, kind, data, nil)
}

// noteCaged is note for an event of a cage, whose plan the ledger keeps.
func (s *scribe) noteCaged(ctx context.Context, kind string, data any, cage *bailey.Cage) error {
	fold, ok := s.folds[kind]
	if !ok {
		return s.ledger.NoteCaged(ctx, kind, data, cage)
	}
	raw, err := json.Marshal(data)
	if err == nil {
		err = fold(new(lore), raw) // it can be taken in once it is durable
	}
	if err != nil {
		return &bailey.Error{Kind: bailey.Internal, Message: "the event " + kind + " could not be remembered", Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ledger.NoteCaged(ctx, kind, json.RawMessage(raw), cage); err != nil {
		return err
	}
	return fold(&s.lore, raw)
}

// run writes the lore down when a segment began, until ctx ends.
func (s *scribe) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.ledger.Rotated():
			s.write()
		}
	}
}

// write notes the lore. Without it the next start reads further back, and finds the same.
func (s *scribe) write() {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, err := s.lore.parts(s.folds)
	for _, p := range parts {
		if err == nil {
			err = s.ledger.Note(context.Background(), memoryEvent, p)
		}
	}
	if err != nil {
		s.log.Warn("what is remembered is not written down: the next start reads more of the ledger", "err", err)
	}
	select {
	case <-s.ledger.Rotated(): // by the parts themselves: where a segment holds less than they are, there would be no end
	default:
	}
}
