//go:build unix

package redact

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// mixed returns n bytes of typical machine output: system and access logs, JSON, code, listings, builds, a little
// base64, and some secrets. Each line follows a pattern and has its own values.
func mixed(n int) []byte {
	r := rand.New(rand.NewPCG(21, 22))
	hex := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			fmt.Fprintf(&b, "%016x", r.Uint64())
		}
		return b.String()[:n]
	}
	ip := func() string { n := r.IntN(800); return fmt.Sprintf("10.%d.%d.%d", n%7, n%31, n%251) }
	word := func() string { return logWords[r.IntN(len(logWords))] }
	lines := []func() string{
		func() string {
			return fmt.Sprintf("Oct %2d %02d:%02d:%02d web-%d sshd[%d]: Accepted publickey for %s from %s port %d ssh2", 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(9), r.IntN(30000), word(), ip(), r.IntN(65000))
		},
		func() string {
			return fmt.Sprintf("%s - - [10/Oct/2026:13:%02d:%02d +0000] \"GET /%s/%s/%d?page=%d&sort=%s HTTP/1.1\" 200 %d \"-\" \"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120.0.0.0\"", ip(), r.IntN(60), r.IntN(60), word(), word(), r.IntN(9999), r.IntN(9), word(), r.IntN(99999))
		},
		func() string {
			return fmt.Sprintf(`{"time":"2026-10-10T12:%02d:%02d.%03dZ","level":"info","msg":"%s %s %s","trace":"%s","status":%d,"user":"%s","latency_ms":%d}`, r.IntN(60), r.IntN(60), r.IntN(1000), word(), word(), word(), hex(32), 200+r.IntN(300), word(), r.IntN(900))
		},
		func() string {
			return fmt.Sprintf("2026-10-10 18:%02d:%02d,%03d INFO [%s-%d] org.apache.%s.%s: %s %s the %s for %d seconds", r.IntN(60), r.IntN(60), r.IntN(999), word(), r.IntN(99), word(), word(), word(), word(), word(), r.IntN(500))
		},
		func() string {
			return fmt.Sprintf("\tif err := s.%s(ctx, %s); err != nil { // %s %s the %s", word(), word(), word(), word(), word())
		},
		func() string {
			return fmt.Sprintf("-rw-r--r-- 1 root root %8d Oct %2d 12:%02d /usr/lib/x86_64-linux-gnu/%s/%s-%d.%d.so.%d", r.IntN(1<<20), 1+r.IntN(28), r.IntN(60), word(), word(), r.IntN(9), r.IntN(20), r.IntN(9))
		},
		func() string {
			return fmt.Sprintf("ii  lib%s-%s:amd64   %d.%d.%d-1+deb12u%d   amd64   %s %s %s library", word(), word(), r.IntN(9), r.IntN(30), r.IntN(9), r.IntN(5), word(), word(), word())
		},
		func() string { return "commit " + hex(40) },
		func() string {
			return fmt.Sprintf("    %s the %s of %s and %s, then %s it again", word(), word(), word(), word(), word())
		},
		func() string {
			return fmt.Sprintf("step %d/%d : RUN go build -o /out/%s ./cmd/%s  ---> %s", r.IntN(20), 20, word(), word(), hex(12))
		},
	}
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(lines[r.IntN(len(lines))]())
		if i%500 == 0 {
			fmt.Fprintf(&b, "\nDB_PASSWORD=%s\nAuthorization: Bearer %s%s", hex(14), "A", hex(39))
		}
		b.WriteByte('\n')
	}
	return []byte(b.String()[:n])
}

var logWords = strings.Fields(`server connect request handler session started stopped worker queue commit index user admin cache build fetch
	response timeout retry kernel module driver memory thread process signal container image volume network bridge stream buffer
	error warning notice debug trace metrics export import parse render template schema table column record version release package
	depend install remove update upgrade status report monitor health check probe leader follower election replica shard balance
	limit quota policy rule grant deny allow token key value pair list item node edge graph path route host port address`)

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkRules(b *testing.B) {
	text := mixed(4 << 20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		w := ruled(b).NewTable().Writer(discard{})
		for rest := text; len(rest) > 0; {
			k := min(len(rest), 32<<10)
			w.Write(rest[:k])
			rest = rest[k:]
		}
		w.Close()
	}
}

