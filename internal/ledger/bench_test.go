package ledger

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"bailey"
)

// BenchmarkRaw is the baseline: one caller writes 512 bytes and syncs as often as it can.
func BenchmarkRaw(b *testing.B) {
	f, err := os.OpenFile(b.TempDir()+"/raw", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	do(b, err)
	defer f.Close()
	line := []byte(strings.Repeat("x", 511) + "\n")
	for b.Loop() {
		if _, err := f.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := (segment{f}).Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNote(b *testing.B) {
	data := map[string]string{"text": strings.Repeat("x", 300)}
	atOnce(b, func(l *Log) error { return l.Note(context.Background(), "note", data) })
}

func BenchmarkCall(b *testing.B) {
	atOnce(b, func(l *Log) error {
		seal, err := l.Open(context.Background(), intent())
		if err != nil {
			return err
		}
		return seal(bailey.Outcome{Status: bailey.OK, Decision: "allow", Executed: new(true), Argv: []string{"echo", "hi"}})
	})
}

// atOnce runs f b.N times with 1, 8 and 64 callers.
func atOnce(b *testing.B, f func(*Log) error) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			l := open(b, Config{Dir: place(b)})
			b.ResetTimer()
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for i := c; i < b.N; i += callers {
						if err := f(l); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "/s")
		})
	}
}

// BenchmarkOpen measures the start of a gateway, which verifies the whole chain.
func BenchmarkOpen(b *testing.B) {
	dir := place(b)
	l := open(b, Config{Dir: dir})
	var wg sync.WaitGroup
	for range 256 {
		wg.Go(func() {
			for range 200 {
				seal, err := l.Open(context.Background(), intent())
				if err == nil {
					err = seal(bailey.Outcome{Status: bailey.OK, Decision: "allow", Executed: new(true), Argv: []string{"echo", "hi"}})
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	do(b, l.Close())
	report := verified(b, dir)
	for b.Loop() {
		l, err := New(Config{Dir: dir})
		do(b, err)
		do(b, l.Close())
	}
	b.ReportMetric(float64(report.Entries)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/open")
}
