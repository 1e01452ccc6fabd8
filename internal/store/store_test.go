package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/store"
)

// clock is a time that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// onBoth runs a test with an empty database of SQLite, and with one of PostgreSQL.
func onBoth(t *testing.T, f func(t *testing.T, s *store.Store, c *clock)) {
	t.Helper()
	for kind, address := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "server.db") },
		"postgres": func(t *testing.T) string { return ktest.PostgresDatabase(t) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := &clock{now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
			f(t, openStore(t, store.Config{URL: address(t), Now: c.Now}), c)
		})
	}
}

func openStore(t *testing.T, c store.Config) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// setUp creates the first owner.
func setUp(t *testing.T, s *store.Store) (store.Account, store.Organisation) {
	t.Helper()
	if offered, err := s.OfferSetup(t.Context(), store.Hash("link")); err != nil || !offered {
		t.Fatal(offered, err)
	}
	a, o, err := s.Setup(t.Context(), store.Hash("link"), store.Account{Email: "Ann@example.com", Name: "Ann",
		Password: "$2a$"}, "Shop")
	if err != nil {
		t.Fatal(err)
	}
	return a, o
}

// wantKind fails unless err has the kind.
func wantKind(t *testing.T, err error, kind bailey.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("got %v, want the kind %q", err, kind)
	}
}

// addMember invites an address, which accepts with a new account.
func addMember(t *testing.T, s *store.Store, c *clock, o store.Organisation, email string,
	role store.Role) store.Account {
	t.Helper()
	token := "invitation of " + email
	if _, err := s.Invite(t.Context(), store.Invitation{Organisation: o.ID, Email: email, Role: role, By: ownerOf(t, s, o),
		Expires: c.Now().Add(time.Hour)}, store.Hash(token)); err != nil {
		t.Fatal(err)
	}
	a, _, err := s.AcceptAsNew(t.Context(), store.Hash(token), store.Account{Name: email, Email: "ignored@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ownerOf returns the first owner of an organisation.
func ownerOf(t *testing.T, s *store.Store, o store.Organisation) string {
	t.Helper()
	members, err := s.Members(t.Context(), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if m.Role == store.Owner {
			return m.ID
		}
	}
	t.Fatal("no owner")
	return ""
}

func TestSetupWorksOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store, _ *clock) {
		ctx := t.Context()
		_, _, err := s.Setup(ctx, store.Hash("link"), store.Account{Email: "a@b.example"}, "x")
		wantKind(t, err, bailey.NotFound)
		if offered, err := s.OfferSetup(ctx, store.Hash("older")); err != nil || !offered {
			t.Fatal(offered, err)
		}
		ann, shop := setUp(t, s) // its link replaces the older one
		for _, link := range []string{"older", "link"} {
			_, _, err := s.Setup(ctx, store.Hash(link), store.Account{Email: "eve@example.com"}, "Evil")
			wantKind(t, err, bailey.NotFound)
		}
		if offered, err := s.OfferSetup(ctx, store.Hash("again")); err != nil || offered {
			t.Errorf("a server with an account offers a setup link: %v, %v", offered, err)
		}
		found, err := s.AccountByEmail(ctx, "ANN@EXAMPLE.COM")
		if err != nil || found.ID != ann.ID || found.Email != "ann@example.com" {
			t.Errorf("got %+v, %v", found, err)
		}
		if role, err := s.RoleOf(ctx, shop.ID, ann.ID); err != nil || role != store.Owner {
			t.Errorf("the first account has the role %v, %v", role, err)
		}
	})
}

func TestSessionsExpire(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store, c *clock) {
		ctx := t.Context()
		ann, _ := setUp(t, s)
		var ids []string
		for i := range 3 {
			n, err := s.AddSession(ctx, store.Session{Account: ann.ID, Expires: c.Now().Add(time.Hour),
				Address: "192.0.2.1"},
				store.Hash(fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, n.ID)
			c.advance(time.Minute)
		}
		n, a, err := s.SessionByHash(ctx, store.Hash("0"), true)
		if err != nil || n.ID != ids[0] || a.ID != ann.ID {
			t.Fatal(n, a, err)
		}
		if list, err := s.Sessions(ctx, ann.ID); err != nil || len(list) != 3 || !list[2].Seen.Equal(c.Now()) {
			t.Errorf("the use of a session is not recorded: %+v, %v", list, err)
		}
		wantKind(t, s.EndSession(ctx, "u-other", ids[1]), bailey.NotFound)
		if err := s.EndSession(ctx, ann.ID, ids[1]); err != nil {
			t.Fatal(err)
		}
		_, _, err = s.SessionByHash(ctx, store.Hash("1"), true)
		wantKind(t, err, bailey.NotFound)
		if err := s.SetPassword(ctx, ann.ID, "$2b$", ids[2]); err != nil {
			t.Fatal(err)
		}
		if list, err := s.Sessions(ctx, ann.ID); err != nil || len(list) != 1 || list[0].ID != ids[2] {
			t.Errorf("a new password leaves the sessions %+v, %v", list, err)
		}
		c.advance(time.Hour)
		_, _, err = s.SessionByHash(ctx, store.Hash("2"), true)
		wantKind(t, err, bailey.NotFound)
	})
}

