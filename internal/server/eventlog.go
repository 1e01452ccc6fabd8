package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
)

// replay reads a ledger backwards until it can rebuild the lore: to the newest complete snapshot, or to the beginning.
// It is a [ledger.Recaller].
type replay struct {
	folds    map[string]applyEntry
	segment  []stateEvent // of the current segment
	base     State        // snapshot that precedes events
	events   []stateEvent // in ledger order, from the segments read so far
	segments int          // number of segments read
	found    bool
}

func newReplay() *replay { return &replay{folds: entryHandlers()} }

// Read takes an entry. A snapshot replaces the entries before it.
func (r *replay) Read(e audit.Entry) {
	if _, ok := r.folds[e.Kind]; !ok && e.Kind != memoryEvent {
		return
	}
	r.segment = append(r.segment, stateEvent{e.Seq, e.Kind, e.Data})
	if base, ok := decodeState(r.folds, r.segment); ok {
		r.base, r.segment, r.found = base, nil, true
	}
}

// Enough puts the segment before those already read. A snapshot that spans two segments is not used: the older ones
// contain another snapshot, or all the events.
func (r *replay) Enough() bool {
	r.events, r.segment = append(r.segment, r.events...), nil
	r.segments++
	return r.found
}

// rebuildState returns the rebuilt lore.
func (r *replay) rebuildState() (State, error) {
	l := r.base
	return l, l.applyEvents(r.folds, r.events)
}

// Replayed rebuilds the lore from the ledger of a home in which no gateway is running.
func Replayed(home localapi.Home) (State, error) {
	r := newReplay()
	if err := ledger.Backward(home.Ledger(), r); err != nil {
		return State{}, err
	}
	return r.rebuildState()
}

// eventLog writes all events to the ledger and folds them into the lore. When a new segment begins, it writes a snapshot.
// So a start reads only the last segment, or a few after a kill, no matter how old the ledger is.
type eventLog struct {
	ledger *ledger.Log
	log    *slog.Logger
	folds  map[string]applyEntry

	// held while a folded event or a snapshot is written, so that no event stands between the parts of a snapshot
	mu   sync.Mutex
	lore State // guarded by mu
}

// openScribe rebuilds the lore of a ledger. r must have read its last segment, and the ledger must not have been
// written to since it was opened.
func openScribe(l *ledger.Log, r *replay, log *slog.Logger) (*eventLog, error) {
	var err error
	if !r.Enough() {
		err = l.Before(r)
	}
	s := &eventLog{ledger: l, log: log, folds: r.folds}
	if err == nil {
		s.lore, err = r.rebuildState()
	}
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot read operator events from the ledger",
			"run bailey audit verify")
	}
	if r.segments > 1 {
		s.writeSnapshot()
	}
	return s, nil
}

// recordEvent records an event durably.
func (s *eventLog) recordEvent(ctx context.Context, kind string, data any) error {
	return s.noteCaged(ctx, kind, data, nil)
}

// noteCaged is like note, for an event with a cage, whose plan the ledger keeps.
func (s *eventLog) noteCaged(ctx context.Context, kind string, data any, cage *bailey.Cage) error {
	fold, ok := s.folds[kind]
	if !ok {
		return s.ledger.NoteCaged(ctx, kind, data, cage)
	}
	raw, err := json.Marshal(data)
	if err == nil {
		err = fold(new(State), raw) // check before writing that the event can be folded
	}
	if err != nil {
		return bailey.Internal.Wrap(err, "the event "+kind+" could not be recorded", "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ledger.NoteCaged(ctx, kind, json.RawMessage(raw), cage); err != nil {
		return err
	}
	return fold(&s.lore, raw)
}

// writeSnapshots writes a snapshot whenever a segment begins, until ctx ends.
func (s *eventLog) writeSnapshots(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.ledger.Rotated():
			s.writeSnapshot()
		}
	}
}

// writeSnapshot writes a snapshot. If it fails, the next start reads more, with the same result.
func (s *eventLog) writeSnapshot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, err := s.lore.snapshotParts(s.folds)
	for _, p := range parts {
		if err == nil {
			err = s.ledger.Note(context.Background(), memoryEvent, p)
		}
	}
	if err != nil {
		s.log.Warn("cannot save the state: the next start reads more of the ledger", "err", err)
	}
	select {
	// ignore a rotation by the parts themselves: if they exceed a segment, run would never stop writing
	case <-s.ledger.Rotated():
	default:
	}
}
