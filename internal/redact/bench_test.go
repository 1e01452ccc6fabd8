package redact

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// prose returns n bytes of ordinary tool output: log lines, paths, hashes.
func prose(n int) []byte {
	r := rand.New(rand.NewPCG(5, 6))
	words := strings.Fields("the commit of main was merged by author on Date error warning in /usr/lib/go/src/net/http/server.go:123 " +
		"status: 200 OK - -- --- [INFO] [WARN] {\"key\": \"value\"} 10.0.0.7 func return if err != nil { } diff --git a/x b/x +++ ---")
	var b strings.Builder
	for b.Len() < n {
		if r.IntN(12) == 0 {
			fmt.Fprintf(&b, "%016x%016x\n", r.Uint64(), r.Uint64())
			continue
		}
		b.WriteString(words[r.IntN(len(words))] + " ")
	}
	return []byte(b.String()[:n])
}

func BenchmarkWriter(b *testing.B) {
	text := prose(1 << 20)
	for _, n := range []int{0, 1, 100, 1000} {
		r := rand.New(rand.NewPCG(7, 8))
		table := NewTable()
		for range n {
			table.Learn("K", fmt.Sprintf("ghp_%016x%016x", r.Uint64(), r.Uint64()))
		}
		for _, size := range []int{4 << 10, 32 << 10} {
			b.Run(fmt.Sprintf("secrets=%d/write=%d", n, size), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					w := table.Writer(io.Discard)
					for rest := text; len(rest) > 0; {
						k := min(size, len(rest))
						w.Write(rest[:k])
						rest = rest[k:]
					}
					w.Close()
				}
			})
		}
	}
}

func BenchmarkText(b *testing.B) {
	text := string(prose(1 << 20))
	table := NewTable()
	table.Learn("K", "hunter2hunter2")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		table.Text(text)
	}
}

// BenchmarkWorst measures output that a hostile tool could print: many finds, and an open block in small writes.
func BenchmarkWorst(b *testing.B) {
	for name, text := range map[string]string{
		"secrets": rep("hunter2hunter2", 1<<16), "marks": rep(mark, 1<<16), "begins": rep(beginMark, 1<<16), "dashes": rep("-", 1<<20),
		"open block": "-----BEGIN PRIVATE KEY-----" + rep("A", 1<<20),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				table := NewTable()
				table.Learn("K", "hunter2hunter2")
				w := table.Writer(io.Discard)
				for rest := text; len(rest) > 0; {
					k := min(16, len(rest))
					io.WriteString(w, rest[:k])
					rest = rest[k:]
				}
				w.Close()
			}
		})
	}
}