// hostile holds texts that a tool could print to make redaction slow or use much memory.
var hostile = map[string]string{
	"word": "A", "digits": "1", "mixed": "aB3", "dots": "1.", "colons": "12:", "hex": "ab:", "groups": "abcd:12:", "keys": "key=", "tokens": "token=", "quotes": `token="`,
	"values": `password="x`, "brace": "{", "objects": `{"type":"`, "flat": `{"type":"a","type":"b",`, "dollars": "$1$", "hashes": "$6$ab$", "urls": "a://", "users": "a://b:c@",
	"at": "a:b@", "ats": "x:y@tcp(", "lines": strings.Repeat("QUJD", 19) + "\n", "text": strings.Repeat("bG9y", 19) + "\n", "pem": "MIIEpAIBAAKCAQEA" + strings.Repeat("Q", 48) + "\n",
	"escapes": "\x1b[31m", "half": "\x1b[3", "nul": "\x00", "wide": "a\x00", "github": "ghp_", "known": "ghp_0123456789abcdef0123456789abcdef0123/", "jwt": "eyJhbGciOiJIUzI1NiJ9.",
	"pgpass": "a:1:b:c:", "settings": "Endpoint=a;", "element": "<secret>a", "begin": "-----BEGIN PRIVATE KEY-----\n", "marks": "[REDACTED_", "names": "datadog 'x ", "dashes": "-", "slash": "/a",
	"equals": "=", "space": " ", "newline": "\n", "hot": "password ", "name": "- name: password\n", "jdbc": "jdbc:a", "padding": "QUJD=", "bearer": "Bearer ", "u": "-u a", "ipv6": "::1:", "ones": "1:2:3:4:5:6:7:",
	"underscore": "a_", "service": "Private-Lines: 1\n", "mysql": "mysql -pA1 ", "custom": "T-", "longline": "xyz T-", "listed": "password=a,", "encoded": "x%3D", "passwords": "password%3Da", "call": "token(", "phrase": "mnemonic: aaa ", "login": "login a:",
	"starred": "*:*:*:a:", "bots": "bot12345678:", "brackets": "[[", "nested": `{"a":`, "eyj": "eyJ", "letters": "a", "quote": `"`, "anchors": "password: &", "thin": "jdbc:oracle:a/", "ldap": "{SHA}", "user": "://a@",
	"scheme": "http://x.my.salesforce.com:", "html": "&quot;a", "twice": "&amp;quot;", "unicode": `\u0022`, "percent": "%22%26%5C", "layers": "%26amp;%5cu0026", "amps": "&", "backslashes": `\`, "encoded names": "password%3D%22x",
	"yaml": "password: |\n  a\n", "block": "  a b = c\n", "headers": "password: |\n",
}

// BenchmarkHostile measures each hostile text, and an ordinary one for comparison. None should be slower by more than a
// factor of about twenty.
func BenchmarkHostile(b *testing.B) {
	const size = 1 << 20
	for name, unit := range hostile {
		text := []byte(strings.Repeat(unit, size/len(unit)))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				w := ruled(b).NewTable().Writer(discard{})
				for rest := text; len(rest) > 0; {
					k := min(len(rest), 32<<10)
					w.Write(rest[:k])
					rest = rest[k:]
				}
				w.Close()
			}
		})
	}
}

// TestMemory checks that the memory of a Writer does not depend on the amount of text.
func TestMemory(t *testing.T) {
	ktest.Long(t)
	held := func(text []byte) int {
		w := ruled(t).NewTable().Writer(discard{})
		most := 0
		for len(text) > 0 {
			k := min(len(text), 32<<10)
			w.Write(text[:k])
			text = text[k:]
			most = max(most, cap(w.s.v.raw)+cap(w.s.v.b)+16*cap(w.s.v.cuts)+40*cap(w.s.finds)+cap(w.s.out))
		}
		w.Close()
		return most
	}
	const most = 1 << 20
	texts := map[string][]byte{"mixed": mixed(8 << 20), "colour": []byte(colour(string(mixed(1 << 20)))), "wide": []byte(wide(string(mixed(1<<20)), 0)),
		"finds": bytes.Repeat([]byte("password=hunter2hunter2 "), 200_000), "secret": bytes.Repeat([]byte("aB3dE5fG7h"), 300_000)}
	for name, text := range texts {
		few, all := held(text[:len(text)/8]), held(text)
		t.Logf("%-7s %5d KiB of %d KiB, %5d KiB of %d KiB", name, few>>10, len(text)>>13, all>>10, len(text)>>10)
		if all > most {
			t.Errorf("%s: holds %d bytes", name, all)
		}
	}
}

// TestHostile checks that memory does not grow with a hostile text. It only logs the speed.
func TestHostile(t *testing.T) {
	ktest.Long(t)
	rules, err := Compile(Config{Patterns: []Pattern{{Category: "TICKET", Regexp: `T-\d+`}}})
	if err != nil {
		t.Fatal(err)
	}
	const size = 192 << 10
	for name, unit := range hostile {
		text := strings.Repeat(unit, size/len(unit))
		start := cpuTime()
		w := rules.NewTable().Writer(discard{})
		most := 0
		for rest := text; rest != ""; {
			k := min(len(rest), 64)
			w.Write([]byte(rest[:k]))
			rest = rest[k:]
			most = max(most, cap(w.s.v.raw), cap(w.s.v.b))
		}
		w.Close()
		took := cpuTime() - start
		t.Logf("%-10s %6.2f MB/s, holds %d KiB", name, float64(len(text))/1e6/took.Seconds(), most>>10)
		if most > 512<<10 {
			t.Errorf("%s: holds %d bytes", name, most)
		}
	}
}
