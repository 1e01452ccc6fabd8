package store

import (
	"context"
	"time"
)

// A Token lets a program act for an account in one organisation, with at most its role.
type Token struct {
	ID           string    `json:"id"`
	Organisation string    `json:"-"`
	Account      string    `json:"account"`
	Name         string    `json:"name"`
	Role         Role      `json:"-"`
	Created      time.Time `json:"created"`
	Used         time.Time `json:"used,omitzero"`
	Expires      time.Time `json:"expires"`
}

// Kinds of hosts.
const (
	Gateway     = "gateway"
	SandboxHost = "host"
)

// A Host is a gateway or a daemon of sandboxes that may connect.
type Host struct {
	ID           string    `json:"id"`
	Organisation string    `json:"-"`
	Name         string    `json:"name"` // unique in the organisation
	Kind         string    `json:"kind" enum:"gateway,host"`
	Created      time.Time `json:"created"`
	Used         time.Time `json:"used,omitzero"`
	Expires      time.Time `json:"expires"`
	Version      string    `json:"version,omitempty"` // of the program, from its last registration
	Registration string    `json:"-"`                 // JSON
	Queue        string    `json:"-"`                 // its queue of events
	Acked        uint64    `json:"-"`                 // the last event of that queue
}

// AddToken stores a token under its hash.
func (s *Store) AddToken(ctx context.Context, t Token, hash string) (Token, error) {
	t.ID, t.Created = newID("t-"), s.now()
	_, err := s.execChange(ctx, s.db,
		"INSERT INTO tokens (id, organisation, account, name, role, hash, created, used, expires) "+
			"VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?)",
		t.ID, t.Organisation, t.Account, t.Name, int(t.Role), hash, toMicros(t.Created), toMicros(t.Expires))
	return t, err
}

const tokenColumns = "id, organisation, account, name, role, created, used, expires"

func scanToken(scan func(...any) error) (t Token, err error) {
	var created, used, expires int64
	err = scan(&t.ID, &t.Organisation, &t.Account, &t.Name, &t.Role, &created, &used, &expires)
	t.Created, t.Used, t.Expires = fromMicros(created), fromMicros(used), fromMicros(expires)
	return t, err
}

// Tokens lists the tokens of an organisation, also those that have expired.
func (s *Store) Tokens(ctx context.Context, organisation string) ([]Token, error) {
	return queryRows(ctx, s, s.db, scanToken,
		"SELECT "+tokenColumns+" FROM tokens WHERE organisation = ? ORDER BY created, id", organisation)
}

// RemoveToken ends a token.
func (s *Store) RemoveToken(ctx context.Context, organisation, id string) error {
	return s.changeOne(ctx, s.db, "token", "DELETE FROM tokens WHERE organisation = ? AND id = ?", organisation, id)
}

// TokenByHash finds a token that has not expired, and the account for which it acts. Its role is at most that of the
// account, which must still be a member. It records that the token was used, at most once a minute.
func (s *Store) TokenByHash(ctx context.Context, hash string) (Token, Account, error) {
	now := s.now()
	t, err := oneRow(ctx, s, s.db, "token", scanToken,
		"SELECT "+tokenColumns+" FROM tokens WHERE hash = ? AND expires > ?", hash, toMicros(now))
	if err != nil {
		return t, Account{}, err
	}
	role, err := s.RoleOf(ctx, t.Organisation, t.Account)
	if err == nil && role == 0 {
		err = notFound("token")
	}
	if err != nil {
		return t, Account{}, err
	}
	t.Role = min(t.Role, role)
	a, err := oneRow(ctx, s, s.db, "account", scanAccount,
		"SELECT "+accountColumns+" FROM accounts a WHERE a.id = ?", t.Account)
	if err == nil && now.Sub(t.Used) >= time.Minute {
		_, err = s.execChange(ctx, s.db, "UPDATE tokens SET used = ? WHERE id = ?", toMicros(now), t.ID)
	}
	return t, a, err
}

// AddHost stores a host under the hash of its token.
func (s *Store) AddHost(ctx context.Context, h Host, hash string) (Host, error) {
	h.ID, h.Created = newID("h-"), s.now()
	_, err := s.execChange(ctx, s.db, "INSERT INTO hosts (id, organisation, name, kind, hash, created, used, expires) "+
		"VALUES (?, ?, ?, ?, ?, ?, 0, ?)", h.ID, h.Organisation, h.Name, h.Kind, hash, toMicros(h.Created), toMicros(h.Expires))
	return h, err
}

const hostColumns = "id, organisation, name, kind, created, used, expires, version, registration, queue, acked"

func scanHost(scan func(...any) error) (h Host, err error) {
	var created, used, expires int64
	err = scan(&h.ID, &h.Organisation, &h.Name, &h.Kind, &created, &used, &expires, &h.Version, &h.Registration, &h.Queue, &h.Acked)
	h.Created, h.Used, h.Expires = fromMicros(created), fromMicros(used), fromMicros(expires)
	return h, err
}

// Hosts lists the hosts of an organisation by name.
func (s *Store) Hosts(ctx context.Context, organisation string) ([]Host, error) {
	return queryRows(ctx, s, s.db, scanHost,
		"SELECT "+hostColumns+" FROM hosts WHERE organisation = ? ORDER BY name", organisation)
}

// RemoveHost ends a host's token.
func (s *Store) RemoveHost(ctx context.Context, organisation, id string) error {
	return s.changeOne(ctx, s.db, "host", "DELETE FROM hosts WHERE organisation = ? AND id = ?", organisation, id)
}
