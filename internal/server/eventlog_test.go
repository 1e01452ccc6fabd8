//go:build linux

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/ledger"
	"bailey/internal/localapi/apitype"
)

// TestLoreAmongMany checks that a snapshot that is written while other goroutines record events contains all earlier
// events.
func TestLoreAmongMany(t *testing.T) {
	ktest.Long(t)
	dir := filepath.Join(t.TempDir(), "ledger")
	l, s := openLog(t, dir, 6000)
	ctx, stop := context.WithCancel(t.Context())
	var running, noting sync.WaitGroup
	running.Go(func() { s.writeSnapshots(ctx) })
	for n := range 8 {
		noting.Go(func() {
			for i := range 40 {
				pin := apitype.Pin{Program: bailey.Program{Path: fmt.Sprint("/bin/", i), SHA256: fmt.Sprint(n, i)}}
				if err := s.recordEvent(t.Context(), gateway.PinEvent, pin); err != nil {
					t.Error(err)
				}
			}
		})
	}
	noting.Wait()
	stop()
	running.Wait()
	want := textOf(t, s.lore)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	lores := 0
	truncations(t, dir, func(dir string, last audit.Entry, all State) {
		back := newReplay()
		if err := ledger.Backward(dir, back); err != nil {
			t.Fatal(err)
		}
		if got, err := back.rebuildState(); err != nil || textOf(t, got) != textOf(t, all) {
			t.Fatalf("after entry %d: %v", last.Seq, err)
		}
		if want = textOf(t, all); last.Kind == memoryEvent {
			lores++
		}
	})
	if lores == 0 || textOf(t, s.lore) != want {
		t.Errorf("%d were written; at the end it is\n%s\nof all entries\n%s", lores, textOf(t, s.lore), want)
	}
}

// TestAllNoteThroughTheScribe checks that code outside the scribe writes only entries of kinds that are not remembered.
func TestAllNoteThroughTheScribe(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		beside := strings.Count(string(b), "ledger.Note") // a call, a value, or NoteCaged
		switch {
		case strings.HasSuffix(file, "_test.go"), file == "eventlog.go":
		case file == "jail.go" && beside == 1 && strings.Contains(string(b), "s.ledger.NoteCaged(ctx, apitype.JailRunEvent,") && entryHandlers()[apitype.JailRunEvent] == nil:
		case file == "packs.go" && beside == 1 && strings.Contains(string(b), "s.ledger.NoteCaged(ctx, apitype.PackOnboardEvent,") && entryHandlers()[apitype.PackOnboardEvent] == nil:
		case beside > 0:
			t.Errorf("%s notes in the ledger beside the scribe", file)
		}
	}
}

// FuzzReadBack checks that if arbitrary parts can be read back as a lore, writing it and reading it again gives the
// same lore.
func FuzzReadBack(f *testing.F) {
	var l State
	l.Pins.Keep(apitype.Pin{Program: bailey.Program{Path: "/p", SHA256: "1"}})
	list, err := l.snapshotParts(entryHandlers())
	if err != nil || len(list) != 1 {
		f.Fatal(err)
	}
	f.Add(list[0].Text, list[0].Text, 1, 1)
	f.Add(list[0].Text[:9], list[0].Text[9:], 1, 2)
	f.Add(`{"kinds":[],"settings":null,"clients":null,"pins":null}`, "", 1, 1)
	f.Add(strings.Replace(list[0].Text, `"/p":"1"`, `"/p":"1","/p":"2"`, 1), "{", 1, 1)
	f.Fuzz(func(t *testing.T, one, two string, number, of int) {
		digest := apitype.DigestOf(one + two)
		if of == 1 {
			digest = apitype.DigestOf(two)
		}
		events := []stateEvent{
			{1, memoryEvent, []byte(textOf(t, snapshotPart{loreFormat, digest, number, of, one}))},
			{2, memoryEvent, []byte(textOf(t, snapshotPart{loreFormat, digest, of, of, two}))},
		}
		got, ok := decodeState(entryHandlers(), events)
		if !ok {
			return
		}
		parts, err := got.snapshotParts(entryHandlers())
		if err != nil {
			t.Fatal(err)
		}
		var again []stateEvent
		for _, p := range parts {
			again = append(again, stateEvent{3, memoryEvent, []byte(textOf(t, p))})
		}
		if same, ok := decodeState(entryHandlers(), again); !ok || textOf(t, same) != textOf(t, got) {
			t.Errorf("%s, and again %s", textOf(t, got), textOf(t, same))
		}
	})
}

