package store

import (
	"context"
	"database/sql"
	"time"

	"bailey"
)

// A Ceremony is a sign-in or a registration that has begun in a browser and ends with a second request.
type Ceremony struct {
	Kind    string
	Account string // for which it began, or ""
	Data    string
	Expires time.Time
}

// BeginCeremony stores a ceremony under the hash of its token. Those that have expired are removed.
func (s *Store) BeginCeremony(ctx context.Context, c Ceremony, hash string) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error {
		if _, err := s.execChange(ctx, tx, "DELETE FROM ceremonies WHERE expires <= ?", toMicros(s.now())); err != nil {
			return err
		}
		_, err := s.execChange(ctx, tx, "INSERT INTO ceremonies (hash, kind, account, data, expires) VALUES (?, ?, ?, ?, ?)",
			hash, c.Kind, c.Account, c.Data, toMicros(c.Expires))
		return err
	})
}

// EndCeremony removes a ceremony of a kind that has not expired, and returns it. Of several callers with the same
// token, one gets it.
func (s *Store) EndCeremony(ctx context.Context, kind, hash string) (Ceremony, error) {
	return oneRow(ctx, s, s.db, "ceremony", func(scan func(...any) error) (c Ceremony, err error) {
		var expires int64
		err = scan(&c.Kind, &c.Account, &c.Data, &expires)
		c.Expires = fromMicros(expires)
		return c, err
	}, "DELETE FROM ceremonies WHERE kind = ? AND hash = ? AND expires > ? RETURNING kind, account, data, expires",
		kind, hash, toMicros(s.now()))
}

// A Passkey is a WebAuthn credential of an account.
type Passkey struct {
	ID      string    `json:"id"` // of the credential, in base64url
	Account string    `json:"-"`
	Name    string    `json:"name"`
	Record  string    `json:"-"` // the public key and what else WebAuthn needs, as JSON
	Count   uint32    `json:"-"` // the authenticator's counter of signatures, or 0 if it has none
	Created time.Time `json:"created"`
	Used    time.Time `json:"used,omitzero"`
}

const passkeyColumns = "id, account, name, record, uses, created, used"

func scanPasskey(scan func(...any) error) (k Passkey, err error) {
	var created, used int64
	err = scan(&k.ID, &k.Account, &k.Name, &k.Record, &k.Count, &created, &used)
	k.Created, k.Used = fromMicros(created), fromMicros(used)
	return k, err
}

// AddPasskey stores a passkey. Its credential must be new: Conflict.
func (s *Store) AddPasskey(ctx context.Context, k Passkey) (Passkey, error) {
	k.Created = s.now()
	_, err := s.execChange(ctx, s.db, "INSERT INTO passkeys ("+passkeyColumns+") VALUES (?, ?, ?, ?, ?, ?, 0)",
		k.ID, k.Account, k.Name, k.Record, int64(k.Count), toMicros(k.Created))
	return k, err
}

// Passkeys lists the passkeys of an account, the oldest first.
func (s *Store) Passkeys(ctx context.Context, account string) ([]Passkey, error) {
	return queryRows(ctx, s, s.db, scanPasskey,
		"SELECT "+passkeyColumns+" FROM passkeys WHERE account = ? ORDER BY created, id", account)
}

// UsePasskey stores the record of a passkey after a sign-in. The counter must have grown, unless the authenticator has
// none; otherwise there is a copy of the authenticator, or the answer is a replay: Conflict.
func (s *Store) UsePasskey(ctx context.Context, k Passkey) error {
	n, err := s.execChange(ctx, s.db, "UPDATE passkeys SET record = ?, uses = ?, used = ? "+
		"WHERE id = ? AND account = ? AND (uses < ? OR uses = 0 AND ? = 0)",
		k.Record, int64(k.Count), toMicros(s.now()), k.ID, k.Account, int64(k.Count), int64(k.Count))
	if err == nil && n == 0 {
		err = bailey.Conflict.New("the counter of the passkey did not grow: the authenticator may have been copied",
			"sign in otherwise, and remove the passkey")
	}
	return err
}

// RemovePasskey removes a passkey of an account, unless it is the last way to sign in: Conflict.
func (s *Store) RemovePasskey(ctx context.Context, account, id string) error {
	return s.removeSignIn(ctx, "passkey", account,
		"DELETE FROM passkeys WHERE account = ? AND id = ?", account, id)
}

