package control_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey/audit"
	"bailey/internal/auth"
	"bailey/internal/control"
	"bailey/internal/ktest"
	"bailey/internal/ktest/chromium"
	"bailey/internal/ledger"
	"bailey/internal/store"

	"golang.org/x/crypto/bcrypt"
)

func TestMain(m *testing.M) { os.Exit(chromium.With(func() int { return ktest.WithPostgres(m) })) }

// fixture is a server of a test.
type fixture struct {
	*control.Server
	URL   string
	dir   string
	shop  string // the organisation of makeCallers
	keys  *auth.Keyring
	store *store.Store
	mu    sync.Mutex
	now   time.Time
	ip    int
}

func (f *fixture) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fixture) advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// startServer starts a server on this machine, with an SQLite database.
func startServer(t *testing.T) *fixture {
	t.Helper()
	return startServerOn(t, filepath.Join(t.TempDir(), "server.db"))
}

func startServerOn(t *testing.T, database string) *fixture {
	t.Helper()
	f := &fixture{now: time.Now(), dir: filepath.Join(t.TempDir(), "ledger")}
	s, err := store.Open(t.Context(), store.Config{URL: database, Now: f.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l, err := ledger.New(ledger.Config{Dir: f.dir, Host: "server", Reserve: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	passwords := auth.NewPasswords(2)
	passwords.Cost = bcrypt.MinCost
	h := httptest.NewUnstartedServer(nil)
	_, port, _ := net.SplitHostPort(h.Listener.Addr().String())
	public := &url.URL{Scheme: "http", Host: "localhost:" + port} // passkeys need a name
	f.URL = public.String()
	f.keys, err = auth.NewKeyring(filepath.Join(t.TempDir(), "server.keys"))
	if err != nil {
		t.Fatal(err)
	}
	f.store = s
	f.Server, err = control.New(control.Config{Store: s, Ledger: l, Keys: f.keys, Public: public, Version: "test", Now: f.Now,
		Passwords: passwords,
		Proxies:   auth.Proxies{netip.MustParsePrefix("127.0.0.0/8")}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	h.Config.Handler = f.Handler()
	h.Start()
	t.Cleanup(h.Close)
	return f
}

// client is a browser, or a program if it has a token.
type client struct {
	t    *testing.T
	f    *fixture
	http http.Client
	// token is sent if it is not "".
	token   string
	account store.Account
	address string // as a trusted proxy names it
}

// newClient returns a client with an address of its own, so that no limit is shared.
func (f *fixture) newClient(t *testing.T) *client {
	t.Helper()
	f.mu.Lock()
	f.ip++
	address := fmt.Sprintf("198.51.%d.%d", f.ip/250, f.ip%250+1)
	f.mu.Unlock()
	c := &client{t: t, f: f, address: address}
	c.http.Jar, _ = cookiejar.New(nil)
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// send sends a request and returns the status and the body.
func (c *client) send(method, path string, body any, headers ...string) (int, []byte) {
	c.t.Helper()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			c.t.Fatal(err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.f.URL+path, r)
	if err != nil {
		c.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("X-Forwarded-For", c.address)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, out
}

type object = map[string]any

// want sends a request that must succeed, and returns its answer.
func want[T any](c *client, method, path string, body any) (out T) {
	c.t.Helper()
	status, text := c.send(method, path, body)
	if status/100 != 2 {
		c.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			c.t.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	return out
}

type item struct{ ID, Secret, Link, Role, Name string }

type itemList struct{ Items []item }

// setUp creates the first owner, and returns it with its organisation.
func (f *fixture) setUp(t *testing.T) (owner *client, organisation string) {
	t.Helper()
	link, err := f.OfferSetup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(link, "token=")
	owner = f.newClient(t)
	got := want[struct{ Account store.Account }](owner, "POST", "/api/v1/setup", object{"token": token, "name": "Ann",
		"email": "ann@example.com", "password": "password of ann", "organisation": "Shop"})
	owner.account = got.Account
	return owner, want[itemList](owner, "GET", "/api/v1/organisations", nil).Items[0].ID
}

// join returns a new member of an organisation.
func (c *client) join(organisation, email, role string) *client {
	c.t.Helper()
	inviter := *c
	inviter.address = c.f.newClient(c.t).address
	i := want[item](&inviter, "POST", "/api/v1/organisations/"+organisation+"/invitations",
		object{"email": email, "role": role})
	_, token, _ := strings.Cut(i.Link, "token=")
	member := c.f.newClient(c.t)
	member.account = want[struct{ Account store.Account }](member, "POST", "/api/v1/signup",
		object{"token": token, "name": email,
			"password": "password of " + email}).Account
	return member
}

// program returns a client with an API token.
func (c *client) program(organisation, role string) *client {
	c.t.Helper()
	p := c.f.newClient(c.t)
	p.account = c.account
	p.token = want[item](c, "POST", "/api/v1/organisations/"+organisation+"/tokens", object{"name": "ci",
		"role": role, "days": 1}).Secret
	return p
}

func TestFirstSteps(t *testing.T) {
	t.Parallel()
	for kind, database := range map[string]func(t *testing.T) string{"sqlite": func(t *testing.T) string { return filepath.Join(t.TempDir(), "server.db") },
		"postgres": func(t *testing.T) string { return ktest.PostgresDatabase(t) }} {
		t.Run(kind, func(t *testing.T) {
			f := startServerOn(t, database(t))
			owner, shop := f.setUp(t)
			if link, err := f.OfferSetup(t.Context()); link != "" || err != nil {
				t.Errorf("a second link: %q, %v", link, err)
			}
			bob := owner.join(shop, "bob@example.com", "admin")
			carol := bob.join(shop, "carol@example.com", "member")
			if got := want[itemList](carol, "GET", "/api/v1/organisations/"+shop+"/members",
				nil); len(got.Items) != 3 || got.Items[1].Role != "admin" {
				t.Errorf("got %+v", got)
			}
			again := f.newClient(t)
			want[object](again, "POST", "/api/v1/login", object{"email": "Bob@Example.com",
				"password": "password of bob@example.com"})
			want[object](again, "POST", "/api/v1/logout", nil)
			if status, _ := again.send("GET", "/api/v1/me", nil); status != http.StatusUnauthorized {
				t.Errorf("after the logout: %d", status)
			}
			f.wantRecorded(t, "setup done", "invite done", "signup done", "login done", "logout done")
		})
	}
}

// wantRecorded verifies the ledger, and finds these ends of changes in this order, each with a beginning before it.
func (f *fixture) wantRecorded(t *testing.T, ends ...string) {
	t.Helper()
	report, err := ledger.Verify(f.dir)
	if err != nil || !report.OK {
		t.Fatalf("the ledger does not verify: %+v, %v", report, err)
	}
	begun := map[string]int{}
	for _, e := range f.events(t) {
		if e.Result == "" {
			begun[e.Operation]++
			continue
		}
		if begun[e.Operation]--; begun[e.Operation] < 0 {
			t.Errorf("%s ended without a beginning", e.Operation)
		}
		if len(ends) > 0 && e.Operation+" "+e.Result == ends[0] {
			ends = ends[1:]
		}
	}
	if len(ends) > 0 {
		t.Errorf("not recorded: %q", ends)
	}
}

type event struct {
	Operation, Account, Organisation, Subject, Address, Result, Detail string
}

func (f *fixture) events(t *testing.T) (all []event) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(f.dir, "*.jsonl"))
	if err != nil || len(names) == 0 {
		t.Fatal("no segments", err)
	}
	for _, name := range names {
		segment, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer segment.Close()
		for e, err := range audit.Scan(segment, audit.Head{}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind != control.AdminEvent {
				continue
			}
			var one event
			if err := json.Unmarshal(e.Data, &one); err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
	}
	return all
}