func TestInvitations(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store, c *clock) {
		ctx := t.Context()
		ann, shop := setUp(t, s)
		other, err := s.AddOrganisation(ctx, "Other", ann.ID)
		if err != nil {
			t.Fatal(err)
		}
		bob := addMember(t, s, c, shop, "Bob@example.com", store.Admin)
		if bob.Email != "bob@example.com" {
			t.Errorf("the account has the address %s, not that of the invitation", bob.Email)
		}
		_, _, err = s.AcceptAsNew(ctx, store.Hash("invitation of Bob@example.com"), store.Account{})
		wantKind(t, err, bailey.NotFound) // it is used up
		invite := func(token, email string) store.Invitation {
			i, err := s.Invite(ctx, store.Invitation{Organisation: other.ID, Email: email, Role: store.Member, By: ann.ID,
				Expires: c.Now().Add(time.Hour)}, store.Hash(token))
			if err != nil {
				t.Fatal(err)
			}
			return i
		}
		invite("1", "bob@example.com")
		_, _, err = s.AcceptAsNew(ctx, store.Hash("1"), store.Account{})
		wantKind(t, err, bailey.Conflict) // there is an account, and the invitation stays
		_, err = s.Accept(ctx, store.Hash("1"), ann)
		wantKind(t, err, bailey.NotFound) // another address
		if _, err := s.Accept(ctx, store.Hash("1"), bob); err != nil {
			t.Fatal(err)
		}
		second := invite("2", "carol@example.com")
		wantKind(t, s.Uninvite(ctx, shop.ID, second.ID), bailey.NotFound)
		if list, err := s.Invitations(ctx, other.ID); err != nil || len(list) != 1 || list[0] != second {
			t.Errorf("got %+v, %v, want %+v", list, err, second)
		}
		if err := s.Uninvite(ctx, other.ID, second.ID); err != nil {
			t.Fatal(err)
		}
		invite("3", "carol@example.com")
		c.advance(time.Hour)
		for _, token := range []string{"2", "3"} {
			_, _, err = s.AcceptAsNew(ctx, store.Hash(token), store.Account{})
			wantKind(t, err, bailey.NotFound)
		}
	})
}

// TestOneOwnerStays: of two owners who demote each other at the same time, one stays.
func TestOneOwnerStays(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store, c *clock) {
		ctx := t.Context()
		ann, shop := setUp(t, s)
		wantKind(t, s.SetRole(ctx, shop.ID, ann.ID, store.Admin), bailey.Conflict)
		wantKind(t, s.SetRole(ctx, shop.ID, ann.ID, 0), bailey.Conflict)
		for round := range 5 {
			bob := addMember(t, s, c, shop, fmt.Sprintf("bob%d@example.com", round), store.Owner)
			var group sync.WaitGroup
			errs := make([]error, 2)
			for i, account := range []string{ann.ID, bob.ID} {
				group.Go(func() { errs[i] = s.SetRole(ctx, shop.ID, account, store.Member) })
			}
			group.Wait()
			members, err := s.Members(ctx, shop.ID)
			if err != nil {
				t.Fatal(err)
			}
			owner := slices.IndexFunc(members, func(m store.Membership) bool { return m.Role == store.Owner })
			if owner < 0 || (errs[0] == nil) == (errs[1] == nil) {
				t.Fatalf("the errors %v leave the members %+v", errs, members)
			}
			if err := s.SetRole(ctx, shop.ID, ann.ID, store.Owner); err != nil {
				t.Fatal(err)
			}
			if err := s.SetRole(ctx, shop.ID, bob.ID, 0); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store, c *clock) {
		ctx := t.Context()
		_, shop := setUp(t, s)
		bob := addMember(t, s, c, shop, "bob@example.com", store.Admin)
		added, err := s.AddToken(ctx, store.Token{Organisation: shop.ID, Account: bob.ID, Name: "ci", Role: store.Admin,
			Expires: c.Now().Add(time.Hour)}, store.Hash("token"))
		if err != nil {
			t.Fatal(err)
		}
		role := func() store.Role {
			t.Helper()
			got, a, err := s.TokenByHash(ctx, store.Hash("token"))
			if err != nil || got.ID != added.ID || a.ID != bob.ID {
				t.Fatal(got, a, err)
			}
			return got.Role
		}
		if r := role(); r != store.Admin {
			t.Errorf("the token has the role %v", r)
		}
		if err := s.SetRole(ctx, shop.ID, bob.ID, store.Member); err != nil {
			t.Fatal(err)
		}
		if r := role(); r != store.Member {
			t.Errorf("the token of a member has the role %v", r)
		}
		if list, err := s.Tokens(ctx, shop.ID); err != nil || len(list) != 1 || !list[0].Used.Equal(c.Now()) {
			t.Errorf("got %+v, %v", list, err)
		}
		wantKind(t, s.RemoveToken(ctx, "o-other", added.ID), bailey.NotFound)
		if err := s.SetRole(ctx, shop.ID, bob.ID, 0); err != nil {
			t.Fatal(err)
		}
		_, _, err = s.TokenByHash(ctx, store.Hash("token"))
		wantKind(t, err, bailey.NotFound)
		if list, err := s.Tokens(ctx, shop.ID); err != nil || len(list) != 0 {
			t.Errorf("the tokens %+v of a former member stay: %v", list, err)
		}
	})
}

