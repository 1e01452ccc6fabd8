package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/control"
	"bailey/internal/ledger"
	"bailey/internal/store"
)

// printResult answers a command: v with --json, otherwise a line.
func (p *program) printResult(v any, line string) error {
	if p.json {
		return json.NewEncoder(p.stdout).Encode(v)
	}
	_, err := fmt.Fprintln(p.stdout, line)
	return err
}

// recordOperation runs a change of an operator, which is recorded. The record has one writer, so a server that runs on
// this directory must be stopped.
func (p *program) recordOperation(ctx context.Context, s settings, operation, subject string, f func() error) (err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	l, err := ledger.New(ledger.Config{Dir: filepath.Join(s.dir, "ledger"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return bailey.Conflict.Wrap(err, "the change cannot be recorded, so it was not made", "stop bailey-server first")
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return control.RecordOperation(ctx, l, operation, subject, f)
}

func (s *settings) storeConfig() store.Config { return store.Config{URL: s.database} }

// keyFile is the file of the keys that seal secrets.
func (s *settings) keyFile() string { return filepath.Join(s.dir, "server.keys") }

// openKeys opens the keys, and creates them if no secret has been sealed.
func openKeys(ctx context.Context, s settings, db *store.Store) (*auth.Keyring, error) {
	k, err := auth.OpenKeyring(s.keyFile())
	if !errors.Is(err, bailey.NotFound) {
		return k, err
	}
	providers, failed := db.Providers(ctx)
	push, unread := db.PushKey(ctx)
	if failed = errors.Join(failed, unread); failed != nil || len(providers) > 0 || push != "" {
		return nil, errors.Join(failed, err) // new keys would open nothing
	}
	return auth.NewKeyring(s.keyFile())
}

// runBackup writes a backup. The server may be running.
func (p *program) runBackup(ctx context.Context, s settings) (err error) {
	if _, err := os.Lstat(p.name); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, bailey.Conflict.Errorf("name a new file", "%s exists", p.name))
	}
	if has, newest, err := store.Schemas(ctx, s.storeConfig()); err != nil || has != newest {
		return errors.Join(err, bailey.Conflict.Errorf("bailey-server migrate", "the database has schema %d, not %d", has,
			newest))
	}
	db, err := store.Open(ctx, s.storeConfig())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	part := p.name + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return bailey.Invalid.Wrap(err, "cannot write the backup", "choose another file, or remove "+part)
	}
	defer os.Remove(part)
	rows, err := db.Backup(ctx, f)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(part, p.name); err != nil { // replaces nothing
		return err
	}
	return p.printResult(struct {
		File string `json:"file"`
		Rows int    `json:"rows"`
		Keys string `json:"keys"`
	}{p.name, rows, s.keyFile()}, fmt.Sprintf("%d rows are in %s. Keep a copy of %s elsewhere: it opens the sealed secrets.",
		rows, p.name, s.keyFile()))
}

// runRestore restores a backup into the database of the configuration.
func (p *program) runRestore(ctx context.Context, s settings) error {
	f, err := os.Open(p.name)
	if err != nil {
		return bailey.Invalid.Wrap(err, "cannot read the backup", "name the file that bailey-server backup wrote")
	}
	defer f.Close()
	var rows int
	if err := p.recordOperation(ctx, s, "restore", filepath.Base(p.name), func() (err error) {
		rows, err = store.Restore(ctx, s.storeConfig(), f)
		return err
	}); err != nil {
		return err
	}
	return p.printResult(struct {
		Rows     int    `json:"rows"`
		Database string `json:"database"`
	}{rows, s.databaseKind()}, fmt.Sprintf("restored %d rows into %s. Everybody must sign in again, and open invitations "+
		"are gone. Members, passkeys, tokens and hosts are those of the backup: remove again what was removed since.",
		rows, s.databaseKind()))
}

// runMigrate brings the schema up to this version, as serve does.
func (p *program) runMigrate(ctx context.Context, s settings) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	has, newest, err := store.Schemas(ctx, s.storeConfig())
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, s.storeConfig())
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	return p.printResult(struct {
		From int64 `json:"from"`
		To   int64 `json:"to"`
	}{has, newest}, fmt.Sprintf("the schema was %d and is %d", has, newest))
}

