package store

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"bailey"
)

// An Account is a person who can sign in.
type Account struct {
	ID       string    `json:"id"`
	Email    string    `json:"email"` // in lower case, unique
	Name     string    `json:"name"`
	Password string    `json:"-"` // bcrypt
	Created  time.Time `json:"created"`
}

// A Session is a signed-in browser.
type Session struct {
	ID      string    `json:"id"`
	Account string    `json:"-"`
	Created time.Time `json:"created"`
	Seen    time.Time `json:"seen"`
	Expires time.Time `json:"expires"`
	Address string    `json:"address"`
	Client  string    `json:"client"`
}

const accountColumns = "a.id, a.email, a.name, a.password, a.created"

func scanAccount(scan func(...any) error) (a Account, err error) {
	var created int64
	err = scan(&a.ID, &a.Email, &a.Name, &a.Password, &created)
	a.Created = fromMicros(created)
	return a, err
}

// Setup creates the first account and its organisation. hash must be the one given to [Store.OfferSetup], which it uses
// up. Otherwise the error is NotFound.
func (s *Store) Setup(ctx context.Context, hash string, a Account, organisation string) (Account, Organisation, error) {
	var o Organisation
	err := s.inTransaction(ctx, func(tx *sql.Tx) (err error) {
		if err := s.changeOne(ctx, tx, "setup link", "DELETE FROM settings WHERE name = 'setup' AND value = ?",
			hash); err != nil {
			return err
		}
		if a, err = s.addAccount(ctx, tx, a); err != nil {
			return err
		}
		o, err = s.addOrganisation(ctx, tx, organisation, a.ID)
		return err
	})
	return a, o, err
}

// OfferSetup stores the hash of a new setup link, unless there is an account. It reports whether it did.
func (s *Store) OfferSetup(ctx context.Context, hash string) (bool, error) {
	offered := false
	err := s.inTransaction(ctx, func(tx *sql.Tx) error {
		found, err := queryRows(ctx, s, tx, scanAccount, "SELECT "+accountColumns+" FROM accounts a LIMIT 1")
		if err != nil || len(found) > 0 {
			return err
		}
		offered = true
		_, err = s.execChange(ctx, tx, "INSERT INTO settings (name, value) VALUES ('setup', ?) "+
			"ON CONFLICT (name) DO UPDATE SET value = excluded.value", hash)
		return err
	})
	return offered, err
}

func (s *Store) addAccount(ctx context.Context, r runner, a Account) (Account, error) {
	a.ID, a.Email, a.Created = newID("u-"), strings.ToLower(a.Email), s.now()
	_, err := s.execChange(ctx, r, "INSERT INTO accounts (id, email, name, password, created) VALUES (?, ?, ?, ?, ?)",
		a.ID, a.Email, a.Name, a.Password, toMicros(a.Created))
	if bailey.KindOf(err) == bailey.Conflict {
		err = bailey.Conflict.Wrap(err, "an account with this address exists", "sign in with it")
	}
	return a, err
}

// AccountByEmail finds an account. Upper and lower case are the same.
func (s *Store) AccountByEmail(ctx context.Context, email string) (Account, error) {
	return oneRow(ctx, s, s.db, "account", scanAccount, "SELECT "+accountColumns+" FROM accounts a WHERE a.email = ?",
		strings.ToLower(email))
}

// SetPassword changes the password and ends every session of the account but keep, which may be "".
func (s *Store) SetPassword(ctx context.Context, account, bcrypt, keep string) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error {
		if err := s.changeOne(ctx, tx, "account", "UPDATE accounts SET password = ? WHERE id = ?", bcrypt,
			account); err != nil {
			return err
		}
		_, err := s.execChange(ctx, tx, "DELETE FROM sessions WHERE account = ? AND id <> ?", account, keep)
		return err
	})
}

// AddSession stores a session of n.Account under the hash of its token. Sessions that have expired are removed.
func (s *Store) AddSession(ctx context.Context, n Session, hash string) (Session, error) {
	n.ID, n.Created = newID("ws-"), s.now()
	n.Seen = n.Created
	err := s.inTransaction(ctx, func(tx *sql.Tx) error {
		if _, err := s.execChange(ctx, tx, "DELETE FROM sessions WHERE expires <= ?", toMicros(n.Created)); err != nil {
			return err
		}
		_, err := s.execChange(ctx, tx,
			"INSERT INTO sessions (id, account, hash, created, seen, expires, address, client) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			n.ID, n.Account, hash, toMicros(n.Created), toMicros(n.Seen), toMicros(n.Expires), n.Address, n.Client)
		return err
	})
	return n, err
}

// SessionIdle is how long a session lasts without a request.
const SessionIdle = 72 * time.Hour

const sessionColumns = "s.id, s.account, s.created, s.seen, s.expires, s.address, s.client"

func scanSession(scan func(...any) error) (n Session, err error) {
	var created, seen, expires int64
	err = scan(&n.ID, &n.Account, &created, &seen, &expires, &n.Address, &n.Client)
	n.Created, n.Seen, n.Expires = fromMicros(created), fromMicros(seen), fromMicros(expires)
	return n, err
}

// SessionByHash finds a session that has not expired, and its account. If used is true, it records that the session was
// used, at most once a minute.
func (s *Store) SessionByHash(ctx context.Context, hash string, used bool) (Session, Account, error) {
	now := s.now()
	n, err := oneRow(ctx, s, s.db, "session", scanSession,
		"SELECT "+sessionColumns+" FROM sessions s WHERE s.hash = ? AND s.expires > ? AND s.seen > ?", hash, toMicros(now),
		toMicros(now.Add(-SessionIdle)))
	if err != nil {
		return n, Account{}, err
	}
	a, err := oneRow(ctx, s, s.db, "account", scanAccount,
		"SELECT "+accountColumns+" FROM accounts a WHERE a.id = ?", n.Account)
	if err == nil && used && now.Sub(n.Seen) >= time.Minute {
		_, err = s.execChange(ctx, s.db, "UPDATE sessions SET seen = ? WHERE id = ?", toMicros(now), n.ID)
	}
	return n, a, err
}

// Sessions lists the sessions of an account that have not expired, the newest first.
func (s *Store) Sessions(ctx context.Context, account string) ([]Session, error) {
	return queryRows(ctx, s, s.db, scanSession, "SELECT "+sessionColumns+
		" FROM sessions s WHERE s.account = ? AND s.expires > ? AND s.seen > ? ORDER BY s.created DESC, s.id",
		account, toMicros(s.now()), toMicros(s.now().Add(-SessionIdle)))
}

// EndSession ends a session of an account.
func (s *Store) EndSession(ctx context.Context, account, session string) error {
	return s.changeOne(ctx, s.db, "session", "DELETE FROM sessions WHERE account = ? AND id = ?", account, session)
}
