package mcp

import (
	"strings"
	"testing"
)

// BenchmarkStrict measures the check of a small message, and of one with a large text.
func BenchmarkStrict(b *testing.B) {
	for name, text := range map[string]string{
		"small": `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"git_log","arguments":{"repo":".","limit":5,"all":true,"paths":["a","b"]},"_meta":{"progressToken":7}}}`,
		"text":  `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","arguments":{"text":"` + strings.Repeat(`line of text\n`, 10_000) + `"}}}`,
		"list":  `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","arguments":{"list":[` + strings.Repeat(`{"a":1,"b":"c"},`, 5_000) + `{}]}}}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if err := checkStrictJSON([]byte(text)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
