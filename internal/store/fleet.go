package store

import (
	"context"
	"database/sql"
	"math"
	"time"

	"bailey"
)

// Tx is a transaction. Methods with a Tx are parts of one change.
type Tx struct{ tx *sql.Tx }

// Change runs f in a transaction, which is repeated if another one was in its way.
func (s *Store) Change(ctx context.Context, f func(tx *Tx) error) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error { return f(&Tx{tx}) })
}

// HostByHash finds the host of a token that has not expired.
func (s *Store) HostByHash(ctx context.Context, hash string) (Host, error) {
	return oneRow(ctx, s, s.db, "host", scanHost,
		"SELECT "+hostColumns+" FROM hosts WHERE hash = ? AND expires > ?", hash, toMicros(s.now()))
}

// HostByID finds a host that may connect.
func (s *Store) HostByID(ctx context.Context, id string) (Host, error) {
	return oneRow(ctx, s, s.db, "host", scanHost,
		"SELECT "+hostColumns+" FROM hosts WHERE id = ? AND expires > ?", id, toMicros(s.now()))
}

// RegisterHost records what a host says about itself when it connects. With another queue than before, its events begin
// anew after floor. Events up to floor are gone from the queue: if they are not here either, the database was restored.
func (s *Store) RegisterHost(ctx context.Context, id, version, registration, queue string, floor uint64) (h Host, err error) {
	err = s.inTransaction(ctx, func(tx *sql.Tx) error {
		if h, err = oneRow(ctx, s, tx, "host", scanHost, "SELECT "+hostColumns+" FROM hosts WHERE id = ?", id); err != nil {
			return err
		}
		if h.Queue != queue {
			h.Queue, h.Acked = queue, 0
		}
		h.Acked = max(h.Acked, floor)
		h.Version, h.Registration, h.Used = version, registration, s.now()
		return s.changeOne(ctx, tx, "host",
			"UPDATE hosts SET version = ?, registration = ?, queue = ?, acked = ?, used = ? WHERE id = ?",
			version, registration, queue, int64(h.Acked), toMicros(h.Used), id)
	})
	return h, err
}

// SeeHost records that a host lives. If its token has ended, the error is NotFound.
func (s *Store) SeeHost(ctx context.Context, id string) error {
	now := toMicros(s.now())
	return s.changeOne(ctx, s.db, "host", "UPDATE hosts SET used = ? WHERE id = ? AND expires > ?", now, id, now)
}

// AddEvent records that an event of a host is stored, in the transaction that stores what it says. known means that it
// was stored before. An event that does not follow the last one is an error: something is lost.
func (s *Store) AddEvent(ctx context.Context, tx *Tx, host, queue string, seq uint64) (known bool, err error) {
	if seq > math.MaxInt64 {
		return false, bailey.Invalid.New("the number of the event is too high", "")
	}
	n, err := s.execChange(ctx, tx.tx, "UPDATE hosts SET acked = ? WHERE id = ? AND queue = ? AND acked = ?",
		int64(seq), host, queue, int64(seq)-1)
	if err != nil || n == 1 {
		return false, err
	}
	h, err := oneRow(ctx, s, tx.tx, "host", scanHost, "SELECT "+hostColumns+" FROM hosts WHERE id = ?", host)
	if err != nil {
		return false, err
	}
	if h.Queue != queue || seq > h.Acked {
		return false, bailey.Conflict.Errorf("connect again", "event %d does not follow the last one, %d", seq, h.Acked)
	}
	return true, nil
}

// A Command is sent to a host until it has answered, or until the deadline.
type Command struct {
	ID, Host, Kind    string
	Body              string // JSON
	Created, Deadline time.Time
	Done              time.Time // zero while there is no result
	Result            string    // JSON
	Fault             string    // JSON, or "" without an error
}

const commandColumns = "id, host, kind, body, created, deadline, done, result, fault"

func scanCommand(scan func(...any) error) (c Command, err error) {
	var created, deadline, done int64
	err = scan(&c.ID, &c.Host, &c.Kind, &c.Body, &created, &deadline, &done, &c.Result, &c.Fault)
	c.Created, c.Deadline, c.Done = fromMicros(created), fromMicros(deadline), fromMicros(done)
	return c, err
}

// AddCommand stores a command for a host of an organisation.
func (s *Store) AddCommand(ctx context.Context, organisation string, c Command) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error {
		_, err := oneRow(ctx, s, tx, "host", scanHost,
			"SELECT "+hostColumns+" FROM hosts WHERE id = ? AND organisation = ?", c.Host, organisation)
		if err != nil {
			return err
		}
		_, err = s.execChange(ctx, tx, "INSERT INTO commands ("+commandColumns+") VALUES (?, ?, ?, ?, ?, ?, 0, '', '')",
			c.ID, c.Host, c.Kind, c.Body, toMicros(s.now()), toMicros(c.Deadline))
		return err
	})
}

// mostWaiting limits the commands that a host gets when it connects.
const mostWaiting = 200

// WaitingCommands lists the commands of a host that have no result and whose deadline has not passed, the oldest first,
// at most mostWaiting.
func (s *Store) WaitingCommands(ctx context.Context, host string) ([]Command, error) {
	return queryRows(ctx, s, s.db, scanCommand, "SELECT "+commandColumns+
		" FROM commands WHERE host = ? AND done = 0 AND deadline > ? ORDER BY created, id LIMIT ?", host,
		toMicros(s.now()), mostWaiting)
}

// CommandByID finds a command.
func (s *Store) CommandByID(ctx context.Context, id string) (Command, error) {
	return oneRow(ctx, s, s.db, "command", scanCommand, "SELECT "+commandColumns+" FROM commands WHERE id = ?", id)
}

// FinishCommand stores the result of a command of a host. The first result stays. If the host has no such command, the
// error is NotFound.
func (s *Store) FinishCommand(ctx context.Context, host, id, result, fault string) error {
	n, err := s.execChange(ctx, s.db, "UPDATE commands SET done = ?, result = ?, fault = ? WHERE id = ? AND host = ? AND done = 0",
		toMicros(s.now()), result, fault, id, host)
	if err != nil || n == 1 {
		return err
	}
	_, err = oneRow(ctx, s, s.db, "command", scanCommand,
		"SELECT "+commandColumns+" FROM commands WHERE id = ? AND host = ?", id, host)
	return err
}

// ForgetCommands removes commands whose deadline passed before a time.
func (s *Store) ForgetCommands(ctx context.Context, before time.Time) error {
	_, err := s.execChange(ctx, s.db, "DELETE FROM commands WHERE deadline < ?", toMicros(before))
	return err
}