// BenchmarkStart opens a ledger with many receipts (BAILEY_BENCH_RECEIPTS; the published figures are for a million)
// that has no snapshot, and then again with a snapshot.
func BenchmarkStart(b *testing.B) {
	n, _ := strconv.Atoi(os.Getenv("BAILEY_BENCH_RECEIPTS"))
	dir := filepath.Join(b.TempDir(), "ledger")
	writeReceipts(b, dir, max(n, 20_000))
	for _, name := range []string{"first", "again"} {
		began := time.Now()
		l, s := openLog(b, dir, 0)
		b.Logf("%s: opened and remembered in %v, %d programs", name, time.Since(began), len(s.lore.Pins.Programs))
		began = time.Now()
		at, err := l.Stand()
		b.Logf("a look: %v for %d of %d entries in %d segments, %v", time.Since(began), at.Verified, at.Entries, at.Segments, errors.Join(err, l.Close()))
	}
}

// writeReceipts writes a ledger directly: pins, and receipts in segments of 64 MiB.
func writeReceipts(t testing.TB, dir string, receipts int) {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Mkdir(dir, 0o700))
	var out bytes.Buffer
	var head audit.Head
	var tree audit.Tree
	segment, now := 0, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	entry := func(kind string, data any) {
		line, hash, err := audit.Append(head.Hash, audit.Entry{Seq: head.Seq + 1, Time: now, Kind: kind, Data: []byte(textOf(t, data))})
		check(err)
		out.Write(line)
		tree.Add(audit.Leaf(line))
		head = audit.Head{Seq: head.Seq + 1, Hash: hash}
	}
	flush := func() {
		segment++
		check(os.WriteFile(filepath.Join(dir, fmt.Sprintf("%08d.jsonl", segment)), out.Bytes(), 0o600))
		out.Reset()
	}
	entry(audit.KindGenesis, audit.Genesis{Format: audit.Format, Origin: strings.Repeat("0", 32), Host: "castle"})
	for i := range 12 {
		entry(gateway.PinEvent, apitype.Pin{Program: bailey.Program{Path: fmt.Sprint("/bin/", i), SHA256: apitype.DigestOf("x")}})
	}
	for i := range receipts {
		id := bailey.ReceiptID(fmt.Sprintf("r-%026d", i))
		entry(audit.KindIntent, bailey.Intent{Receipt: id, Capability: "git.status", Input: json.RawMessage(`{"repo":"."}`), Agent: "agent", Person: "me",
			Host: "castle", Session: bailey.SessionID(fmt.Sprintf("s-%026d", i/50)), Door: "mcp", Dir: "/home/me/project", StartedAt: now})
		entry(audit.KindOutcome, bailey.Outcome{Receipt: id, Status: bailey.OK, Decision: "allow", Executed: new(true),
			Rules: []bailey.Rule{{ID: "starter", Source: "starter.cedar:3"}}, Argv: []string{"git", "status"}, EndedAt: now})
		if out.Len() > 64<<20 {
			flush()
			entry(audit.KindSegment, audit.Start{Size: head.Seq, Head: head.Hash, Root: tree.Root(), Edge: tree.Edge(), Open: []bailey.ReceiptID{}})
		}
	}
	flush()
}
