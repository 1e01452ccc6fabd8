package bench

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/control"
	"bailey/internal/ledger"
	"bailey/internal/store"
)

// planeBench is what bailey bench server measures.
type planeBench struct {
	n, logins, hosts, inFlight, receipts, found int
	postgres                                    string
}

func (a *commands) benchServerVerb() *cobra.Command {
	var b planeBench
	cmd := a.measureVerb(&cobra.Command{
		Use: "server", Short: "Compare the control plane with the smallest transactions that do the same",
		Long: `Time a sign-in (row login; its fact is the share of bcrypt), a request with a token (authorise), the receipts of
a gateway (ingest-receipts) beside their rows written by plain SQL (raw-ingest), a search among --found receipts
(search), a command to one of --hosts simulated gateways and back, --in-flight at once (route-command) beside the
bare streams with the same two rows written (raw-route), and the placement of a sandbox (place) beside its statements
(raw-sqlite, or raw-pg with --postgres). The server is a separate one, in a temporary directory on the disk of TMPDIR.`,
		Example: "  bailey bench server\n  bailey bench server --postgres postgres:///bench",
	}, func(ctx context.Context, _ []string) ([]Row, error) {
		if min(b.n, b.logins, b.hosts, b.inFlight, b.receipts, b.found) < 1 || b.logins > 15 {
			return nil, bailey.Invalid.New("the numbers must be at least 1, and --logins at most 15",
				"leave them out for the defaults")
		}
		return b.measureServer(ctx)
	})
	f := cmd.Flags()
	f.IntVarP(&b.n, "n", "n", 300, "number of requests and placements")
	f.IntVar(&b.logins, "logins", 10, "number of sign-ins")
	f.IntVar(&b.hosts, "hosts", 1000, "number of simulated gateways")
	f.IntVar(&b.inFlight, "in-flight", 64, "commands at once")
	f.IntVar(&b.receipts, "receipts", 4000, "number of receipts that arrive")
	f.IntVar(&b.found, "found", 1_000_000, "number of receipts that are searched")
	f.StringVar(&b.postgres, "postgres", "", "an empty PostgreSQL database, as a `URL`, instead of SQLite")
	return cmd
}

// plane is a control plane with an owner, and a connection to its database beside the store.
type plane struct {
	*control.Server
	store        *store.Store
	raw          *sql.DB
	postgres     bool
	url          string
	organisation string
	token        string
}

func (b planeBench) measureServer(ctx context.Context) (rows []Row, err error) {
	dir, err := os.MkdirTemp("", "bailey-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, end, err := openPlane(ctx, dir, b.postgres)
	if err != nil {
		return nil, err
	}
	defer end()
	for _, measure := range []func(context.Context, *plane) ([]Row, error){b.measureRequests, b.measurePlacement, b.measureIngest,
		b.measureRouting, b.measureSearch} {
		more, err := measure(ctx, p)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// password is that of the owner.
const password = "correct horse battery staple"

func openPlane(ctx context.Context, dir, postgres string) (p *plane, end func(), err error) {
	p = &plane{postgres: postgres != ""}
	database := filepath.Join(dir, "server.db")
	driver, source := "sqlite", (&url.URL{Scheme: "file", Path: database, RawQuery: url.Values{"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)"}}.Encode()}).String()
	if p.postgres {
		database, driver, source = postgres, "pgx", postgres
	}
	if p.store, err = store.Open(ctx, store.Config{URL: database}); err != nil {
		return nil, nil, err
	}
	log, err := ledger.New(ledger.Config{Dir: filepath.Join(dir, "ledger"), Host: "bench"})
	if err != nil {
		return nil, nil, err
	}
	keys, err := auth.NewKeyring(filepath.Join(dir, "keys"))
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	public := &url.URL{Scheme: "http", Host: "localhost:" + port}
	p.url = public.String()
	p.Server, err = control.New(
		control.Config{Store: p.store, Ledger: log, Keys: keys, Public: public, Version: "bench",
			Proxies: auth.Proxies{
				netip.MustParsePrefix("127.0.0.0/8"),
			}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
	)
	if err == nil {
		p.raw, err = sql.Open(driver, source)
	}
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, l, nil) }()
	end = func() { cancel(); <-done; p.raw.Close(); p.store.Close(); log.Close() }
	if err := p.makeOwner(ctx); err != nil {
		end()
		return nil, nil, err
	}
	return p, end, nil
}

// send sends a request as the address, and decodes the answer.
func (p *plane) sendJSON(ctx context.Context, method, path, address, cookie string,
	body, into any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, p.url+"/api/v1/"+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forwarded-For", address)
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	} else if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %.500s", method, path, answer.Status, got)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(got, into)
	}
	return answer, err
}

// makeOwner signs up the owner, and makes a token.
func (p *plane) makeOwner(ctx context.Context) error {
	link, err := p.OfferSetup(ctx)
	if err != nil {
		return err
	}
	_, token, _ := strings.Cut(link, "token=")
	answer, err := p.sendJSON(ctx, "POST", "setup", "192.0.2.1", "", map[string]string{"token": token, "name": "Ada",
		"email": "ada@example.com", "password": password, "organisation": "Bench"}, nil)
	if err != nil {
		return err
	}
	cookies := answer.Cookies()
	if len(cookies) == 0 {
		return fmt.Errorf("the setup gave no session")
	}
	cookie := cookies[0].Name + "=" + cookies[0].Value
	var mine struct{ Items []struct{ ID string } }
	if _, err := p.sendJSON(ctx, "GET", "organisations", "192.0.2.1", cookie, nil, &mine); err != nil {
		return err
	}
	p.organisation = mine.Items[0].ID
	var made struct{ Secret string }
	_, err = p.sendJSON(ctx, "POST", "organisations/"+p.organisation+"/tokens", "192.0.2.1", cookie,
		map[string]any{"name": "bench", "role": "admin", "days": 1}, &made)
	p.token = made.Secret
	return err
}

// measureRequests times sign-ins, and requests with a token.
func (b planeBench) measureRequests(ctx context.Context, p *plane) ([]Row, error) {
	times := map[string][]time.Duration{}
	passwords := auth.NewPasswords(1)
	hash, err := passwords.Hash(ctx, password)
	if err != nil {
		return nil, err
	}
	var checked time.Duration
	token := p.token
	for i := range b.logins {
		p.token = ""
		start := time.Now()
		_, err := p.sendJSON(ctx, "POST", "login", fmt.Sprintf("192.0.2.%d", 10+i), "",
			map[string]string{"email": "ada@example.com", "password": password}, nil)
		times["login"] = append(times["login"], time.Since(start))
		p.token = token
		if err != nil {
			return nil, err
		}
		start = time.Now()
		if _, err := passwords.Check(ctx, hash, password); err != nil {
			return nil, err
		}
		checked += time.Since(start)
	}
	for range b.n {
		start := time.Now()
		if _, err := p.sendJSON(ctx, "GET", "me", "192.0.2.1", "", nil, nil); err != nil {
			return nil, err
		}
		times["authorise"] = append(times["authorise"], time.Since(start))
	}
	rows, p50 := timeRows(times, "", "login", "authorise")
	rows[0].Facts = map[string]float64{"bcrypt_share": toMicros(checked) / float64(b.logins) / p50["login"]}
	rows[1].PerSec = 1e6 / p50["authorise"]
	return rows, nil
}