// A Provider is where people can sign in instead of here.
type Provider struct {
	Name    string    `json:"name"`
	Kind    string    `json:"kind" enum:"oidc,github"`
	Issuer  string    `json:"issuer"`
	Client  string    `json:"-"`
	Secret  string    `json:"-"` // sealed
	Created time.Time `json:"created"`
}

// Kinds of providers.
const (
	OIDC   = "oidc"
	GitHub = "github"
)

const providerColumns = "name, kind, issuer, client, secret, created"

func scanProvider(scan func(...any) error) (p Provider, err error) {
	var created int64
	err = scan(&p.Name, &p.Kind, &p.Issuer, &p.Client, &p.Secret, &created)
	p.Created = fromMicros(created)
	return p, err
}

// AddProvider stores a provider under a name that is new. Its secret must be sealed.
func (s *Store) AddProvider(ctx context.Context, p Provider) error {
	_, err := s.execChange(ctx, s.db, "INSERT INTO providers ("+providerColumns+") VALUES (?, ?, ?, ?, ?, ?)",
		p.Name, p.Kind, p.Issuer, p.Client, p.Secret, toMicros(s.now()))
	return err
}

// Providers lists the providers by name.
func (s *Store) Providers(ctx context.Context) ([]Provider, error) {
	return queryRows(ctx, s, s.db, scanProvider, "SELECT "+providerColumns+" FROM providers ORDER BY name")
}

// ProviderNamed finds a provider.
func (s *Store) ProviderNamed(ctx context.Context, name string) (Provider, error) {
	return oneRow(ctx, s, s.db, "provider", scanProvider, "SELECT "+providerColumns+" FROM providers WHERE name = ?", name)
}

// RemoveProvider removes a provider and all identities that it gave.
func (s *Store) RemoveProvider(ctx context.Context, name string) error {
	return s.changeOne(ctx, s.db, "provider", "DELETE FROM providers WHERE name = ?", name)
}

// ResealSecrets replaces each sealed secret by what f makes of it, all or none. f gets the name under which it was
// sealed.
func (s *Store) ResealSecrets(ctx context.Context, f func(name, sealed string) (string, error)) (n int, err error) {
	err = s.inTransaction(ctx, func(tx *sql.Tx) error {
		all, err := queryRows(ctx, s, tx, scanProvider, "SELECT "+providerColumns+" FROM providers")
		if err != nil {
			return err
		}
		n = len(all)
		if pushes, err := s.resealPushKey(ctx, tx, f); err != nil {
			return err
		} else if pushes {
			n++
		}
		for _, p := range all {
			if err != nil {
				break
			}
			var sealed string
			if sealed, err = f(p.SealedAs(), p.Secret); err == nil {
				_, err = s.execChange(ctx, tx, "UPDATE providers SET secret = ? WHERE name = ?", sealed, p.Name)
			}
		}
		return err
	})
	return n, err
}

// SealedAs is the name to which the sealed secret is bound, so that it is of no use in another row.
func (p Provider) SealedAs() string { return "providers/" + p.Name + "/secret" }

// An Identity is a person at a provider, who is an account here.
type Identity struct {
	ID       string    `json:"id"`
	Account  string    `json:"-"`
	Provider string    `json:"provider"`
	Subject  string    `json:"-"`
	Email    string    `json:"email"`
	Created  time.Time `json:"created"`
}

const identityColumns = "id, account, provider, subject, email, created"

func scanIdentity(scan func(...any) error) (i Identity, err error) {
	var created int64
	err = scan(&i.ID, &i.Account, &i.Provider, &i.Subject, &i.Email, &created)
	i.Created = fromMicros(created)
	return i, err
}

func (s *Store) addIdentity(ctx context.Context, r runner, i Identity) error {
	_, err := s.execChange(ctx, r, "INSERT INTO identities ("+identityColumns+") VALUES (?, ?, ?, ?, ?, ?)",
		newID("id-"), i.Account, i.Provider, i.Subject, i.Email, toMicros(s.now()))
	return err
}

// AddIdentity links an identity to an account. It must not be linked yet: Conflict.
func (s *Store) AddIdentity(ctx context.Context, i Identity) error {
	return s.addIdentity(ctx, s.db, i)
}

