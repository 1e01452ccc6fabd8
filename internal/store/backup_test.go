package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/store"
)

// newDatabase returns the address of an empty database.
func newDatabase(t *testing.T, kind string) string {
	t.Helper()
	if kind == "postgres" {
		return ktest.PostgresDatabase(t)
	}
	return filepath.Join(t.TempDir(), "server.db")
}

const awkward = "ä \x01 \" \u2028"

// fillStore puts something into every table.
func fillStore(t *testing.T, s *store.Store, c *clock) {
	t.Helper()
	ctx := t.Context()
	ann, shop := setUp(t, s)
	later := c.Now().Add(time.Hour)
	_, e1 := s.AddSession(ctx, store.Session{Account: ann.ID, Expires: later, Client: "curl"}, store.Hash("s"))
	_, e2 := s.Invite(ctx, store.Invitation{Organisation: shop.ID, Email: "b@example.com", Role: store.Member, By: ann.ID,
		Expires: later}, store.Hash("i"))
	_, e3 := s.AddToken(ctx, store.Token{Organisation: shop.ID, Account: ann.ID, Name: awkward, Role: store.Admin,
		Expires: later}, store.Hash("t"))
	_, e4 := s.AddHost(ctx, store.Host{Organisation: shop.ID, Name: "h", Kind: store.Gateway, Expires: later},
		store.Hash("h"))
	_, e5 := s.AddPasskey(ctx, store.Passkey{ID: "key", Account: ann.ID, Name: "key", Record: `{"a":"<b>"}`, Count: 1<<32 - 1})
	e6 := s.AddProvider(ctx, store.Provider{Name: "idp", Kind: store.OIDC, Issuer: "https://idp.example", Secret: "v1.x"})
	e7 := s.AddIdentity(ctx, store.Identity{Account: ann.ID, Provider: "idp", Subject: "1"})
	e8 := s.BeginCeremony(ctx, store.Ceremony{Kind: "x", Data: "y", Expires: later}, store.Hash("c"))
	if err := errors.Join(e1, e2, e3, e4, e5, e6, e7, e8); err != nil {
		t.Fatal(err)
	}
}

// TestBackupBetweenDatabases: a backup of each database is restored into each, and a backup of that is the same, but for
// sessions and links that work once.
func TestBackupBetweenDatabases(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store, c *clock) {
		fillStore(t, s, c)
		var first bytes.Buffer
		rows, err := s.Backup(t.Context(), &first)
		if err != nil || rows < 10 {
			t.Fatal(rows, err)
		}
		for _, kind := range []string{"sqlite", "postgres"} {
			into := store.Config{URL: newDatabase(t, kind), Now: c.Now}
			n, err := store.Restore(t.Context(), into, bytes.NewReader(first.Bytes()))
			if err != nil || n != rows-3 { // the session, the invitation, the ceremony
				t.Fatalf("%s: %d of %d rows, %v", kind, n, rows, err)
			}
			_, err = store.Restore(t.Context(), into, bytes.NewReader(first.Bytes()))
			wantKind(t, err, bailey.Conflict) // it is not empty any more
			restored := openStore(t, into)
			if _, _, err := restored.SessionByHash(t.Context(), store.Hash("s"), true); err == nil {
				t.Errorf("%s: a session of before the backup works", kind)
			}
			var second bytes.Buffer
			if _, err := restored.Backup(t.Context(), &second); err != nil || !sameBackups(&first, &second) {
				t.Errorf("%s: the backup of the restored database differs: %v\n%s\n%s", kind, err, &first, &second)
			}
			if tok, a, err := restored.TokenByHash(t.Context(), store.Hash("t")); err != nil ||
				a.Email != "ann@example.com" || tok.Name != awkward {
				t.Errorf("%s: %+v, %+v, %v", kind, tok, a, err)
			}
		}
	})
}

