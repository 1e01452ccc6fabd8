package modelwire

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"bailey/internal/redact"
)

// longSession returns a request of about n bytes as a coding agent sends it after many turns.
func longSession(n int) []byte {
	r := rand.New(rand.NewPCG(3, 4))
	words := strings.Fields(`func return if err != nil { } the build of main failed at line 123 in /usr/lib/go/src/net/http.go status: 200 "quoted" ` +
		`diff --git a/x b/x +++ --- from 10.1.2.3 commit 0f3c user=admin é`)
	prose := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			b.WriteString(words[r.IntN(len(words))])
			b.WriteByte(" \n\t"[r.IntN(3)])
		}
		return b.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"model":"claude-x","stream":true,"max_tokens":32000,"system":[{"type":"text","text":%s,"cache_control":{"type":"ephemeral"}}],"tools":[`, quoted(prose(12000)))
	for i := range 20 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"Tool%d","description":%s,"input_schema":{"type":"object","properties":{"path":{"type":"string","description":"a path"}},"required":["path"]}}`, i, quoted(prose(800)))
	}
	fmt.Fprintf(&b, `],"messages":[{"role":"user","content":[{"type":"text","text":%s}]}`, quoted(prose(2000)))
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `,{"role":"assistant","content":[{"type":"thinking","thinking":%s,"signature":"c2lnbmF0dXJl"},{"type":"text","text":%s},{"type":"tool_use","id":"toolu_%d","name":"Read","input":{"file_path":"/src/%d.go","limit":200}}]}`, quoted(prose(400)), quoted(prose(200)), i, i)
		fmt.Fprintf(&b, `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_%d","content":%s}]}`, i, quoted(prose(3000)))
	}
	b.WriteString("]}")
	return []byte(b.String())
}

// BenchmarkRequest measures a request of which all but the last message was seen before, and one that is new.
func BenchmarkRequest(b *testing.B) {
	for _, size := range []int{50 << 10, 1 << 20} {
		body := longSession(size)
		base := string(body[:len(body)-2])
		e := Endpoint{Dialect: Anthropic, Operation: Generate}
		for _, mode := range []string{"walk", "seen", "new"} {
			b.Run(fmt.Sprintf("%s/%dKB", mode, size>>10), func(b *testing.B) {
				rules, err := redact.Compile(redact.Config{})
				if err != nil {
					b.Fatal(err)
				}
				table := rules.NewTable()
				text := func(_ Where, s string) string { s, _ = table.Text(s); return s }
				if mode == "walk" {
					text = func(_ Where, s string) string { return s }
				}
				cache := NewCache(64 << 20)
				if mode == "seen" {
					if _, _, err := cache.Edit(e, 0, body, text); err != nil {
						b.Fatal(err)
					}
				}
				b.SetBytes(int64(len(body)))
				for i := 0; b.Loop(); i++ {
					if mode != "seen" {
						cache = nil
					}
					turn := fmt.Sprintf(`%s,{"role":"user","content":"turn %d of %s"}]}`, base, i, strings.Repeat("the build ", 100))
					if _, _, err := cache.Edit(e, 0, []byte(turn), text); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkStream measures one event of each dialect.
func BenchmarkStream(b *testing.B) {
	var a answer
	for range 200 {
		a.text = append(a.text, "some words of text ")
	}
	a.args = []string{`{"file_path":"/x","content":"`}
	for range 200 {
		a.args = append(a.args, `if err != nil {\n\t`)
	}
	a.args = append(a.args, `"}`)
	table := redact.NewTable()
	for d, stream := range streams {
		b.Run(string(d), func(b *testing.B) {
			in := stream(a)
			events := strings.SplitAfter(strings.ReplaceAll(in, "\r\n", "\n"), "\n\n")
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				s := NewStream(endpointOf(d), io.Discard, tableEditor{table})
				for _, e := range events {
					io.WriteString(s, e)
				}
				s.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
		})
	}
}

// tableEditor restores all tokens of a table.
type tableEditor struct{ table *redact.Table }

func (e tableEditor) Text(_ Where, s string) string { return e.table.Restore(s) }

func (e tableEditor) Writer(_ Where, out io.Writer) io.WriteCloser { return e.table.Restorer(out) }
