//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey/audit"
	"bailey/internal/ktest"
)

// TestLoreWhenASegmentBegins checks that a running gateway writes a snapshot when the first segment is full. The next
// gateway must not need another one.
func TestLoreWhenASegmentBegins(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	y.must(y.program, "run", "system.echo", "-i", "message=first") // pins a program
	y.must(y.program, "gateway", "stop")
	first := filepath.Join(y.home.Ledger(), "00000001.jsonl")
	fill(t, first, 64<<20)
	y.must(y.program, "run", "system.echo", "-i", "message=second")
	second := filepath.Join(y.home.Ledger(), "00000002.jsonl")
	y.await("what is remembered", func() bool {
		b, err := os.ReadFile(second)
		return err == nil && strings.Contains(string(b), `"kind":"memory"`)
	})
	if out := y.must(y.program, "status"); !strings.Contains(out, "in 2 segments") || !strings.Contains(out, "run bailey audit verify to read all") {
		t.Errorf("status says\n%s", out)
	}
	y.must(y.program, "gateway", "stop")
	y.must(y.program, "run", "system.echo", "-i", "message=third")
	y.must(y.program, "gateway", "stop")
	b, err := os.ReadFile(second)
	if err != nil || strings.Count(string(b), `"kind":"memory"`) != 1 || strings.Contains(string(b), `"kind":"tool.pin"`) {
		t.Errorf("written down more than once, or pinned again: %v\n%s", err, b)
	}
	y.must(y.program, "audit", "verify")
}

// fill appends entries to the segment of a closed ledger until it has size bytes.
func fill(t *testing.T, name string, size int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var head audit.Head
	for e, err := range audit.Scan(f, head) {
		if err != nil {
			t.Fatal(err)
		}
		head = audit.Head{Seq: e.Seq, Hash: e.Hash}
	}
	data, err := json.Marshal(map[string]string{"x": strings.Repeat("x", 60<<10)})
	for err == nil {
		var line []byte
		if line, head.Hash, err = audit.Append(head.Hash, audit.Entry{Seq: head.Seq + 1, Time: time.Now(), Kind: "filler", Data: data}); err != nil {
			break
		}
		if _, err = f.Write(line); err != nil {
			break
		}
		head.Seq++
		if st, serr := f.Stat(); serr != nil || st.Size() >= size {
			err = serr
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
