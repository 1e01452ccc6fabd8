package control_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/fleet"
	"bailey/internal/ktest"
	"bailey/internal/ledger"
	"bailey/internal/ledger/notary"
	"bailey/internal/store"
	"bailey/internal/witness"
)

// wire is a stream in memory; the test is the host.
type wire struct {
	t        *testing.T
	up, down chan *fleet.Frame
	ctx      context.Context
	ended    chan error
}

func (w *wire) Send(f *fleet.Frame) error {
	select {
	case w.down <- f:
		return nil
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
}

func (w *wire) Recv() (*fleet.Frame, error) {
	select {
	case f := <-w.up:
		return f, nil
	case <-w.ctx.Done():
		return nil, context.Cause(w.ctx)
	}
}

// say sends a frame as the host.
func (w *wire) say(f *fleet.Frame) {
	w.t.Helper()
	select {
	case w.up <- f:
	case <-w.ctx.Done():
		w.t.Fatalf("the connection has ended before %+v", f)
	}
}

// hear returns the next frame of the server that is not a heartbeat.
func (w *wire) hear() *fleet.Frame {
	w.t.Helper()
	for {
		select {
		case f := <-w.down:
			if f.Heartbeat == nil {
				return f
			}
		case err := <-w.ended:
			w.t.Fatalf("the server ended the connection: %v", err)
		}
	}
}

// end waits until the server ends the connection, and returns why.
func (w *wire) end() error {
	w.t.Helper()
	for {
		select {
		case <-w.down:
		case err := <-w.ended:
			return err
		case <-time.After(20 * time.Second):
			w.t.Fatal("the server keeps the connection")
		}
	}
}

// connect serves a stream for a host.
func (f *fixture) connect(t *testing.T, token string) *wire {
	t.Helper()
	host, err := f.AdmitHost(t.Context(), token, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &wire{t, make(chan *fleet.Frame), make(chan *fleet.Frame, 1000), ctx, make(chan error, 1)}
	go func() { w.ended <- f.Hosts.ServeHost(ctx, host, w); cancel() }()
	t.Cleanup(cancel)
	return w
}

// register connects a gateway and returns its welcome.
func (f *fixture) register(t *testing.T, token string, r fleet.Register) (*wire, *fleet.Welcome) {
	t.Helper()
	w := f.connect(t, token)
	r.Kind, r.Version = fleet.Gateway, "test"
	w.say(&fleet.Frame{Register: &r})
	got := w.hear().Welcome
	if got == nil {
		t.Fatal("no welcome")
	}
	return w, got
}

// addGateway returns the id and the token of a new gateway.
func addGateway(c *client, organisation, name string) (id, token string) {
	c.t.Helper()
	h := want[item](c, "POST", "/api/v1/organisations/"+organisation+"/hosts", object{"name": name, "kind": "gateway", "days": 1})
	return h.ID, h.Secret
}

func onBothDatabases(t *testing.T, run func(t *testing.T, f *fixture)) {
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			database := filepath.Join(t.TempDir(), "server.db")
			if kind == "postgres" {
				database = ktest.PostgresDatabase(t)
			}
			run(t, startServerOn(t, database))
		})
	}
}

