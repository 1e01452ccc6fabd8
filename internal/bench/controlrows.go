package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bailey/audit"
	"bailey/internal/fleet"
	"bailey/internal/ledger"
	"bailey/internal/ledger/notary"
	"bailey/internal/store"
)

// bindQuery writes the placeholders of a statement as the database wants them.
func (p *plane) bindQuery(query string) string {
	if !p.postgres {
		return query
	}
	var b strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// inRaw runs f in a transaction beside the store.
func (p *plane) inRaw(ctx context.Context, f func(exec func(query string, args ...any) error) error) error {
	tx, err := p.raw.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(func(query string, args ...any) error {
		_, err := tx.ExecContext(ctx, p.bindQuery(query), args...)
		return err
	}); err != nil {
		return err
	}
	return tx.Commit()
}

// addHost adds a gateway.
func (p *plane) addHost(ctx context.Context, name string) (store.Host, error) {
	return p.store.AddHost(ctx, store.Host{Organisation: p.organisation, Name: name, Kind: store.Gateway,
		Expires: time.Now().Add(24 * time.Hour)}, store.Hash(name))
}

// rawPlacement is what the placement of a sandbox on one of three hosts needs.
func (p *plane) rawPlacement(ctx context.Context, hosts []string, i int) error {
	tx, err := p.raw.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, host := range hosts {
		var body string
		var n, memory int64
		err := tx.QueryRowContext(ctx, p.bindQuery("SELECT body FROM host_resources WHERE host = ?"), host).Scan(&body)
		if err == nil {
			err = tx.QueryRowContext(
				ctx,
				p.bindQuery("SELECT count(*), COALESCE(SUM(memory_mb), 0) FROM sandboxes WHERE host = ? AND "+
					"state NOT IN ('failed', 'gone')"),
				host,
			).Scan(&n, &memory)
		}
		if err != nil {
			return err
		}
	}
	name, now := fmt.Sprintf("raw-%d", i), time.Now().UnixMicro()
	_, err = tx.ExecContext(
		ctx,
		p.bindQuery("INSERT INTO sandboxes (organisation, id, host, machine, name, image, network, cpus, memory_mb, "+
			"state, person, created, expires, seen, operation) VALUES (?, ?, ?, '', '', 'debian', '', 1, 1, 'creating', 'ada', ?, 0, 0, ?)"),
		p.organisation,
		name,
		hosts[0],
		now,
		name,
	)
	if err == nil {
		_, err = tx.ExecContext(
			ctx,
			p.bindQuery("INSERT INTO operations (organisation, id, host, host_name, sandbox, capability, account, "+
				"person, state, created, sent, begun, ended, deadline, receipt, input, result, fault, request_key, digest) VALUES "+
				"(?, ?, ?, 'h', ?, 'sandbox.create', 'a', 'ada', 'queued', ?, 0, 0, 0, ?, '', '{}', '', '', '', '')"),
			p.organisation,
			name,
			hosts[0],
			name,
			now,
			now+1e9,
		)
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

func (b planeBench) measurePlacement(ctx context.Context, p *plane) ([]Row, error) {
	var hosts []string
	for i := range 3 {
		h, err := p.addHost(ctx, fmt.Sprint("place ", i))
		if err == nil {
			err = p.store.Change(ctx,
				func(tx *store.Tx) error { return p.store.SetResources(ctx, tx, h.ID, []byte("{}")) })
		}
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, h.ID)
	}
	place := &store.Placement{Candidates: hosts, Box: store.SandboxBox{Image: "debian", CPUs: 1, MemoryMB: 1},
		Fits: func([]byte) (store.Resources, bool) {
			return store.Resources{CPUs: 1, MemoryMB: 1 << 30, FreeMB: 1 << 30, Sandboxes: 1 << 30}, true
		}}
	raw := "raw-sqlite"
	if p.postgres {
		raw = "raw-pg"
	}
	times := map[string][]time.Duration{}
	for i := range b.n {
		start := time.Now()
		if err := p.rawPlacement(ctx, hosts, i); err != nil {
			return nil, err
		}
		times[raw] = append(times[raw], time.Since(start))
		start = time.Now()
		_, _, _, err := p.store.AddOperation(
			ctx,
			p.organisation,
			store.Operation{ID: store.OperationPrefix + fleet.NewID(),
				Capability: "sandbox.create", Account: "a", Input: []byte("{}"), Deadline: start.Add(time.Hour)},
			place,
		)
		if err != nil {
			return nil, err
		}
		times["place"] = append(times["place"], time.Since(start))
	}
	rows, p50 := timeRows(times, "", raw, "place")
	for i := range rows {
		rows[i].PerSec = 1e6 / p50[rows[i].Name]
	}
	rows[1] = rows[1].comparedTo(raw, rows[1].PerSec, rows[0].PerSec, 0.7)
	return rows, nil
}

// stream is one end of a stream in memory.
type stream struct {
	ctx     context.Context
	in, out chan *fleet.Frame
}

func (s stream) Send(f *fleet.Frame) error {
	select {
	case s.out <- f:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

func (s stream) Recv() (*fleet.Frame, error) {
	select {
	case f := <-s.in:
		return f, nil
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}

func newStreams(ctx context.Context) (host, server stream) {
	up, down := make(chan *fleet.Frame, 4), make(chan *fleet.Frame, 4)
	return stream{ctx, down, up}, stream{ctx, up, down}
}

// connect registers a host, and returns its end of the stream.
func (p *plane) connectHost(ctx context.Context, h store.Host, l *fleet.Ledger) (stream, error) {
	host, server := newStreams(ctx)
	go p.Hosts.ServeHost(ctx, h, server)
	err := host.Send(
		&fleet.Frame{Register: &fleet.Register{Kind: fleet.Gateway, Version: "bench", Queue: fleet.NewID(), Ledger: l}})
	if err != nil {
		return host, err
	}
	f, err := host.Recv()
	if err == nil && f.Welcome == nil {
		err = fmt.Errorf("no welcome: %+v", f)
	}
	return host, err
}

// entriesOf writes a ledger with receipts, and returns its registration and its lines.
func (b planeBench) entriesOf(ctx context.Context, dir string) (l *fleet.Ledger, lines [][]byte, err error) {
	log, err := ledger.New(ledger.Config{Dir: filepath.Join(dir, "ledger"), Host: "gateway"})
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	n := notary.New(notary.Config{Log: log, Keys: notary.KeyFiles{Dir: filepath.Join(dir, "keys")},
		Keep: func([]byte) error { return nil }, KeepCosigned: func([]byte) error { return nil }})
	key, err := n.Key(ctx)
	if err != nil {
		return nil, nil, err
	}
	var left atomic.Int64
	left.Store(int64(b.receipts))
	var all sync.WaitGroup
	faults := make(chan error, 64)
	for range 64 {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := benchReceipt(ctx, log); err != nil {
					faults <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-faults:
		return nil, nil, err
	default:
	}
	for e, err := range log.Entries(ctx, ledger.Place{}, log.Durable()) {
		if err != nil {
			return nil, nil, err
		}
		line, _, err := audit.Append(e.Prev, e.Entry)
		if err != nil {
			return nil, nil, err
		}
		lines = append(lines, line)
	}
	return &fleet.Ledger{Origin: key.Name(), PublicKey: key.String()}, lines, nil
}

// inBatches cuts lines into batches as a gateway sends them.
func inBatches(lines [][]byte) (batches [][][]byte) {
	size := 0
	for i, from := 0, 0; i < len(lines); i++ {
		if size += len(lines[i]); size > 1<<20 || i == len(lines)-1 {
			batches, from, size = append(batches, lines[from:i+1]), i+1, 0
		}
	}
	return batches
}

func (b planeBench) measureIngest(ctx context.Context, p *plane) ([]Row, error) {
	dir, err := os.MkdirTemp("", "bailey-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	registration, lines, err := b.entriesOf(ctx, dir)
	if err != nil {
		return nil, err
	}
	h, err := p.addHost(ctx, "ingest")
	if err != nil {
		return nil, err
	}
	raw, err := p.addHost(ctx, "raw ingest")
	if err == nil {
		_, err = p.store.BeginLedger(ctx, raw, registration.Origin, registration.PublicKey)
	}
	if err != nil {
		return nil, err
	}
	host, err := p.connectHost(ctx, h, registration)
	if err != nil {
		return nil, err
	}
	var took, rawTook time.Duration
	from := uint64(0)
	for _, batch := range inBatches(lines) {
		start := time.Now()
		if err := p.writeRaw(ctx, raw.ID, from, batch); err != nil {
			return nil, err
		}
		rawTook += time.Since(start)
		start = time.Now()
		r := &fleet.Receipts{From: from}
		for _, line := range batch {
			r.Lines = append(r.Lines, line...)
		}
		if err := host.Send(&fleet.Frame{Receipts: r}); err != nil {
			return nil, err
		}
		f, err := host.Recv()
		if err != nil || f.Cosigned == nil || f.Cosigned.Size != from+uint64(len(batch)) {
			return nil, fmt.Errorf("the server did not take the lines: %+v, %w", f, err)
		}
		took, from = took+time.Since(start), f.Cosigned.Size
	}
	n := float64(len(lines))
	rows := []Row{{Name: "raw-ingest", N: len(lines), PerSec: n / rawTook.Seconds()},
		{Name: "ingest-receipts", N: len(lines), PerSec: n / took.Seconds()}}
	rows[1] = rows[1].comparedTo("raw-ingest", rows[1].PerSec, rows[0].PerSec, 0.5)
	return rows, nil
}

// writeRaw writes a batch of lines, and their receipts, in one transaction.
func (p *plane) writeRaw(ctx context.Context, host string, from uint64, batch [][]byte) error {
	return p.inRaw(ctx, func(exec func(string, ...any) error) error {
		for i, line := range batch {
			seq := int64(from) + int64(i) + 1
			err := exec("INSERT INTO entries (host, seq, segment, kind, line) VALUES (?, ?, 1, 'intent', ?)", host, seq,
				string(line))
			if err == nil && seq%2 == 0 {
				err = exec(
					"INSERT INTO receipts (host, seq, organisation, receipt, started, outcome, status, agent, session, capability) "+
						"VALUES (?, ?, ?, ?, ?, 0, 'open', 'coder', 's-1', 'git.status')",
					host,
					seq,
					p.organisation,
					fmt.Sprint("r-", seq),
					seq,
				)
			} else if err == nil {
				err = exec("UPDATE receipts SET outcome = ?, status = 'ok' WHERE host = ? AND receipt = ? AND outcome = 0", seq, host,
					fmt.Sprint("r-", seq-1))
			}
			if err != nil {
				return err
			}
		}
		return exec("UPDATE ledgers SET size = ? WHERE host = ?", int64(from)+int64(len(batch)), host)
	})
}

// measureRouting sends commands to simulated hosts, and beside that the same frames over bare streams with the same
// rows.
func (b planeBench) measureRouting(ctx context.Context, p *plane) ([]Row, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ids []string
	var bare []stream
	for i := range b.hosts {
		h, err := p.addHost(ctx, fmt.Sprint("route ", i))
		if err != nil {
			return nil, err
		}
		host, err := p.connectHost(ctx, h, nil)
		if err != nil {
			return nil, err
		}
		go answerCommands(host)
		other, server := newStreams(ctx)
		go answerCommands(other)
		ids, bare = append(ids, h.ID), append(bare, server)
	}
	locks := make([]sync.Mutex, len(bare))
	times := map[string][]time.Duration{}
	total := b.n * 10
	rawTook, err := b.inFlightTimes(ctx, total, &times, "raw-route", func(i int) error {
		at := i % len(bare)
		m := &fleet.Command{
			ID:       fleet.NewID(),
			Kind:     "status",
			Body:     []byte("{}"),
			Deadline: time.Now().Add(time.Minute),
		}
		return p.rawCommand(ctx, ids[at], m, func() error {
			locks[at].Lock()
			defer locks[at].Unlock()
			if err := bare[at].Send(&fleet.Frame{Command: m}); err != nil {
				return err
			}
			_, err := bare[at].Recv()
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	took, err := b.inFlightTimes(ctx, total, &times, "route-command", func(i int) error {
		_, err := p.Hosts.Send(ctx, p.organisation, ids[i%len(ids)], "status", []byte("{}"))
		return err
	})
	if err != nil {
		return nil, err
	}
	rows, _ := timeRows(times, "", "raw-route", "route-command")
	rows[0].PerSec, rows[1].PerSec = float64(total)/rawTook.Seconds(), float64(total)/took.Seconds()
	rows[1] = rows[1].comparedTo("raw-route", rows[1].PerSec, rows[0].PerSec, 0.7)
	return rows, nil
}

// rawCommand stores a command, sends it, and stores its end.
func (p *plane) rawCommand(ctx context.Context, host string, m *fleet.Command, send func() error) error {
	now := time.Now().UnixMicro()
	_, err := p.raw.ExecContext(
		ctx,
		p.bindQuery("INSERT INTO commands (id, host, kind, body, created, deadline, done, result, fault) "+
			"VALUES (?, ?, ?, '{}', ?, ?, 0, '', '')"),
		m.ID,
		host,
		m.Kind,
		now,
		m.Deadline.UnixMicro(),
	)
	if err == nil {
		err = send()
	}
	if err == nil {
		_, err = p.raw.ExecContext(ctx, p.bindQuery("UPDATE commands SET done = ?, result = '{}' WHERE id = ?"), now,
			m.ID)
	}
	return err
}

// answerCommands answers as a host.
func answerCommands(s stream) {
	for {
		f, err := s.Recv()
		if err != nil {
			return
		}
		if f.Command != nil &&
			s.Send(&fleet.Frame{Result: &fleet.Result{ID: f.Command.ID, Body: []byte("{}")}}) != nil {
			return
		}
	}
}

// inFlightTimes runs something n times, some of them at once, and returns the time that passed.
func (b planeBench) inFlightTimes(ctx context.Context, n int, times *map[string][]time.Duration, name string,
	do func(i int) error) (time.Duration, error) {
	var next atomic.Int64
	var mu sync.Mutex
	var fault error
	var all sync.WaitGroup
	start := time.Now()
	for range b.inFlight {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				begun := time.Now()
				err := do(i)
				mu.Lock()
				(*times)[name] = append((*times)[name], time.Since(begun))
				if err != nil {
					fault = err
					next.Store(int64(n))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return time.Since(start), fault
}

// fillReceipts writes receipts to search.
func (p *plane) fillReceipts(ctx context.Context, host string, n int) error {
	const step = 20_000
	for from := 0; from < n; from += step {
		err := p.inRaw(ctx, func(exec func(string, ...any) error) error {
			for i := from; i < min(from+step, n); i += 20 {
				rows := min(20, n-i)
				args := make([]any, 0, rows*9)
				for j := range rows {
					k := i + j
					args = append(args, host, k+10, p.organisation, fmt.Sprint("r-found-", k),
						1_700_000_000_000_000+int64(k)*1e6, []string{"ok", "ok", "ok", "denied", "failed"}[k%5],
						fmt.Sprint("agent-", k%37), fmt.Sprint("s-", k/50),
						[]string{"git.status", "git.push", "http.get", "npm.install"}[k%4])
				}
				values := strings.Repeat(", (?, ?, ?, ?, ?, 0, ?, ?, ?, ?)", rows)[2:]
				if err := exec("INSERT INTO receipts (host, seq, organisation, receipt, started, outcome, status, agent, session, "+
					"capability) VALUES "+values, args...); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// maxSearch is what a search may take, in microseconds.
const maxSearch = 50_000

func (b planeBench) measureSearch(ctx context.Context, p *plane) ([]Row, error) {
	h, err := p.addHost(ctx, "search")
	if err == nil {
		_, err = p.store.BeginLedger(ctx, h, "search", "key")
	}
	if err == nil {
		err = p.fillReceipts(ctx, h.ID, b.found)
	}
	if err == nil && p.postgres {
		_, err = p.raw.ExecContext(ctx, "ANALYZE receipts")
	}
	if err != nil {
		return nil, err
	}
	day := func(k int) time.Time { return time.UnixMicro(1_700_000_000_000_000 + int64(k)*1e6) }
	times := map[string][]time.Duration{}
	for i := range b.n {
		k := i * (b.found / b.n)
		f := []store.ReceiptFilter{{}, {Agent: fmt.Sprint("agent-", i%37)}, {Session: fmt.Sprint("s-", k/50)}, {Status: "denied"},
			{Capability: "git.push", Since: day(k)}, {Receipt: fmt.Sprint("r-found-", k)},
			{Agent: "agent-3", Status: "failed", Until: day(k + 1)}}[i%7]
		f.Limit = 51
		start := time.Now()
		if _, err := p.store.Receipts(ctx, p.organisation, f); err != nil {
			return nil, err
		}
		times["search"] = append(times["search"], time.Since(start))
	}
	row := newRow("search", times["search"])
	row.Facts = map[string]float64{"receipts": float64(b.found)}
	return []Row{row.comparedTo("50 ms", row.P50, maxSearch, 1)}, nil
}
