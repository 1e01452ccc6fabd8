package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"bailey/internal/ktest"
)

const secret = "s3cr3t/V+lue?x=é&\"q\" ~"

func check(t *testing.T, table *Table, in, want string) {
	t.Helper()
	got, n := table.Text(in)
	if got != want {
		t.Errorf("Text(%q)\n got %q\nwant %q", in, got, want)
	}
	if c := strings.Count(want, "[REDACTED_") - strings.Count(want, "[REDACTED__"); n != c {
		t.Errorf("Text(%q) counted %d, want %d", in, n, c)
	}
	if back := table.Restore(got); back != in {
		t.Errorf("Restore(%q)\n got %q\nwant %q", got, back, in)
	}
}

func TestToken(t *testing.T) {
	table := NewTable()
	table.Learn("github token", "hunter2hunter2")
	table.Learn("API", "another-one")
	table.Learn("API", " padded-value\n")
	table.Learn("9_", "nameless")
	table.Learn("later", "hunter2hunter2")
	check(t, table, "a hunter2hunter2 b", "a [REDACTED_GITHUB_TOKEN_1] b")
	check(t, table, "another-one,hunter2hunter2,another-one", "[REDACTED_API_1],[REDACTED_GITHUB_TOKEN_1],[REDACTED_API_1]")
	check(t, table, "x=padded-value", "x=[REDACTED_API_2]")
	check(t, table, "nameless", "[REDACTED_SECRET_1]")
	check(t, table, "", "")
	check(t, table, "hunter2hunter", "hunter2hunter")
	check(t, table, "\xff\x00hunter2hunter2\xfe", "\xff\x00[REDACTED_GITHUB_TOKEN_1]\xfe")
}

func TestLookalike(t *testing.T) {
	table := NewTable()
	table.Learn("K", "TED_secret")
	table.Learn("K", "zz]")
	table.Text("TED_secret zz]") // a secret is numbered at its first appearance: here, in this order
	for in, want := range map[string]string{
		"[REDACTED_X_1]":                    "[REDACTED__X_1]",
		"[REDACTED__X_1]":                   "[REDACTED___X_1]",
		"[REDACTED_":                        "[REDACTED__",
		"[REDACTED":                         "[REDACTED",
		"[REDACTED_[REDACTED_":              "[REDACTED__[REDACTED__",
		"[[REDACTED_K_1]]":                  "[[REDACTED__K_1]]",
		"[REDACTED_K_1] TED_secret":         "[REDACTED__K_1] [REDACTED_K_1]",
		"[REDACTED_secret":                  "[REDAC[REDACTED_K_1]",
		"[REDACTED_TED_secret":              "[REDACTED__[REDACTED_K_1]",
		"[REDACTED_K_zz]":                   "[REDACTED__K_[REDACTED_K_2]",
		"[REDACTED_K_1":                     "[REDACTED__K_1",
		"[REDACTED_K_" + rep("9", 99) + "]": "[REDACTED__K_" + rep("9", 99) + "]",
	} {
		check(t, table, in, want)
	}
	for _, s := range []string{"[REDACTED_K_7]", "[REDACTED_K_X]", "[REDACTED_", "[REDACTED_K", "[REDACTED_]"} {
		if got := table.Restore(s); got != s {
			t.Errorf("a token of nobody's: Restore(%q) = %q", s, got)
		}
	}
}

func rep(s string, n int) string { return strings.Repeat(s, n) }

// TestOverlap checks that if two finds overlap, no byte of either stays.
func TestOverlap(t *testing.T) {
	table := NewTable()
	for _, s := range []string{"abcd", "cdef", "efghij", "aa", "xyz", "xyzw"} {
		table.Learn("K", s)
	}
	check(t, table, "abcdef.", "[REDACTED_K_1][REDACTED_K_2].")
	check(t, table, "abcdefghij.", "[REDACTED_K_1][REDACTED_K_3].")
	check(t, table, "aaaaa.", "[REDACTED_K_4][REDACTED_K_4][REDACTED_K_5].")
	check(t, table, "xyzxyzwxy", "[REDACTED_K_6][REDACTED_K_7]xy")
}

func TestForms(t *testing.T) {
	table := NewTable()
	table.Learn("K", secret)
	marshal := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, text := range map[string]string{
		"raw":         secret,
		"hex":         hex.EncodeToString([]byte(secret)),
		"HEX":         strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"query":       url.QueryEscape(secret),
		"query low":   "s3cr3t%2fV%2blue%3fx%3d%c3%a9%26%22q%22+~",
		"path":        url.PathEscape(secret),
		"userinfo":    url.UserPassword("u", secret).String(),
		"uri comp":    "s3cr3t%2FV%2Blue%3Fx%3D%C3%A9%26%22q%22%20~",
		"python":      "s3cr3t/V%2Blue%3Fx%3D%C3%A9%26%22q%22%20~",
		"all percent": percentAll(secret),
		"json":        marshal(secret),
		"json json":   marshal("x" + marshal(secret)),
		"json plain":  `s3cr3t/V+lue?x=é&\"q\" ~`,
		"json ascii":  `s3cr3t/V+lue?x=\u00e9&\"q\" ~`,
		"json php":    `s3cr3t\/V+lue?x=\u00e9&\"q\" ~`,
	} {
		got, n := table.Text("<" + text + ">")
		if n != 1 || strings.Contains(got, "s3cr3t") || strings.Contains(got, "V") || len(got) > 60 {
			t.Errorf("%s: %q gives %q, %d tokens", name, text, got, n)
		}
		if back := table.Restore(got); back != "<"+text+">" {
			t.Errorf("%s: comes back as %q", name, back)
		}
	}
}