// TestEventsOnce: each event is stored once, over breaks and repetitions; one that is missing ends the connection; one
// that the handler refuses does not hold up the next.
func TestEventsOnce(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, f *fixture) {
		owner, shop := f.setUp(t)
		_, token := addGateway(owner, shop, "laptop")
		var mu sync.Mutex
		var seen []string
		f.Hosts.OnEvent("spend", func(_ context.Context, _ *store.Tx, _ store.Host, e fleet.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if string(e.Body) == `"bad"` {
				return bailey.Invalid.New("bad", "")
			}
			seen = append(seen, string(e.Body))
			return nil
		})
		queue := fleet.NewID()
		w, _ := f.register(t, token, fleet.Register{Queue: queue})
		for i, body := range []string{"1", `"bad"`, "3"} {
			w.say(&fleet.Frame{Event: &fleet.Event{Seq: uint64(i + 1), Kind: "spend", Body: []byte(body)}})
			if a := w.hear().Ack; a == nil || a.Seq != uint64(i+1) {
				t.Fatalf("%+v", a)
			}
		}
		w, welcome := f.register(t, token, fleet.Register{Queue: queue})
		if welcome.Acked != 3 {
			t.Errorf("%+v", welcome)
		}
		for _, seq := range []uint64{2, 3, 4} { // two are repeated
			w.say(&fleet.Frame{Event: &fleet.Event{Seq: seq, Kind: "spend", Body: []byte(fmt.Sprint(seq))}})
			w.hear()
		}
		mu.Lock()
		if !slices.Equal(seen, []string{"1", "3", "4"}) {
			t.Errorf("stored %v", seen)
		}
		mu.Unlock()
		w.say(&fleet.Frame{Event: &fleet.Event{Seq: 6, Kind: "spend", Body: []byte("6")}})
		if err := w.end(); !errors.Is(err, bailey.Conflict) {
			t.Errorf("after a gap: %v", err)
		}
		if _, welcome = f.register(t, token, fleet.Register{Queue: fleet.NewID()}); welcome.Acked != 0 {
			t.Errorf("a new queue begins at %d", welcome.Acked)
		}
	})
}

// TestCommandsReachHosts: a command waits for its host, is sent again after a break, and its result arrives once.
func TestCommandsReachHosts(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, f *fixture) {
		owner, shop := f.setUp(t)
		id, token := addGateway(owner, shop, "laptop")
		if _, err := f.Hosts.Send(t.Context(), "o-other", id, "kill", nil); !errors.Is(err, bailey.NotFound) {
			t.Errorf("a host of another organisation: %v", err)
		}
		type reply struct {
			body []byte
			err  error
		}
		replies := make(chan reply, 1)
		go func() {
			body, err := f.Hosts.Send(t.Context(), shop, id, "kill", []byte(`{"agent":"a"}`))
			replies <- reply{body, err}
		}()
		queue := fleet.NewID()
		var first string
		for range 2 { // it breaks before the result
			w, _ := f.register(t, token, fleet.Register{Queue: queue})
			m := w.hear().Command
			if m == nil || m.Kind != "kill" || string(m.Body) != `{"agent":"a"}` || first != "" && m.ID != first {
				t.Fatalf("%+v", m)
			}
			first = m.ID
		}
		w, _ := f.register(t, token, fleet.Register{Queue: queue})
		w.hear()
		for range 2 {
			w.say(&fleet.Frame{Result: &fleet.Result{ID: first, Body: []byte("1")}})
			if taken := w.hear().Taken; taken == nil || taken.ID != first {
				t.Fatal("the result was not taken")
			}
		}
		if r := <-replies; r.err != nil || string(r.body) != "1" {
			t.Errorf("%+v", r)
		}
		w.say(&fleet.Frame{Result: &fleet.Result{ID: fleet.NewID(), Body: []byte("2")}}) // of nobody
		w.hear()
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
		defer cancel()
		if _, err := f.Hosts.Send(ctx, shop, id, "kill", nil); !errors.Is(err, bailey.Unavailable) {
			t.Errorf("a host that does not answer: %v", err)
		}
	})
}