// sameBackups compares the rows: PostgreSQL may sort texts otherwise.
func sameBackups(a, b *bytes.Buffer) bool {
	shortLived := regexp.MustCompile(`^\{"table": ?"(sessions|ceremonies|invitations)"`)
	lines := func(b *bytes.Buffer) map[string]int {
		all, skip := map[string]int{}, false
		for line := range strings.Lines(b.String()) {
			if line[0] == '{' {
				skip = shortLived.MatchString(line)
			}
			if !skip && !strings.Contains(line, `"sha256"`) {
				all[line]++
			}
		}
		return all
	}
	return reflect.DeepEqual(lines(a), lines(b))
}

// TestDamagedBackup: a backup that was cut or changed anywhere is refused, and nothing is written.
func TestDamagedBackup(t *testing.T) {
	t.Parallel()
	c := &clock{now: time.Now()}
	s := openStore(t, store.Config{URL: newDatabase(t, "sqlite"), Now: c.Now})
	fillStore(t, s, c)
	var b bytes.Buffer
	if _, err := s.Backup(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	for n := range whole {
		if err := store.CheckBackup(bytes.NewReader(whole[:n])); !errors.Is(err, bailey.Invalid) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
		changed := bytes.Clone(whole)
		changed[n] ^= 1
		if err := store.CheckBackup(bytes.NewReader(changed)); !errors.Is(err, bailey.Invalid) {
			t.Fatalf("byte %d is changed: %v", n, err)
		}
	}
	into := store.Config{URL: newDatabase(t, "sqlite"), Now: c.Now}
	for name, text := range map[string]string{"nothing": "", "another file": "SQLite format 3\x00", "more after its end": b.String() + "{}\n",
		"half": b.String()[:b.Len()/2], "no rows": strings.Split(b.String(), "\n")[0] + "\n"} {
		if _, err := store.Restore(t.Context(), into, strings.NewReader(text)); !errors.Is(err, bailey.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(into.URL); err == nil {
		t.Error("a refused backup makes a database")
	}
	if _, err := store.Restore(t.Context(), into, bytes.NewReader(whole)); err != nil {
		t.Errorf("the whole backup, afterwards: %v", err)
	}
}

// TestBackupOfLargeRow: a row that could not be restored fails the backup.
func TestBackupOfLargeRow(t *testing.T) {
	t.Parallel()
	c := &clock{now: time.Now()}
	s := openStore(t, store.Config{URL: newDatabase(t, "sqlite"), Now: c.Now})
	fillStore(t, s, c)
	var b bytes.Buffer
	if _, err := s.Backup(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	longest := 0
	for line := range strings.Lines(b.String()) {
		longest = max(longest, len(line))
	}
	s.LimitLines(longest)
	if _, err := s.Backup(t.Context(), io.Discard); err != nil {
		t.Error(err)
	}
	s.LimitLines(longest - 1)
	_, err := s.Backup(t.Context(), io.Discard)
	wantKind(t, err, bailey.Invalid)
}

func FuzzBackup(f *testing.F) {
	f.Add([]byte(`{"format":"bailey-server backup 1","schema":1,"created":"2026-01-01T00:00:00Z"}` + "\n" +
		`{"table":"settings","columns":["name","value"]}` + "\n" + `["a",1]` + "\n"))
	f.Add([]byte("[]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := store.CheckBackup(bytes.NewReader(text)); err != nil && !errors.Is(err, bailey.Invalid) {
			t.Errorf("%v", err)
		}
	})
}

// TestOlderSchemas: a database and a backup of each older schema get the newest one, with their data.
func TestOlderSchemas(t *testing.T) {
	t.Parallel()
	versions, err := store.Versions()
	if err != nil || len(versions) < 2 {
		t.Fatal(versions, err)
	}
	account := "INSERT INTO accounts (id, email, name, password, created) VALUES ('u-1', 'ann@example.com', 'Ann', 'x', 1)"
	for _, kind := range []string{"sqlite", "postgres"} {
		for _, version := range versions {
			t.Run(fmt.Sprint(kind, version), func(t *testing.T) {
				t.Parallel()
				c := store.Config{URL: newDatabase(t, kind)}
				if err := store.MigrateTo(t.Context(), c, version, account); err != nil {
					t.Fatal(err)
				}
				if has, newest, err := store.Schemas(t.Context(), c); err != nil || has != version ||
					newest != versions[len(versions)-1] {
					t.Errorf("the schema is %d of %d, %v", has, newest, err)
				}
				s := openStore(t, c)
				if a, err := s.AccountByEmail(t.Context(), "ann@example.com"); err != nil || a.ID != "u-1" {
					t.Errorf("got %+v, %v", a, err)
				}
				if keys, err := s.Passkeys(t.Context(), "u-1"); err != nil || len(keys) != 0 {
					t.Errorf("got %+v, %v", keys, err)
				}
			})
		}
	}
}

// TestQuestionsOfOlderSchema: a database in which questions had no time of arrival gets the newest schema, and lists them.
func TestQuestionsOfOlderSchema(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		c := store.Config{URL: newDatabase(t, kind)}
		if err := store.MigrateTo(t.Context(), c, 20,
			"INSERT INTO organisations (id, name, created) VALUES ('o-1', 'Shop', 1)",
			"INSERT INTO hosts (id, organisation, name, kind, hash, created, used, expires) "+
				"VALUES ('h-1', 'o-1', 'laptop', 'gateway', 'h', 1, 0, 9000000000000000)",
			"INSERT INTO questions (organisation, id, host, body, asked, expires, state, reason, decided) VALUES "+
				"('o-1', 'a-late', 'h-1', '{}', 2, 9000000000000000, 'open', '', 0), "+
				"('o-1', 'a-early', 'h-1', '{}', 1, 9000000000000000, 'open', '', 0)"); err != nil {
			t.Fatal(kind, err)
		}
		all, err := openStore(t, c).Questions(t.Context(), "o-1", store.QuestionFilter{State: store.QuestionOpen})
		if err != nil || len(all) != 2 || all[0].ID != "a-late" || all[1].ID != "a-early" {
			t.Errorf("%s: %+v, %v", kind, all, err)
		}
	}
}

// TestBackupOfOlderSchema: a backup is restored by a newer version.
func TestBackupOfOlderSchema(t *testing.T) {
	t.Parallel()
	text := `{"format":"bailey-server backup 1","schema":1,"created":"2026-01-01T00:00:00Z"}` + "\n" +
		`{"table":"accounts","columns":["id","email","name","password","created"]}` + "\n" +
		`["u-1","ann@example.com","Ann","x",1]` + "\n"
	text += fmt.Sprintf("{\"rows\":1,\"sha256\":%q}\n", store.Hash(text))
	for _, kind := range []string{"sqlite", "postgres"} {
		c := store.Config{URL: newDatabase(t, kind)}
		if n, err := store.Restore(t.Context(), c, strings.NewReader(text)); err != nil || n != 1 {
			t.Fatal(kind, n, err)
		}
		if keys, err := openStore(t, c).Passkeys(t.Context(), "u-1"); err != nil || len(keys) != 0 {
			t.Errorf("%s: %+v, %v", kind, keys, err)
		}
	}
	newer := strings.Replace(text[:strings.Index(text, `{"rows"`)], `"schema":1`, `"schema":999`, 1)
	newer += fmt.Sprintf("{\"rows\":1,\"sha256\":%q}\n", store.Hash(newer))
	_, err := store.Restore(t.Context(), store.Config{URL: newDatabase(t, "sqlite")}, strings.NewReader(newer))
	wantKind(t, err, bailey.Conflict)
}

// TestSameSchemas: both databases have the same tables with the same columns.
func TestSameSchemas(t *testing.T) {
	t.Parallel()
	var found []map[string][]string
	for _, kind := range []string{"sqlite", "postgres"} {
		names, err := openStore(t, store.Config{URL: newDatabase(t, kind)}).TableNames(t.Context())
		if err != nil || len(names["accounts"]) != 5 {
			t.Fatal(kind, names, err)
		}
		found = append(found, names)
	}
	if !reflect.DeepEqual(found[0], found[1]) {
		t.Errorf("SQLite has %v\nPostgreSQL has %v", found[0], found[1])
	}
}
