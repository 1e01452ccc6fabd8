package redact

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf16"

	"bailey/internal/ktest"
)

// texts returns the records of the corpora. Some get forms that are harder for a stream: escape sequences, UTF-16,
// CRLF.
func texts(t testing.TB) []string {
	var all []string
	for _, name := range []string{"corpus/positives.jsonl", "corpus/negatives.jsonl", "own/positives.jsonl", "own/negatives.jsonl"} {
		dir, file, _ := strings.Cut(name, "/")
		for i, r := range corpus(t, dir, file) {
			switch i % 7 {
			case 0:
				all = append(all, colour(r.Text))
			case 1:
				all = append(all, strings.ReplaceAll(r.Text, "\n", "\r\n"))
			case 2:
				all = append(all, wide(r.Text, i%2))
			default:
				all = append(all, r.Text)
			}
		}
	}
	return all
}

// colour inserts an escape sequence before every seventh byte.
func colour(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if i%7 == 3 {
			b.WriteString([]string{"\x1b[31m", "\x1b[0;1m", "\x1b[K", "\x1b(B", "\x1b[m"}[i%5])
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// wide returns s in UTF-16: little endian if big is 0, big endian if big is 1.
func wide(s string, big int) string {
	var b []byte
	for _, c := range utf16.Encode([]rune(s)) {
		pair := []byte{byte(c), byte(c >> 8)}
		b = append(b, pair[big], pair[1-big])
	}
	return string(b)
}

// inPieces redacts in through a Writer, in pieces of the given sizes.
func inPieces(t testing.TB, rules *Rules, in string, cuts []byte) string {
	var out bytes.Buffer
	w := rules.NewTable().Writer(&out)
	for i := 0; in != ""; i++ {
		n := min(len(in), 1+int(cuts[i%len(cuts)]))
		w.Write([]byte(in[:n]))
		in = in[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// agree checks that splitting a text gives the same result as redacting it whole, and that the result can be restored.
func agree(t testing.TB, rules *Rules, in string, cuts []byte) {
	table := rules.NewTable()
	want, _ := table.Text(in)
	if back := table.Restore(want); back != in {
		t.Fatalf("in %q\nout %q\nback %q", in, want, back)
	}
	if got := inPieces(t, rules, in, cuts); got != want {
		t.Fatalf("in %q, cuts %v\nwhole %q\nsplit %q", in, cuts, want, got)
	}
}

// onceSplit lists texts whose result once differed between whole and split.
var onceSplit = []string{
	// a word that was searched twice
	"a = 0xE0000340secret_access_keyToken=\"CYo0OpcsRTiXDXx1tJ8EITGr6bhRX4WXza38zmFB\" x",
	"x.supabase.co = .é" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW\x00",         // a dot is not a word
	"db:" + strings.Repeat("y", maxLogin-1) + "@tcp(h)",                   // exactly at the bound
	"jdbc:" + strings.Repeat("LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t", 900), // no bound
	strings.Repeat("hooks.slack.com/services/", 1700) + " ",
	"x = ghp_Q1EgPb2uHP7WHLHnGf3OIyTDXtuUcA2qFkA1" + strings.Repeat(".", 24) + " ", // only dots remain of a word
	"password " + strings.Repeat("$2y$10$", 300) + "&'0x1fAPI_KEY{ ",               // a hash is searched again after a wait
	"=>PASS->redis-cli -a +$ ", // an arrow without a value
}

func TestRulesSplit(t *testing.T) {
	rules := ruled(t)
	for _, in := range onceSplit {
		for n := range 5 {
			agree(t, rules, in, []byte{byte(n * 31)})
		}
	}
	r := rand.New(rand.NewPCG(7, 9))
	all := texts(t)
	for range 400 {
		var in strings.Builder
		for range 1 + r.IntN(5) {
			in.WriteString(all[r.IntN(len(all))])
			in.WriteString([]string{"\n", " ", "", "\r\n", "\x1b[0m\n", "\x00", "'", "{"}[r.IntN(8)])
		}
		cuts := make([]byte, 1+r.IntN(6))
		for i := range cuts {
			cuts[i] = byte(r.IntN(1 << r.IntN(8)))
		}
		agree(t, rules, in.String(), cuts)
		agree(t, rules, in.String(), []byte{0})
	}
}

var (
	seed   = flag.Uint64("seed", 11, "of the random texts")
	rounds = flag.Int("rounds", 3000, "random texts")
)

// ruleAtoms are texts at which the finder begins or ends a find.
var ruleAtoms = []string{
	"password", "token", "API_KEY", "key", "Authorization", "Bearer ", "Basic ", "-p ", "-p", "--user ", "-u ", "mysql ", "machine x login y ", "value", "name: ",
	"=", ":", ": ", " = ", "=>", ":=", "\"", "'", "`", "\\\"", ", ", ",", "|", ">", "<", "</", "\n", "\r\n", " ", "  ", "&", "?", "{", "}", "$", "::", "[",
	"://", "https", "postgres", "user", "@", "@tcp(", "jdbc:", "Endpoint=", ";SharedAccessKey=", "hooks.slack.com/services/", "x.supabase.co", "/",
	"ghp_", "AKIA", "eyJ", "sk-", "xoxb-", "glpat-", "hf_", "hunter2A9", "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW", "0123456789abcdef", "4bcb6934d1c3ac0df104a98c97579835",
	"10.1.2.3", "1.2.3.4", "fe80::1", "2001:db8:1:2:3:4:5:6", "version ", "$6$", "$2y$10$", "$y$j9T$", "{\"type\":\"service_account\",", "\"private_key\":\"x\"}",
	"LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t", "YWRtaW46dGg0Q2R3UVVDTkt3T08=", "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAaAAAABNlY2RzYS", "==", "=",
	"-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----", "Private-Lines: 1\n", "db:5432:*:u:", "service", "datadog", "mite ", "\x1b[31m", "\x1b", "\x00", "é", "[REDACTED_",
	"(", ")", "()", "[]", "->", " -> ", "&", "&'", "@", "@\"", "b\"", "string ", "str ", " return ", "{SSHA}", "{SHA}", "*:*:*:", "%3D", "password%3D", "%26", "jdbc:oracle:thin:u/", "x.atlasv1.",
	"Authorization: Key ", "wandb login ", "IDENTIFIED BY ", "setenv ", "PASS", "snmp community ", "redis-cli -a ", "7z -p", "-U u%", "default login a ", "seed phrase", "mnemonic: abcd efgh ijkl ",
	"hc-ping.com/", "bot", "AA", "AKIA0123456789ABCDEF", "_Z", "identifierName2", "0x1f", "caBundle: ", "cache ", "__Host-session", "é\x00\x1b[", "\n- password: Tr0ub4dor ", " & 3", " #", "two w0rds x", "SMTP_PASS='", "my long pass", "ip-10-20-30-40", "web_", ".in-addr.arpa", "10.20.30.40", "-p\"", "sk_live_4eC39HqLyjWDarjtT1zdp7dc", ".okta.com/",
	"_", "-", ".", "~", "%", "+", "\t", "x", "A", "7",
}

func randomText(r *rand.Rand) string {
	var in strings.Builder
	for range r.IntN(40) {
		a := ruleAtoms[r.IntN(len(ruleAtoms))]
		if r.IntN(40) == 0 {
			a = strings.Repeat(a, 1+r.IntN(900))
		}
		in.WriteString(a)
	}
	return in.String()
}

func TestRulesSplitRandom(t *testing.T) {
	ktest.Long(t)
	rules := ruled(t)
	r := rand.New(rand.NewPCG(*seed, 12))
	for range *rounds {
		in := randomText(r)
		cuts := make([]byte, 1+r.IntN(6))
		for i := range cuts {
			cuts[i] = byte(r.IntN(1 << r.IntN(8)))
		}
		agree(t, rules, in, cuts)
		if len(in) < 2000 {
			agree(t, rules, in, []byte{0})
		}
	}
}

// FuzzRules checks that the same is found in a text however it is split.
func FuzzRules(f *testing.F) {
	rules, err := Compile(Config{Patterns: []Pattern{{Category: "TICKET", Regexp: `T-\d+`}}})
	if err != nil {
		f.Fatal(err)
	}
	r := rand.New(rand.NewPCG(31, 32))
	for range 60 {
		f.Add(randomText(r), []byte{byte(r.IntN(9)), 0})
	}
	for i, s := range texts(f) {
		if i%20 == 0 {
			f.Add(s, []byte{0})
		}
	}
	f.Fuzz(func(t *testing.T, in string, cuts []byte) {
		if len(in) < 1<<15 && len(cuts) > 0 {
			agree(t, rules, in, cuts)
		}
	})
}

// TestPrompts checks that a prompt is written before the answer comes, although no newline ends it.
func TestPrompts(t *testing.T) {
	for _, p := range []string{"Password: ", "[sudo] password for bob: ", "Enter passphrase for key '/root/.ssh/id_rsa': ", "user@host:~$ ", "mysql> ", ">>> ",
		"Continue? [Y/n] ", "login: ", "Username for 'https://github.com': ", "API token: ", "Are you sure (yes/no)? ", "secret = ", "10.1.2.3 is up. "} {
		var out bytes.Buffer
		w := ruled(t).NewTable().Writer(&out)
		for i := range len(p) {
			w.Write([]byte{p[i]})
		}
		table := ruled(t).NewTable()
		if want, _ := table.Text(p); out.String() != want {
			t.Errorf("after %q went out %q", p, out.String())
		}
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