// TestFaultEndsConnection: a fault of the server in a frame of a host ends the connection of that host alone, and the
// database stays usable.
func TestFaultEndsConnection(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	id, token := addGateway(owner, shop, "laptop")
	_, other := addGateway(owner, shop, "other")
	f.Hosts.OnEvent("fault", func(context.Context, *store.Tx, store.Host, fleet.Event) error { panic("of a test") })
	f.Hosts.OnEvent("spend", func(context.Context, *store.Tx, store.Host, fleet.Event) error { return nil })
	w, _ := f.register(t, token, fleet.Register{Queue: fleet.NewID()})
	v, _ := f.register(t, other, fleet.Register{Queue: fleet.NewID()})
	w.say(&fleet.Frame{Event: &fleet.Event{Seq: 1, Kind: "fault", Body: []byte("1")}})
	if err := w.end(); !errors.Is(err, bailey.Internal) || strings.Contains(err.Error(), "of a test") {
		t.Errorf("got %v", err)
	}
	if f.Hosts.Connected(id) {
		t.Error("the host counts as connected")
	}
	v.say(&fleet.Frame{Event: &fleet.Event{Seq: 1, Kind: "spend", Body: []byte("1")}})
	if a := v.hear().Ack; a == nil || a.Seq != 1 {
		t.Errorf("another host got %+v", a)
	}
}

// TestLargeResult: a result that is too large is an error for the caller, and only the error is stored.
func TestLargeResult(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	id, token := addGateway(owner, shop, "laptop")
	w, _ := f.register(t, token, fleet.Register{Queue: fleet.NewID()})
	large := strings.Repeat("x", 64<<10+1)
	for _, r := range []fleet.Result{{Body: []byte(large)}, {Error: &fleet.Fault{Kind: "denied", Message: large}}} {
		failed := make(chan error, 1)
		go func() {
			_, err := f.Hosts.Send(t.Context(), shop, id, "kill", []byte("{}"))
			failed <- err
		}()
		r.ID = w.hear().Command.ID
		w.say(&fleet.Frame{Result: &r})
		if taken := w.hear().Taken; taken == nil || taken.ID != r.ID {
			t.Fatal("the result was not taken")
		}
		if err := <-failed; !errors.Is(err, bailey.Invalid) {
			t.Errorf("the caller got %.100v", err)
		}
		c, err := f.Store.CommandByID(t.Context(), r.ID)
		if err != nil || c.Done.IsZero() || c.Result != "" || c.Fault == "" || len(c.Fault) > 1000 {
			t.Errorf("stored a result of %d and a fault of %d bytes, %v", len(c.Result), len(c.Fault), err)
		}
	}
}