// TestBase64 checks that no character stays that carries a bit of the secret, for any text around the secret before
// encoding.
func TestBase64(t *testing.T) {
	secrets := []string{"pass", "passw", "passwo", "\xff\xef\xbe\xfb\xff", "a much longer secret, with more ÿÿÿ of everything"}
	for _, s := range secrets {
		table := NewTable()
		table.Learn("K", s)
		for name, enc := range map[string]*base64.Encoding{
			"std": base64.StdEncoding, "url": base64.URLEncoding, "rawstd": base64.RawStdEncoding, "rawurl": base64.RawURLEncoding,
		} {
			for before := range 7 {
				for after := range 4 {
					data := rep("\xfe", before) + s + rep("\xfd", after)
					text := enc.EncodeToString([]byte(data))
					got, n := table.Text("k: " + text + "\n")
					left := strings.NewReplacer("k: ", "", "\n", "", "=", "").Replace(got)
					i, j := strings.IndexByte(left, '['), strings.IndexByte(left, ']')
					if n != 1 || i < 0 || i != before*8/6 || len(left)-j-1 != len(strings.TrimRight(text, "="))-((before+len(s))*8+5)/6 {
						t.Errorf("%s, %d before, %d after: %q gives %q", name, before, after, text, got)
					}
					if table.Restore(got) != "k: "+text+"\n" {
						t.Errorf("%s: %q does not come back", name, text)
					}
				}
			}
		}
	}
}

// TestShort checks that short secrets are found literally, but not in base64 or hexadecimal form, where they would
// match by chance.
func TestShort(t *testing.T) {
	table := NewTable()
	table.Learn("PIN", "q7")
	table.Learn("PIN", "#")
	table.Learn("PIN", " \n\t")
	table.Learn("PIN", "")
	check(t, table, "pin q7 # end q", "pin [REDACTED_PIN_1] [REDACTED_PIN_2] end q")
	check(t, table, "7137 cTc= a b", "7137 cTc= a b")
	check(t, table, "q7", "[REDACTED_PIN_1]")
}

func TestFull(t *testing.T) {
	ktest.Long(t)
	table := NewTable()
	var in strings.Builder
	for i := range MaxEntries + 50 {
		s := fmt.Sprintf("secret-%06d", i)
		table.Learn("K", s)
		in.WriteString(s + "\n")
	}
	got, n := table.Text(in.String())
	if n != MaxEntries+50 || strings.Contains(got, "secret-") {
		t.Fatalf("%d tokens; leaks: %v", n, strings.Contains(got, "secret-"))
	}
	if c := strings.Count(got, "[REDACTED_K_X]"); c != 50 {
		t.Errorf("%d stand beyond the bound, want 50", c)
	}
	if again, _ := table.Text("secret-000007"); again != "[REDACTED_K_8]" {
		t.Errorf("an old secret has now %s", again)
	}
}

func TestFullOfBytes(t *testing.T) {
	table := NewTable()
	for i := range MaxBytes/(60<<10) + 2 {
		body := strings.Repeat(fmt.Sprintf("%064d\n", i), 60<<10/65)
		got, n := table.Text("-----BEGIN PRIVATE KEY-----\n" + body + "-----END PRIVATE KEY-----")
		if n != 1 || len(got) > 40 {
			t.Fatalf("block %d: %d tokens, %d bytes", i, n, len(got))
		}
	}
	if table.bytes > MaxBytes {
		t.Errorf("the table holds %d bytes", table.bytes)
	}
	if got, _ := table.Text("-----BEGIN PRIVATE KEY-----\n" + rep("A", 60<<10)); got != "[REDACTED_PRIVATE_KEY_X]" {
		t.Errorf("beyond the bound: %.60q", got)
	}
}

func TestPrintsNothing(t *testing.T) {
	table := NewTable()
	table.Learn("K", "hunter2hunter2")
	w := table.Writer(&bytes.Buffer{})
	w.Write([]byte("hunter2hunter2 hunter2hunter"))
	for _, v := range []any{table, w, &w, []any{table, w}, map[string]*Table{"t": table}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
			if s := fmt.Sprintf(verb, v); strings.Contains(s, "hunter2") || strings.Contains(s, "68756e746572") || strings.Contains(s, "104 117 110") {
				t.Errorf("%s of %T shows the secret: %.200s", verb, v, s)
			}
		}
		if b, _ := json.Marshal(v); bytes.Contains(b, []byte("hunter2")) {
			t.Errorf("JSON of %T: %s", v, b)
		}
	}
}

func TestConcurrent(t *testing.T) {
	table := NewTable()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				s := fmt.Sprintf("secret-%d-%d", i, j%25)
				table.Learn("K", s)
				got, n := table.Text("<" + s + ">")
				if n != 1 || table.Restore(got) != "<"+s+">" {
					t.Errorf("%q gives %q", s, got)
				}
				var out bytes.Buffer
				w := table.Writer(&out)
				w.Write([]byte(s[:4]))
				w.Write([]byte(s[4:]))
				w.Close()
				if out.String() != got[1:len(got)-1] {
					t.Errorf("%q gives %q", s, out.String())
				}
			}
		})
	}
	wg.Wait()
}

// TestGeneration checks that only a new secret changes the generation, because each change empties a cache of texts.
func TestGeneration(t *testing.T) {
	table := ruled(t).NewTable()
	before := table.Generation()
	table.Text("password=hunter2hunter from 10.1.2.3")
	if after := table.Generation(); after != before {
		t.Errorf("a text changed the generation from %d to %d", before, after)
	}
	table.Learn("K", "a-leased-value")
	learned := table.Generation()
	if table.Learn("K", "a-leased-value"); learned <= before || table.Generation() != learned {
		t.Errorf("generations %d, %d, %d", before, learned, table.Generation())
	}
}