// runRotate adds a key and seals every secret with it.
func (p *program) runRotate(ctx context.Context, s settings) error {
	var n int
	var k *auth.Keyring
	err := p.recordOperation(ctx, s, "keys-rotate", "", func() (err error) {
		db, err := store.Open(ctx, s.storeConfig())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		if k, err = openKeys(ctx, s, db); err != nil {
			return err
		}
		if err := k.Rotate(); err != nil {
			return err
		}
		n, err = db.ResealSecrets(ctx, func(name, sealed string) (string, error) {
			secret, err := k.Open(name, sealed)
			if err != nil {
				return "", err
			}
			return k.Seal(name, secret)
		})
		return err
	})
	if err != nil {
		return err
	}
	return p.printResult(struct {
		Key     int `json:"key"`
		Secrets int `json:"secrets"`
	}{k.Newest(), n}, fmt.Sprintf("%d secrets are sealed with key %d. Older keys stay in the file for older backups.",
		n, k.Newest()))
}

// changeProviders runs a change of the providers.
func (p *program) changeProviders(ctx context.Context, s settings, operation string,
	f func(*store.Store, *auth.Keyring) error) error {
	return p.recordOperation(ctx, s, operation, p.name, func() error {
		db, err := store.Open(ctx, s.storeConfig())
		if err != nil {
			return err
		}
		k, err := openKeys(ctx, s, db)
		if err == nil {
			err = f(db, k)
		}
		return errors.Join(err, db.Close())
	})
}

// addProvider adds a provider, whose secret comes from standard input, where no list of processes shows it.
func (p *program) addProvider(ctx context.Context, s settings) error {
	isName, err := regexp.MatchString("^[a-z0-9][a-z0-9-]{0,38}$", p.name)
	if err != nil || !isName {
		return self.UsageFault("a provider needs a name of small letters, digits and -")
	}
	v := store.Provider{Name: p.name, Kind: p.kind, Issuer: strings.TrimSuffix(p.issuer, "/"), Client: p.client}
	if v.Kind == store.GitHub && v.Issuer == "" {
		v.Issuer = "https://github.com"
	}
	if v.Kind == store.OIDC {
		v.Issuer = p.issuer // an issuer is compared as it stands
	}
	if v.Kind != store.OIDC && v.Kind != store.GitHub || v.Client == "" {
		return self.UsageFault("provider add needs --kind oidc or github, and --client-id")
	}
	if err := auth.CheckIssuer(v.Issuer); err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(p.stdin, 10_001))
	secret := strings.TrimSpace(string(text))
	if err != nil || secret == "" || len(secret) > 10_000 {
		return errors.Join(err, self.UsageFault("the client secret is read from standard input, and there is none"))
	}
	if err := p.changeProviders(ctx, s, "provider-add", func(db *store.Store, k *auth.Keyring) (err error) {
		if v.Secret, err = k.Seal(v.SealedAs(), secret); err != nil {
			return err
		}
		return db.AddProvider(ctx, v)
	}); err != nil {
		return err
	}
	callback := "/login/callback"
	if s.public != nil {
		callback = s.public.String() + callback
	}
	return p.printResult(struct {
		Provider store.Provider `json:"provider"`
		Redirect string         `json:"redirect"`
	}{v, callback}, fmt.Sprintf("%s is added. Register %s there as the redirect URL.", v.Name, callback))
}

func (p *program) listProviders(ctx context.Context, s settings) error {
	db, err := store.Open(ctx, s.storeConfig())
	if err != nil {
		return err
	}
	all, err := db.Providers(ctx)
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	lines := []string{}
	for _, v := range all {
		lines = append(lines, v.Name+"  "+v.Kind+"  "+v.Issuer)
	}
	return p.printResult(struct {
		Items []store.Provider `json:"items"`
	}{all}, strings.Join(lines, "\n"))
}

// removeProvider removes a provider with the links to its identities.
func (p *program) removeProvider(ctx context.Context, s settings) error {
	if err := p.changeProviders(ctx, s, "provider-remove", func(db *store.Store, _ *auth.Keyring) error {
		return db.RemoveProvider(ctx, p.name)
	}); err != nil {
		return err
	}
	return p.printResult(struct {
		Removed string `json:"removed"`
	}{p.name}, p.name+" is removed, and nobody signs in with it")
}