// TestOldCommandsAreForgotten: a server that runs removes commands whose deadline has passed.
func TestOldCommandsAreForgotten(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	id, _ := addGateway(owner, shop, "laptop")
	for name, deadline := range map[string]time.Duration{"old": -2 * time.Hour, "new": time.Minute} {
		err := f.Store.AddCommand(t.Context(), shop, store.Command{ID: name, Host: id, Kind: "kill", Body: "{}",
			Deadline: f.Now().Add(deadline)})
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, l, nil) }()
	f.until(t, "the old command is gone", func() bool {
		_, err := f.Store.CommandByID(t.Context(), "old")
		return errors.Is(err, bailey.NotFound)
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := f.Store.CommandByID(t.Context(), "new"); err != nil {
		t.Error(err)
	}
}

// TestHostileHosts: a host cannot speak for another one, answer its commands, or send what only the server may send.
func TestHostileHosts(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	victim, victimToken := addGateway(owner, shop, "victim")
	_, token := addGateway(owner, shop, "attacker")
	go f.Hosts.Send(t.Context(), shop, victim, "kill", nil)
	v, _ := f.register(t, victimToken, fleet.Register{Queue: fleet.NewID()})
	id := v.hear().Command.ID
	w, _ := f.register(t, token, fleet.Register{Queue: fleet.NewID()})
	w.say(&fleet.Frame{Result: &fleet.Result{ID: id, Body: []byte(`"forged"`)}})
	w.hear()
	if c, err := f.Store.CommandByID(t.Context(), id); err != nil || !c.Done.IsZero() {
		t.Errorf("another host has answered: %+v, %v", c, err)
	}
	w.say(&fleet.Frame{Welcome: &fleet.Welcome{}})
	if err := w.end(); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
	for name, first := range map[string]*fleet.Frame{
		"no registration": {Heartbeat: &fleet.Heartbeat{}},
		"another kind":    {Register: &fleet.Register{Kind: fleet.SandboxHost, Version: "1", Queue: fleet.NewID()}},
		"odd version":     {Register: &fleet.Register{Kind: fleet.Gateway, Version: "\x00", Queue: fleet.NewID()}},
		"foreign key": {Register: &fleet.Register{Kind: fleet.Gateway, Version: "1", Queue: fleet.NewID(),
			Ledger: &fleet.Ledger{Origin: "x", PublicKey: "y"}}},
	} {
		w := f.connect(t, token)
		w.say(first)
		if err := w.end(); bailey.KindOf(err) != bailey.Invalid && bailey.KindOf(err) != bailey.Denied {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, wrong := range []string{"", "x", token + "x", "bhost_" + strings.Repeat("a", 43)} {
		if _, err := f.AdmitHost(t.Context(), wrong, nil); !errors.Is(err, bailey.Denied) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// TestTokenEndsStream: a stream ends soon after its token has expired or was removed.
func TestTokenEndsStream(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	f.Heartbeat = 20 * time.Millisecond
	owner, shop := f.setUp(t)
	id, token := addGateway(owner, shop, "removed")
	_, other := addGateway(owner, shop, "expired")
	ws := map[string]*wire{}
	for _, token := range []string{token, other} {
		w, _ := f.register(t, token, fleet.Register{Queue: fleet.NewID()})
		ws[token] = w
		stop := make(chan struct{})
		defer close(stop)
		go func() { // it is not silent
			for {
				select {
				case w.up <- &fleet.Frame{Heartbeat: &fleet.Heartbeat{}}:
					time.Sleep(5 * time.Millisecond)
				case <-stop:
					return
				}
			}
		}()
	}
	want[object](owner, "DELETE", "/api/v1/organisations/"+shop+"/hosts/"+id, nil)
	if err := ws[token].end(); !errors.Is(err, bailey.Denied) {
		t.Error(err)
	}
	f.advance(25 * time.Hour)
	if err := ws[other].end(); !errors.Is(err, bailey.Denied) {
		t.Error(err)
	}
	if _, err := f.AdmitHost(t.Context(), other, nil); !errors.Is(err, bailey.Denied) {
		t.Errorf("an expired token: %v", err)
	}
}

// book is the ledger of a host with its notary.
type book struct {
	t    *testing.T
	log  *ledger.Log
	not  *notary.Notary
	kept []byte
}

func newBook(t *testing.T) *book {
	t.Helper()
	b := &book{t: t}
	var err error
	b.log, err = ledger.New(ledger.Config{Dir: filepath.Join(t.TempDir(), "ledger"), Host: "castle", Reserve: 1 << 20, Segment: 3000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.log.Close() })
	b.not = notary.New(notary.Config{Log: b.log, Keys: notary.KeyFiles{Dir: filepath.Join(t.TempDir(), "keys")},
		Keep: func(s []byte) error { b.kept = s; return nil }, KeepCosigned: func([]byte) error { return nil }})
	return b
}

func (b *book) registration() *fleet.Ledger {
	b.t.Helper()
	key, err := b.not.Key(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return &fleet.Ledger{Origin: key.Name(), PublicKey: key.String()}
}

// call records a call with its outcome.
func (b *book) call(agent string) {
	b.t.Helper()
	b.callAt(agent, time.Now().UTC())
}

func (b *book) callAt(agent string, at time.Time) {
	b.t.Helper()
	id := bailey.NewReceiptID()
	in := bailey.Intent{Receipt: id, Capability: "git.status", Agent: agent, Host: "castle", Session: "s-1", Door: "test",
		StartedAt: at}
	seal, err := b.log.Open(b.t.Context(), in)
	if err == nil {
		err = seal(bailey.Outcome{Receipt: id, Status: bailey.OK})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// after returns the lines after some entries, and the checkpoint over all.
func (b *book) after(from uint64) *fleet.Receipts {
	b.t.Helper()
	signed, err := b.not.Sign(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	r := &fleet.Receipts{From: from, Checkpoint: signed}
	for e, err := range b.log.Entries(b.t.Context(), ledger.Place{}, b.log.Durable()) {
		if err != nil {
			b.t.Fatal(err)
		}
		if line, _, err := audit.Append(e.Prev, e.Entry); err == nil && e.Seq > from {
			r.Lines = append(r.Lines, line...)
		}
	}
	return r
}

// openWitness lets the server cosign, and returns its key.
func (f *fixture) openWitness(t *testing.T) audit.Key {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := audit.WitnessKey("server", public)
	if err != nil {
		t.Fatal(err)
	}
	f.Cosigner, f.Witness = witness.NewCosigner(key, private, time.Now), key
	return key
}

type recordAnswer struct {
	Entries, Signed uint64
	Checkpoint, Key string
	Forked          time.Time
	Forks           []store.Fork
}

// TestRecord: the copy of a ledger grows over breaks without a line lost or doubled, is cosigned, found and exported,
// and the export verifies against the host's checkpoint and the witness.
func TestRecord(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, f *fixture) {
		key := f.openWitness(t)
		owner, shop := f.setUp(t)
		id, token := addGateway(owner, shop, "laptop")
		b := newBook(t)
		r := fleet.Register{Queue: fleet.NewID(), Ledger: b.registration()}
		held := uint64(0)
		for round := range 4 {
			w, welcome := f.register(t, token, r)
			if welcome.Receipts != held || welcome.Forked {
				t.Fatalf("%+v, want %d", welcome, held)
			}
			for range 5 {
				b.call(fmt.Sprint("agent-", round))
			}
			batch := b.after(held)
			half := strings.Index(string(batch.Lines[len(batch.Lines)/2:]), "\n") + len(batch.Lines)/2 + 1
			w.say(&fleet.Frame{Receipts: &fleet.Receipts{From: held, Lines: batch.Lines[:half]}})
			first := w.hear().Cosigned
			if first == nil || first.Size <= held || first.Line != nil || first.Forked {
				t.Fatalf("%+v", first)
			}
			if round == 2 { // it breaks half-way
				held = first.Size
				continue
			}
			w.say(&fleet.Frame{Receipts: &fleet.Receipts{From: first.Size, Lines: batch.Lines[half:], Checkpoint: batch.Checkpoint}})
			c := w.hear().Cosigned
			if c == nil || c.Forked || !strings.Contains(string(c.Line), "server") {
				t.Fatalf("%+v", c)
			}
			held = c.Size
		}
		var seqs []uint64
		for next := ""; ; {
			page := want[struct {
				Items []store.Receipt
				Next  string
			}](owner, "GET", "/api/v1/organisations/"+shop+"/receipts?limit=7&next="+next, nil)
			for _, i := range page.Items {
				seqs = append(seqs, i.Seq)
				if i.Status != "ok" || i.HostName != "laptop" {
					t.Errorf("%+v", i)
				}
			}
			if next = page.Next; next == "" {
				break
			}
		}
		if n := len(seqs); n != 20 || len(slices.Compact(slices.Sorted(slices.Values(seqs)))) != 20 {
			t.Errorf("%d receipts: %v", n, seqs)
		}
		for query, n := range map[string]int{"agent=agent-1": 5, "agent=nobody": 0, "status=open": 0, "capability=git.status": 20,
			"host=" + id: 20, "host=h-other": 0, "until=2020-01-01T00:00:00Z": 0, "since=2020-01-01T00:00:00Z": 20, "session=s-1": 20} {
			if got := len(want[itemList](owner, "GET", "/api/v1/organisations/"+shop+"/receipts?"+query, nil).Items); got != n {
				t.Errorf("%s: %d receipts, want %d", query, got, n)
			}
		}
		for _, query := range []string{"next=x", "since=yesterday", "limit=0", "agent=%00"} {
			if status, text := owner.send("GET", "/api/v1/organisations/"+shop+"/receipts?"+query, nil); status != http.StatusUnprocessableEntity {
				t.Errorf("%s: %d %s", query, status, text)
			}
		}
		_, export := owner.send("GET", "/api/v1/organisations/"+shop+"/hosts/"+id+"/ledger", nil)
		segments, checkpoint := unpack(t, export)
		trust := audit.Trust{Keys: []audit.Key{mustKey(t, r.Ledger.PublicKey)}, Witnesses: []audit.Key{key}, Quorum: 1}
		report, err := audit.Check{Trust: trust, Seen: [][]byte{checkpoint}}.Verify(readers(segments)...)
		if err != nil || !report.OK || report.Entries != held || len(segments) < 2 {
			t.Errorf("%d segments: %+v, %v", len(segments), report, err)
		}
		checkRewritten(t, segments, audit.Check{Trust: audit.Trust{Keys: trust.Keys}, Seen: [][]byte{b.kept}})
	})
}

// recordedHost returns the id of a new gateway of which the server has a ledger.
func recordedHost(c *client, organisation string) string {
	c.t.Helper()
	id, token := addGateway(c, organisation, "recorded at "+c.address)
	b := newBook(c.t)
	w, _ := c.f.register(c.t, token, fleet.Register{Queue: fleet.NewID(), Ledger: b.registration()})
	b.call("a")
	w.say(&fleet.Frame{Receipts: b.after(0)})
	if got := w.hear().Cosigned; got == nil || got.Size == 0 {
		c.t.Fatalf("%+v", got)
	}
	return id
}

// checkRewritten: a server that changes an entry of its copy, and every hash after it, is found out by a checkpoint that
// the host has signed.
func checkRewritten(t *testing.T, segments [][]byte, c audit.Check) {
	t.Helper()
	if report, err := c.Verify(readers(segments)...); err != nil || !report.OK {
		t.Fatalf("the true copy: %+v, %v", report.FirstBad, err)
	}
	var head audit.Head
	var prev audit.Hash
	var forged []byte
	for e, err := range audit.Scan(bytes.NewReader(segments[0]), head) {
		if err != nil {
			t.Fatal(err)
		}
		e.Data = bytes.ReplaceAll(e.Data, []byte("agent-0"), []byte("agent-x"))
		line, hash, err := audit.Append(prev, e)
		if err != nil {
			t.Fatal(err)
		}
		forged, prev = append(forged, line...), hash
	}
	if bytes.Equal(forged, segments[0]) {
		t.Fatal("nothing was changed")
	}
	for name, copy := range map[string][][]byte{"rewritten": {forged}, "rewritten in part": append([][]byte{forged}, segments[1:]...),
		"shortened": segments[:len(segments)-1]} {
		if report, err := c.Verify(readers(copy)...); err == nil && report.OK {
			t.Errorf("a %s copy verifies", name)
		}
	}
}

func readers(segments [][]byte) (all []io.Reader) {
	for _, s := range segments {
		all = append(all, bytes.NewReader(s))
	}
	return all
}

// TestForks: the server refuses a rewritten, a shortened and another ledger, keeps the evidence, and shows the host as
// forked; the copy stays as it was.
func TestForks(t *testing.T) {
	t.Parallel()
	for name, attack := range map[string]func(t *testing.T, f *fixture, w *wire, b *book, held uint64) *fleet.Cosigned{
		"other lines": func(t *testing.T, _ *fixture, w *wire, b *book, held uint64) *fleet.Cosigned {
			other := newBook(t)
			for range 10 {
				other.call("x")
			}
			w.say(&fleet.Frame{Receipts: &fleet.Receipts{From: held, Lines: other.after(held).Lines}})
			return w.hear().Cosigned
		},
		"fewer entries": func(t *testing.T, _ *fixture, w *wire, b *book, held uint64) *fleet.Cosigned {
			signed := b.kept
			b.call("x")
			w.say(&fleet.Frame{Receipts: b.after(held)})
			w.hear()
			said, err := audit.ReadCheckpoint(signed)
			if err != nil {
				t.Fatal(err)
			}
			w.say(&fleet.Frame{Receipts: &fleet.Receipts{From: said.Size, Checkpoint: signed}})
			return w.hear().Cosigned
		},
		"a checkpoint of other entries": func(t *testing.T, _ *fixture, w *wire, b *book, held uint64) *fleet.Cosigned {
			b.call("x")
			first := b.after(held)
			b.call("y")
			w.say(&fleet.Frame{Receipts: &fleet.Receipts{From: held, Lines: first.Lines, Checkpoint: b.after(held).Checkpoint}})
			return w.hear().Cosigned
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startServer(t)
			owner, shop := f.setUp(t)
			id, token := addGateway(owner, shop, "laptop")
			b := newBook(t)
			r := fleet.Register{Queue: fleet.NewID(), Ledger: b.registration()}
			w, _ := f.register(t, token, r)
			b.call("a")
			w.say(&fleet.Frame{Receipts: b.after(0)})
			held := w.hear().Cosigned.Size
			if c := attack(t, f, w, b, held); c == nil || !c.Forked {
				t.Fatalf("%+v", c)
			}
			got := want[recordAnswer](owner, "GET", "/api/v1/organisations/"+shop+"/hosts/"+id+"/record", nil)
			if got.Forked.IsZero() || len(got.Forks) != 1 || got.Forks[0].Evidence == "" || got.Forks[0].Reason == "" {
				t.Errorf("%+v", got)
			}
			w.say(&fleet.Frame{Receipts: b.after(got.Entries)})
			if c := w.hear().Cosigned; !c.Forked || c.Size != got.Entries {
				t.Errorf("receipts after a fork: %+v", c)
			}
			if _, welcome := f.register(t, token, r); !welcome.Forked {
				t.Error("a new connection is not told")
			}
		})
	}
}

// TestOtherLedger: a host that registers another ledger than before is marked, and a checkpoint that the log did not
// sign, broken lines and lines of nothing are refused without that.
func TestOtherLedger(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	_, token := addGateway(owner, shop, "laptop")
	b, other := newBook(t), newBook(t)
	r := fleet.Register{Queue: fleet.NewID(), Ledger: b.registration()}
	b.call("a")
	lines := b.after(0)
	for name, bad := range map[string]*fleet.Receipts{
		"unsigned": {Lines: lines.Lines, Checkpoint: other.after(0).Checkpoint},
		"half":     {Lines: lines.Lines[:len(lines.Lines)-5]},
		"garbage":  {Lines: []byte("{}\n")},
		"not text": {Lines: []byte("\xff\n")},
		"later":    {From: 5, Lines: lines.Lines},
	} {
		w, _ := f.register(t, token, r)
		w.say(&fleet.Frame{Receipts: bad})
		if err := w.end(); err == nil || bailey.KindOf(err) == bailey.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
	w, welcome := f.register(t, token, r)
	if welcome.Forked || welcome.Receipts != 0 {
		t.Fatalf("%+v", welcome)
	}
	w.say(&fleet.Frame{Receipts: lines})
	if c := w.hear().Cosigned; c.Forked || c.Size == 0 {
		t.Fatalf("%+v", c)
	}
	r.Ledger = other.registration()
	if _, welcome := f.register(t, token, r); !welcome.Forked {
		t.Error("another ledger is accepted")
	}
}

// TestManyKeys: the server refuses a ledger with more keys than it can hold, and does not take it for a fork.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	id, token := addGateway(owner, shop, "laptop")
	genesis := audit.Genesis{Format: audit.Format, Origin: strings.Repeat("0a", 16), Host: "castle"}
	var head audit.Head
	var lines []byte
	add := func(kind string, v any) {
		t.Helper()
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		line, hash, err := audit.Append(head.Hash, audit.Entry{Seq: head.Seq + 1, Time: time.Now().UTC(), Kind: kind, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		lines, head = append(lines, line...), audit.Head{Seq: head.Seq + 1, Hash: hash}
	}
	add(audit.KindGenesis, genesis)
	var first, old audit.Key
	var by ed25519.PrivateKey
	for i := range 1001 {
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		key, err := audit.LogKey(genesis.Name(), public)
		if err != nil {
			t.Fatal(err)
		}
		c := audit.KeyChange{Key: key}
		if i == 0 {
			first, by = key, private
		} else {
			c.Old = &old
		}
		c.Signature = ed25519.Sign(by, c.SignedText())
		add(audit.KindKey, c)
		old, by = key, private
	}
	r := fleet.Register{Queue: fleet.NewID(), Ledger: &fleet.Ledger{Origin: first.Name(), PublicKey: first.String()}}
	w, _ := f.register(t, token, r)
	most := bytes.LastIndexByte(lines[:len(lines)-1], '\n') + 1
	w.say(&fleet.Frame{Receipts: &fleet.Receipts{Lines: lines[:most]}})
	if c := w.hear().Cosigned; c == nil || c.Forked || c.Size != 1001 {
		t.Fatalf("1000 keys: %+v", c)
	}
	w.say(&fleet.Frame{Receipts: &fleet.Receipts{From: 1001, Lines: lines[most:]}})
	if err := w.end(); !errors.Is(err, bailey.Invalid) {
		t.Errorf("one more: %v", err)
	}
	if got := want[recordAnswer](owner, "GET", "/api/v1/organisations/"+shop+"/hosts/"+id+"/record", nil); got.Entries != 1001 ||
		!got.Forked.IsZero() {
		t.Errorf("%+v", got)
	}
}

// TestEmptyReceipts: a frame that brings nothing is answered while nothing can be written.
func TestEmptyReceipts(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	_, token := addGateway(owner, shop, "laptop")
	b := newBook(t)
	b.call("a")
	w, _ := f.register(t, token, fleet.Register{Queue: fleet.NewID(), Ledger: b.registration()})
	w.say(&fleet.Frame{Receipts: b.after(0)})
	held := w.hear().Cosigned.Size
	err := f.Store.Change(t.Context(), func(*store.Tx) error { // it has the lock of the database
		w.say(&fleet.Frame{Receipts: &fleet.Receipts{From: held}})
		for end := time.After(8 * time.Second); ; {
			select {
			case got := <-w.down:
				if got.Heartbeat != nil {
					continue
				}
				if got.Cosigned == nil || got.Cosigned.Size != held || got.Cosigned.Forked {
					t.Errorf("got %+v", got)
				}
				return nil
			case <-end:
				return errors.New("no answer")
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	w.say(&fleet.Frame{Receipts: &fleet.Receipts{From: held + 1}})
	if err := w.end(); !errors.Is(err, bailey.Conflict) {
		t.Errorf("after a gap: %v", err)
	}
}

// unpack returns the segments and the checkpoint of an export.
func unpack(t *testing.T, export []byte) (segments [][]byte, checkpoint []byte) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(export))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return segments, checkpoint
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(h.Name, "ledger/") {
			segments = append(segments, text)
		} else if h.Name == "checkpoint" {
			checkpoint = text
		}
	}
}

func mustKey(t *testing.T, text string) audit.Key {
	t.Helper()
	k, err := audit.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