// AcceptWithIdentity uses up an invitation and creates its account, which has the identity and no password. The address
// of the identity must be that of the invitation; otherwise the error is NotFound.
func (s *Store) AcceptWithIdentity(ctx context.Context, hash, name string, i Identity) (a Account, err error) {
	err = s.inTransaction(ctx, func(tx *sql.Tx) error {
		invitation, err := s.useInvitation(ctx, tx, hash)
		if err == nil && invitation.Email != i.Email {
			err = notFound("invitation")
		}
		if err != nil {
			return err
		}
		if a, err = s.addAccount(ctx, tx, Account{Email: i.Email, Name: name}); err != nil {
			return err
		}
		i.Account = a.ID
		if err := s.addIdentity(ctx, tx, i); err != nil {
			return err
		}
		return s.addMember(ctx, tx, invitation.Organisation, a.ID, invitation.Role)
	})
	return a, err
}

// Identities lists the identities of an account.
func (s *Store) Identities(ctx context.Context, account string) ([]Identity, error) {
	return queryRows(ctx, s, s.db, scanIdentity,
		"SELECT "+identityColumns+" FROM identities WHERE account = ? ORDER BY created, id", account)
}

// AccountByIdentity finds the account to which an identity is linked.
func (s *Store) AccountByIdentity(ctx context.Context, provider, subject string) (Account, error) {
	return oneRow(ctx, s, s.db, "account", scanAccount, "SELECT "+accountColumns+
		" FROM accounts a JOIN identities i ON i.account = a.id WHERE i.provider = ? AND i.subject = ?", provider, subject)
}

// RemoveIdentity removes an identity of an account, unless it is the last way to sign in: Conflict.
func (s *Store) RemoveIdentity(ctx context.Context, account, id string) error {
	return s.removeSignIn(ctx, "identity", account,
		"DELETE FROM identities WHERE account = ? AND id = ?", account, id)
}

// removeSignIn removes a way to sign in, unless it is the last.
func (s *Store) removeSignIn(ctx context.Context, thing, account, query string, args ...any) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error {
		if err := s.changeOne(ctx, tx, thing, query, args...); err != nil {
			return err
		}
		ways, err := oneRow(ctx, s, tx, "account", func(scan func(...any) error) (n int, err error) {
			err = scan(&n)
			return n, err
		}, "SELECT (SELECT count(*) FROM accounts WHERE id = ? AND password <> '') + "+
			"(SELECT count(*) FROM passkeys WHERE account = ?) + (SELECT count(*) FROM identities WHERE account = ?)",
			account, account, account)
		if err == nil && ways == 0 {
			err = bailey.Conflict.New("this is the only way to sign in to the account",
				"add a passkey or set a password first")
		}
		return err
	})
}

// AccountByID finds an account.
func (s *Store) AccountByID(ctx context.Context, id string) (Account, error) {
	return oneRow(ctx, s, s.db, "account", scanAccount, "SELECT "+accountColumns+" FROM accounts a WHERE a.id = ?", id)
}

// EndOtherSessions ends every session of an account but keep, and returns how many.
func (s *Store) EndOtherSessions(ctx context.Context, account, keep string) (int, error) {
	n, err := s.execChange(ctx, s.db, "DELETE FROM sessions WHERE account = ? AND id <> ?", account, keep)
	return int(n), err
}

// TelemetryID returns a random identifier of this database, which it makes the first time.
func (s *Store) TelemetryID(ctx context.Context) (string, error) {
	if _, err := s.execChange(ctx, s.db, "INSERT INTO settings (name, value) VALUES ('telemetry', ?) "+
		"ON CONFLICT (name) DO NOTHING", newID("")); err != nil {
		return "", err
	}
	return oneRow(ctx, s, s.db, "setting", scanText, "SELECT value FROM settings WHERE name = 'telemetry'")
}

// Counts returns how many accounts, organisations and hosts there are.
func (s *Store) Counts(ctx context.Context) (accounts, organisations, hosts int, err error) {
	_, err = oneRow(ctx, s, s.db, "count", func(scan func(...any) error) (struct{}, error) {
		return struct{}{}, scan(&accounts, &organisations, &hosts)
	}, "SELECT (SELECT count(*) FROM accounts), (SELECT count(*) FROM organisations), (SELECT count(*) FROM hosts)")
	return accounts, organisations, hosts, err
}

// EndSessionByHash ends a session, if it exists.
func (s *Store) EndSessionByHash(ctx context.Context, hash string) error {
	_, err := s.execChange(ctx, s.db, "DELETE FROM sessions WHERE hash = ?", hash)
	return err
}
