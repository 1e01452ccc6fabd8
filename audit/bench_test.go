package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// BenchmarkLedger compares the cost of reading a ledger with SHA-256 over the same lines, in one run: the lines alone,
// the chain, the chain and the tree, and a complete verification.
func BenchmarkLedger(b *testing.B) {
	const calls = 5000
	data := calling(b, calls)
	lines := bytes.SplitAfter(data, []byte("\n"))
	lines = lines[:len(lines)-1]
	for _, row := range []struct {
		name string
		read func() error
	}{
		{"sha256", func() error {
			for _, l := range lines {
				sha256.Sum256(l)
			}
			return nil
		}},
		{"chain", func() error { _, err := Follow(bytes.NewReader(data), Head{}, nil); return err }},
		{"tree", func() error { _, err := Follow(bytes.NewReader(data), Head{}, new(Tree)); return err }},
		{"verify", func() error {
			r, err := Verify(bytes.NewReader(data))
			if err == nil && !r.OK {
				err = r.FirstBad
			}
			return err
		}},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				do(b, row.read())
			}
			b.ReportMetric(float64(b.N)*float64(len(lines))/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// calling returns a ledger of this many calls, as a gateway writes it.
func calling(t testing.TB, calls int) []byte {
	var entries []Entry
	for i := range calls {
		id := fmt.Sprintf("r-%026d", i)
		entries = append(entries,
			Entry{Kind: KindIntent, Time: time.Unix(int64(i), 0), Data: json.RawMessage(`{"receipt":"` + id + `","capability":"git.status","input":{"repo":"."},"agent":"local","host":"castle","session":"s-01234567890123456789012345","door":"cli","startedAt":"2026-11-03T09:00:02.123456789Z"}`)},
			Entry{Kind: KindOutcome, Time: time.Unix(int64(i), 0), Data: json.RawMessage(`{"receipt":"` + id + `","outcome":"ok","decision":"allow","rules":[{"id":"starter-read","source":"starter.cedar:3"}],"executed":true,"argv":["git","status"],"cage":{"cage":"full","sandboxEnforced":true,"layers":["userns","mount","pid","net"]},"exitCode":0,"stdoutBytes":123,"endedAt":"2026-11-03T09:00:03Z"}`)})
	}
	return chain(t, entries...)
}

func BenchmarkSign(b *testing.B) {
	book := newBook(b, 1)
	for b.Loop() {
		book.sign(1, 1)
	}
}