func TestHosts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store, c *clock) {
		ctx := t.Context()
		ann, shop := setUp(t, s)
		h := store.Host{Organisation: shop.ID, Name: "build-1", Kind: store.Gateway, Expires: c.Now().Add(time.Hour)}
		added, err := s.AddHost(ctx, h, store.Hash("1"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.AddHost(ctx, h, store.Hash("2"))
		wantKind(t, err, bailey.Conflict)
		h.Kind, h.Name = "toaster", "kitchen"
		_, err = s.AddHost(ctx, h, store.Hash("3"))
		wantKind(t, err, bailey.Invalid)
		wantKind(t, s.RemoveHost(ctx, "o-other", added.ID), bailey.NotFound)
		if list, err := s.Hosts(ctx, shop.ID); err != nil || len(list) != 1 || list[0] != added {
			t.Errorf("got %+v, %v", list, err)
		}
		// An organisation takes everything with it, and accounts stay.
		if err := s.DeleteOrganisation(ctx, shop.ID); err != nil {
			t.Fatal(err)
		}
		wantKind(t, s.DeleteOrganisation(ctx, shop.ID), bailey.NotFound)
		if list, err := s.Hosts(ctx, shop.ID); err != nil || len(list) != 0 {
			t.Errorf("got %+v, %v", list, err)
		}
		if list, err := s.Organisations(ctx, ann.ID); err != nil || len(list) != 0 {
			t.Errorf("got %+v, %v", list, err)
		}
	})
}

// TestAgents lists the agents of the receipts of one organisation since a time, the most recent first.
func TestAgents(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store, c *clock) {
		ann, shop := setUp(t, s)
		other, err := s.AddOrganisation(t.Context(), "Other", ann.ID)
		if err != nil {
			t.Fatal(err)
		}
		for i, shop := range []string{shop.ID, other.ID} {
			h, err := s.AddHost(t.Context(), store.Host{Organisation: shop, Name: "laptop", Kind: store.Gateway, Expires: c.Now().Add(time.Hour)},
				store.Hash(fmt.Sprint("host", i)))
			if err == nil {
				_, err = s.BeginLedger(t.Context(), h, "origin", "key")
			}
			if err != nil {
				t.Fatal(err)
			}
			err = s.Change(t.Context(), func(tx *store.Tx) error {
				for n, agent := range []string{"old", "coder", "coder", "reviewer"} {
					r := store.Receipt{Host: h.ID, Seq: uint64(n + 1), Receipt: fmt.Sprint("r-", n), Agent: fmt.Sprint(agent, i),
						Started: c.Now().Add(time.Duration(n-3) * time.Hour)}
					if err := s.AddReceipt(t.Context(), tx, shop, r, ""); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		all, err := s.Agents(t.Context(), shop.ID, c.Now().Add(-2*time.Hour))
		if err != nil || len(all) != 2 || all[0].Name != "reviewer0" || all[1].Name != "coder0" || all[1].Calls != 2 ||
			!all[1].Last.Equal(c.Now().Add(-time.Hour)) {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestOpenTogether: processes that open an empty database at the same time all get the newest schema.
func TestOpenTogether(t *testing.T) {
	t.Parallel()
	for kind, rounds := range map[string]int{"sqlite": 3, "postgres": 1} {
		for range rounds {
			openTogether(t, kind)
		}
	}
}

func openTogether(t *testing.T, kind string) {
	t.Helper()
	t.Run(kind, func(t *testing.T) {
		address := filepath.Join(t.TempDir(), "server.db")
		if kind == "postgres" {
			address = ktest.PostgresDatabase(t)
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				s, err := store.Open(context.Background(), store.Config{URL: address})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Organisations(context.Background(), "u-1"); err != nil {
					t.Error(err)
				}
				s.Close()
			})
		}
		group.Wait()
	})
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	readable := filepath.Join(dir, "readable.db")
	if err := os.WriteFile(readable, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte("this is text, and not a database\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	away := (&url.URL{Scheme: "postgres", Host: "127.0.0.1:1", Path: "/bailey"}).String()
	for address, kind := range map[string]bailey.Kind{readable: bailey.Invalid, garbage: bailey.Unavailable,
		away:              bailey.Unavailable,
		"mysql://host/db": bailey.Invalid, filepath.Join(dir, "missing", "x.db"): bailey.Invalid} {
		s, err := store.Open(t.Context(), store.Config{URL: address})
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, kind) {
			t.Errorf("%s: got %v, want the kind %q", address, err, kind)
		}
	}
}

func TestMain(m *testing.M) { os.Exit(ktest.WithPostgres(m)) }
