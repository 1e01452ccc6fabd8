// Package applied holds values that operators apply, such as rules, hooks and settings. The order of a change is here
// alone: first the ledger has the record, then the value is in force.
package applied

import (
	"sync"
	"sync/atomic"
)

// Store holds the value in force. Readers never wait for a change. The zero Store holds the zero value.
type Store[T any] struct {
	// Use, if set, hands a value to other parts that need a copy of it. It is called after the value has changed, and
	// before another change begins.
	Use func(T)

	turn sync.Mutex // held during a change
	now  atomic.Pointer[T]
}

// Load returns the value in force. It must not be modified.
func (s *Store[T]) Load() (now T) {
	if p := s.now.Load(); p != nil {
		now = *p
	}
	return now
}

// Restore puts a value into force that the ledger has already, without a record.
func (s *Store[T]) Restore(value T) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.replaceWith(value)
}

// Apply changes the value. propose compares the value in force with the one that the operator was shown, and returns
// the next value and the function that records the change durably. If propose or record fails, or if record is nil
// because nothing is to change, the value in force stays. Changes happen one at a time.
func (s *Store[T]) Apply(propose func(now T) (next T, record func() error, err error)) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	next, record, err := propose(s.Load())
	if err != nil || record == nil {
		return err
	}
	if err := record(); err != nil {
		return err
	}
	s.replaceWith(next)
	return nil
}

func (s *Store[T]) replaceWith(value T) {
	s.now.Store(&value)
	if s.Use != nil {
		s.Use(value)
	}
}
