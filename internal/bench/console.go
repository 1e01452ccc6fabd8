package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/auth"
	"bailey/internal/control"
	"bailey/internal/fleet"
	"bailey/internal/ledger"
	"bailey/internal/store"
)

func (a *commands) benchConsoleVerb() *cobra.Command {
	var n int
	cmd := a.measureVerb(&cobra.Command{
		Use: "console", Short: "Time the pages of a control plane, and how soon they show news",
		Long: `Start a control plane with 1,000 receipts in a temporary directory on the disk of TMPDIR. Row render-1000 is
the page of all receipts, from the request in the server to its last byte. Each row page-NAME is a page with all
that it loads, over a new connection on loopback without a cache; its facts are the bytes on the wire. Row live is
the time from a gateway's event until a page that listens has loaded the new row.`,
	}, func(ctx context.Context, _ []string) ([]Row, error) {
		if n < 1 {
			return nil, bailey.Invalid.New("-n must be at least 1", "")
		}
		return benchConsole(ctx, n)
	})
	cmd.Flags().IntVarP(&n, "n", "n", 50, "number of requests")
	return cmd
}

// Limits of the rows.
const (
	renderLimit = 20 * time.Millisecond
	pageLimit   = 300 * time.Millisecond
	liveLimit   = 200 * time.Millisecond
	weightLimit = 100_000 // bytes
)

// consolePages are the pages that are timed, by the name of their row.
var consolePages = []struct{ name, path string }{{"overview", ""}, {"approvals", "/approvals"}, {"receipts", "/receipts"},
	{"hosts", "/hosts"}, {"members", "/members"}, {"tokens", "/tokens"}, {"settings", "/settings"}}

func benchConsole(ctx context.Context, n int) ([]Row, error) {
	b, err := newConsoleBench(ctx)
	defer b.close()
	if err != nil {
		return nil, err
	}
	render, err := repeatTimed(n, func() error { return b.renderReceipts() })
	if err != nil {
		return nil, err
	}
	row := newRow("render-1000", render)
	rows := []Row{row.comparedTo("20 ms", row.P50, toMicros(renderLimit), 1)}
	for _, p := range consolePages {
		var weight int64
		times, err := repeatTimed(n, func() (err error) { weight, err = b.loadPage(ctx, p.path); return err })
		if err != nil {
			return nil, err
		}
		row := newRow("page-"+p.name, times)
		row.Facts = map[string]float64{"bytes": float64(weight), "bytes_limit": weightLimit}
		rows = append(rows, row.comparedTo("300 ms", row.P50, toMicros(pageLimit), 1))
	}
	live, err := b.timeLive(ctx, n)
	if err != nil {
		return nil, err
	}
	row = newRow("live", live)
	return append(rows, row.comparedTo("200 ms", row.P50, toMicros(liveLimit), 1)), nil
}

// repeatTimed times f n times, after once without a measurement.
func repeatTimed(n int, f func() error) (times []time.Duration, err error) {
	for i := range n + 1 {
		begun := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		if i > 0 {
			times = append(times, time.Since(begun))
		}
	}
	return times, nil
}

// consoleBench is a control plane with one organisation, one gateway and 1,000 receipts.
type consoleBench struct {
	server  *control.Server
	handler http.Handler
	store   *store.Store
	url     string
	base    string // the path of the organisation's pages
	cookie  *http.Cookie
	host    store.Host
	stream  *benchStream
	closing []func()
}

func (b *consoleBench) close() {
	for i := len(b.closing) - 1; i >= 0; i-- {
		b.closing[i]()
	}
}

