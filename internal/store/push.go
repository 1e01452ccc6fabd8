package store

import (
	"context"
	"database/sql"
	"time"

	"bailey"
)

// A PushSubscription is a browser that is told of questions. Whoever knows the endpoint can send nothing there without the
// server's key.
type PushSubscription struct {
	ID       string    `json:"id"`
	Account  string    `json:"-"`
	Endpoint string    `json:"-"`
	P256DH   string    `json:"-"`
	Auth     string    `json:"-"`
	Client   string    `json:"client"` // User-Agent, shortened
	Created  time.Time `json:"created"`
}

const pushColumns = "p.id, p.account, p.endpoint, p.p256dh, p.auth, p.client, p.created"

func scanPush(scan func(...any) error) (p PushSubscription, err error) {
	var created int64
	err = scan(&p.ID, &p.Account, &p.Endpoint, &p.P256DH, &p.Auth, &p.Client, &created)
	p.Created = fromMicros(created)
	return p, err
}

// mostPush is how many browsers of an account are told.
const mostPush = 10

// AddPushSubscription stores a browser. A browser has one subscription, and it belongs to the person who signed in last. One
// more than an account may have is a Conflict.
func (s *Store) AddPushSubscription(ctx context.Context, p PushSubscription) (PushSubscription, error) {
	p.ID, p.Created = newID("p-"), s.now()
	err := s.inTransaction(ctx, func(tx *sql.Tx) error {
		if _, err := s.execChange(ctx, tx, "DELETE FROM push_subscriptions WHERE endpoint = ?", p.Endpoint); err != nil {
			return err
		}
		has, err := queryRows(ctx, s, tx, scanPush, "SELECT "+pushColumns+" FROM push_subscriptions p WHERE p.account = ?", p.Account)
		if err != nil {
			return err
		}
		if len(has) >= mostPush {
			return bailey.Conflict.Errorf("remove one first", "an account has at most %d devices with notices", mostPush)
		}
		_, err = s.execChange(ctx, tx, "INSERT INTO push_subscriptions (id, account, endpoint, p256dh, auth, client, created) "+
			"VALUES (?, ?, ?, ?, ?, ?, ?)", p.ID, p.Account, p.Endpoint, p.P256DH, p.Auth, p.Client, toMicros(p.Created))
		return err
	})
	return p, err
}

// PushSubscriptions lists the browsers of an account, the oldest first.
func (s *Store) PushSubscriptions(ctx context.Context, account string) ([]PushSubscription, error) {
	return queryRows(ctx, s, s.db, scanPush,
		"SELECT "+pushColumns+" FROM push_subscriptions p WHERE p.account = ? ORDER BY p.created, p.id", account)
}

// PushSubscriptionsOf lists the browsers of all members of an organisation.
func (s *Store) PushSubscriptionsOf(ctx context.Context, organisation string) ([]PushSubscription, error) {
	return queryRows(ctx, s, s.db, scanPush, "SELECT "+pushColumns+" FROM push_subscriptions p "+
		"JOIN members m ON m.account = p.account WHERE m.organisation = ? ORDER BY p.created, p.id LIMIT 10000", organisation)
}

// RemovePushSubscription removes a browser of an account.
func (s *Store) RemovePushSubscription(ctx context.Context, account, id string) error {
	return s.changeOne(ctx, s.db, "device", "DELETE FROM push_subscriptions WHERE account = ? AND id = ?", account, id)
}

// PushKeySealedAs is the name to which the sealed key of web push is bound.
const PushKeySealedAs = "settings/push"

// PushKey returns the sealed key of web push, or "" if there is none.
func (s *Store) PushKey(ctx context.Context) (string, error) {
	return s.pushKeyIn(ctx, s.db)
}

func (s *Store) pushKeyIn(ctx context.Context, r runner) (string, error) {
	all, err := queryRows(ctx, s, r, scanText, "SELECT value FROM settings WHERE name = 'push'")
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0], nil
}

// AddPushKey stores a sealed key, unless there is one, and returns the stored one.
func (s *Store) AddPushKey(ctx context.Context, sealed string) (string, error) {
	if _, err := s.execChange(ctx, s.db, "INSERT INTO settings (name, value) VALUES ('push', ?) "+
		"ON CONFLICT (name) DO NOTHING", sealed); err != nil {
		return "", err
	}
	return s.PushKey(ctx)
}

// resealPushKey replaces the sealed key, and reports whether there is one.
func (s *Store) resealPushKey(ctx context.Context, tx *sql.Tx, f func(name, sealed string) (string, error)) (bool, error) {
	sealed, err := s.pushKeyIn(ctx, tx)
	if err != nil || sealed == "" {
		return false, err
	}
	if sealed, err = f(PushKeySealedAs, sealed); err != nil {
		return false, err
	}
	return true, s.changeOne(ctx, tx, "key", "UPDATE settings SET value = ? WHERE name = 'push'", sealed)
}