func newConsoleBench(ctx context.Context) (b *consoleBench, err error) {
	b = &consoleBench{}
	dir, err := os.MkdirTemp("", "bailey-bench-console-")
	if err != nil {
		return b, err
	}
	b.closing = append(b.closing, func() { os.RemoveAll(dir) })
	if b.store, err = store.Open(ctx, store.Config{URL: filepath.Join(dir, "server.db")}); err != nil {
		return b, err
	}
	b.closing = append(b.closing, func() { b.store.Close() })
	log, err := ledger.New(ledger.Config{Dir: filepath.Join(dir, "ledger"), Host: "server", Reserve: 1 << 20})
	if err != nil {
		return b, err
	}
	b.closing = append(b.closing, func() { log.Close() })
	keys, err := auth.NewKeyring(filepath.Join(dir, "server.keys"))
	if err != nil {
		return b, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return b, err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	public := &url.URL{Scheme: "http", Host: "localhost:" + port} // passkeys need a name
	b.url = public.String()
	b.server, err = control.New(control.Config{Store: b.store, Ledger: log, Keys: keys, Public: public, Version: "bench",
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		l.Close()
		return b, err
	}
	b.handler = b.server.Handler()
	web := &http.Server{Handler: b.handler, ReadHeaderTimeout: 10 * time.Second}
	go web.Serve(l)
	b.closing = append(b.closing, func() { web.Close() })
	if err = b.signUp(ctx); err == nil {
		err = b.fillStore(ctx)
	}
	return b, err
}

// signUp makes the owner of an organisation, who is signed in.
func (b *consoleBench) signUp(ctx context.Context) error {
	link, err := b.server.OfferSetup(ctx)
	if err != nil {
		return err
	}
	_, token, _ := strings.Cut(link, "token=")
	body, _ := json.Marshal(map[string]string{"token": token, "name": "Ann", "email": "ann@example.com",
		"password": "a password of the benchmark", "organisation": "Shop"})
	req := b.newRequest(ctx, "POST", "/api/v1/setup", bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, req)
	for _, c := range w.Result().Cookies() {
		b.cookie = c
	}
	if b.cookie == nil {
		return fmt.Errorf("the owner could not sign up: %d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	b.handler.ServeHTTP(w, b.newRequest(ctx, "GET", "/api/v1/organisations", nil))
	var all struct{ Items []struct{ ID string } }
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil || len(all.Items) != 1 {
		return fmt.Errorf("the organisation is missing: %d %s", w.Code, w.Body)
	}
	b.host.Organisation, b.base = all.Items[0].ID, "/o/"+all.Items[0].ID
	return nil
}

func (b *consoleBench) newRequest(ctx context.Context, method, path string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, body)
	if err != nil {
		panic(err) // the path is ours
	}
	if b.cookie != nil {
		req.AddCookie(b.cookie)
	}
	return req
}

// manyReceipts is how many receipts the control plane has.
const manyReceipts = 1000

// fill adds the receipts of a gateway, and connects it.
func (b *consoleBench) fillStore(ctx context.Context) (err error) {
	token := auth.NewToken(auth.HostToken)
	b.host, err = b.store.AddHost(ctx, store.Host{Organisation: b.host.Organisation, Name: "laptop", Kind: store.Gateway,
		Expires: time.Now().Add(time.Hour)}, store.Hash(token))
	if err != nil {
		return err
	}
	if _, err := b.store.BeginLedger(ctx, b.host, "bench", "key"); err != nil {
		return err
	}
	err = b.store.Change(ctx, func(tx *store.Tx) error {
		for i := range uint64(manyReceipts) {
			r := store.Receipt{Host: b.host.ID, Seq: 2*i + 3, Receipt: string(bailey.NewReceiptID()), Status: string(bailey.OK),
				Started: time.Now().Add(-time.Duration(i) * time.Minute), Agent: fmt.Sprintf("agent-%d", i%7),
				Session: fmt.Sprintf("s-%d", i/50), Capability: []string{"git.status", "files.read", "go.test"}[i%3]}
			if err := b.store.AddReceipt(ctx, tx, b.host.Organisation, r, ""); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	b.closing = append(b.closing, cancel)
	b.stream = &benchStream{ctx: ctx, up: make(chan *fleet.Frame), down: make(chan *fleet.Frame, 100)}
	go b.server.Hosts.ServeHost(ctx, b.host, b.stream)
	b.stream.up <- &fleet.Frame{Register: &fleet.Register{Kind: fleet.Gateway, Version: "bench", Queue: fleet.NewID()}}
	return b.stream.awaitFrame(func(f *fleet.Frame) bool { return f.Welcome != nil })
}

// benchStream is the stream of a gateway in memory.
type benchStream struct {
	ctx      context.Context
	up, down chan *fleet.Frame
	seq      uint64
}

// Send and Recv are the server's end.
func (s *benchStream) Send(f *fleet.Frame) error {
	select {
	case s.down <- f:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// Recv implements [fleet.Stream].
func (s *benchStream) Recv() (*fleet.Frame, error) {
	select {
	case f := <-s.up:
		return f, nil
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}

// await reads frames until one is wanted.
func (s *benchStream) awaitFrame(wanted func(*fleet.Frame) bool) error {
	limit := time.After(time.Minute)
	for {
		select {
		case f := <-s.down:
			if wanted(f) {
				return nil
			}
		case <-limit:
			return bailey.Unavailable.New("the server does not answer its gateway", "")
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// renderReceipts renders all receipts, without a connection.
func (b *consoleBench) renderReceipts() error {
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, b.newRequest(context.Background(), "GET", fmt.Sprintf("%s/receipts?limit=%d", b.base, manyReceipts), nil))
	if rows := bytes.Count(w.Body.Bytes(), []byte("<tr")); w.Code != http.StatusOK || rows < manyReceipts {
		return fmt.Errorf("the page of receipts has the status %d and %d rows", w.Code, rows)
	}
	return nil
}

// assets are what a page loads before it is complete.
var assets = regexp.MustCompile(`(?:src|href)="(/static/[^"]+\.(?:css|js|svg|png|woff2))"`)

// loadPage loads a page with its assets over a new connection, and returns the bytes on the wire.
func (b *consoleBench) loadPage(ctx context.Context, path string) (weight int64, err error) {
	t := &http.Transport{}
	defer t.CloseIdleConnections()
	text, weight, err := b.loadFile(ctx, t, b.base+path)
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	for _, m := range assets.FindAllSubmatch(text, -1) {
		if name := string(m[1]); !seen[name] {
			seen[name] = true
			_, n, err := b.loadFile(ctx, t, name)
			if err != nil {
				return 0, err
			}
			weight += n
		}
	}
	return weight, nil
}

func (b *consoleBench) loadFile(ctx context.Context, t *http.Transport, path string) (text []byte, weight int64, err error) {
	resp, err := t.RoundTrip(b.newRequest(ctx, "GET", path, nil))
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	head, err := httputil.DumpResponse(resp, false)
	if err != nil {
		return nil, 0, err
	}
	if text, err = io.ReadAll(resp.Body); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s has the status %d: %.300s", path, resp.StatusCode, text)
	}
	return text, int64(len(head) + len(text)), err
}

// timeLive times news: the gateway asks, the page that listens hears of it, and loads its list.
func (b *consoleBench) timeLive(ctx context.Context, n int) (times []time.Duration, err error) {
	resp, err := http.DefaultTransport.RoundTrip(b.newRequest(ctx, "GET", b.base+"/live", nil))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the events of the pages have the status %d", resp.StatusCode)
	}
	news := make(chan struct{}, 100)
	go func() {
		defer close(news)
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if lines.Text() == "event: approvals" {
				news <- struct{}{}
			}
		}
	}()
	for i := range n {
		begun := time.Now()
		id := fmt.Sprintf("a-bench%d", i)
		if err := b.askServer(id); err != nil {
			return nil, err
		}
		if err := b.awaitRow(ctx, news, id); err != nil {
			return nil, err
		}
		times = append(times, time.Since(begun))
	}
	return times, nil
}

// ask sends a question of the gateway.
func (b *consoleBench) askServer(id string) error {
	now := time.Now()
	a := fleet.Asked{ID: bailey.ApprovalID(id), Text: "question " + id, Digest: approvaltext.Digest("question " + id), Agent: "coder",
		Capability: "git.push", Impact: "mutating", Rules: []fleet.AskedRule{{ID: "push-asks"}}, Count: 1, At: now,
		Expires: now.Add(time.Hour)}
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	b.stream.seq++
	b.stream.up <- &fleet.Frame{Event: &fleet.Event{Seq: b.stream.seq, Kind: fleet.ApprovalAsked, Body: body}}
	return b.stream.awaitFrame(func(f *fleet.Frame) bool { return f.Ack != nil && f.Ack.Seq == b.stream.seq })
}

// awaitRow loads the list at each piece of news until it has the question.
func (b *consoleBench) awaitRow(ctx context.Context, news <-chan struct{}, id string) error {
	limit := time.After(time.Minute)
	for {
		select {
		case _, open := <-news:
			if !open {
				return bailey.Unavailable.New("the server has ended the events of the pages", "")
			}
		case <-limit:
			return bailey.Unavailable.New("no page learned of a question within a minute", "")
		}
		text, _, err := b.loadFile(ctx, http.DefaultTransport.(*http.Transport), b.base+"/approvals")
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("/approvals/"+id+`"`)) {
			return nil
		}
	}
}
