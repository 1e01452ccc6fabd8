package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// FuzzDressed is FuzzRules for encoded text: base64 with lines of any length, UTF-16 of either byte order, escape
// sequences, percent-encoding. A decoded secret must also be hidden completely or not at all.
func FuzzDressed(f *testing.F) {
	rules, err := Compile(Config{})
	if err != nil {
		f.Fatal(err)
	}
	r := rand.New(rand.NewPCG(41, 42))
	for i := range 40 {
		f.Add(randomText(r), byte(i), byte(64), []byte{byte(r.IntN(99)), 3})
	}
	for i, s := range texts(f) {
		if i%40 == 0 {
			f.Add(s, byte(i/40), byte(76), []byte{31})
		}
	}
	f.Fuzz(func(t *testing.T, in string, dress, width byte, cuts []byte) {
		if len(in) > 1<<13 || len(cuts) == 0 {
			return
		}
		for range 1 + dress>>6 {
			switch dress % 6 {
			case 0:
				in = wrap(base64.StdEncoding.EncodeToString([]byte(in)), int(width)+1)
			case 1:
				in = base64.URLEncoding.EncodeToString([]byte(in))
			case 2:
				in = wide(in, int(width)%2)
			case 3:
				in = colour(in)
			case 4:
				in = strings.NewReplacer("=", "%3D", "&", "%26", ":", "%3A", "/", "%2F", "\"", "%22").Replace(in)
			default:
				in = strings.ReplaceAll(in, "\n", "\r\n")
			}
		}
		agree(t, rules, "x: "+in+"\npassword=hunter2hunter2\n", cuts)
	})
}

// FuzzCustom checks that with any pattern that compiles, the same is found in a text however it is split.
func FuzzCustom(f *testing.F) {
	for _, p := range []string{`T-\d+`, `\w+@\w+`, `(?i)ticket (\w+)`, `^a.*b$`, `[^ ]+`, `x{3,9}`, `é+`, `(a|b)*c`, `\bkey\b`, `(?m)^x`, `\x00`} {
		f.Add(p, "ticket T-12 a@b xxxx\nkey abc é\x1b[1mT-3", []byte{1, 9})
	}
	f.Fuzz(func(t *testing.T, pattern, in string, cuts []byte) {
		if len(pattern) > 64 || len(in) > 1<<12 || len(cuts) == 0 {
			return
		}
		rules, err := Compile(Config{Patterns: []Pattern{{Category: "OWN", Regexp: pattern}}, Allow: []Allow{{Category: IPv4, Regexp: `10\..*`}}})
		if err != nil {
			return
		}
		agree(t, rules, in, cuts)
	})
}

// FuzzJSON checks that a redacted value can be restored and that its structure stays the same.
func FuzzJSON(f *testing.F) {
	rules, err := Compile(Config{})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{`{"password":"hunter2x","n":1.5,"a":[null,true,{"token":"aB3dE5fG7hI9jK1l"}]}`, `["10.1.2.3",123456789012345678,"[REDACTED_X_1]"]`, `{"user":"a","auth":"admin:hunter22","":""}`,
		`{"headers":{"Authorization":"GenieKey 8c72c877-bbf5-42cb-a255-0a93161a5960"}}`, `{"password\n":"x1y2z3","passwords":["hunter2"]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		d := json.NewDecoder(strings.NewReader(in))
		d.UseNumber()
		var v any
		if len(in) > 1<<13 || d.Decode(&v) != nil {
			return
		}
		table := rules.NewTable()
		out, n := table.JSON(v)
		if back := restored(table, out); !reflect.DeepEqual(back, loose(v)) {
			t.Fatalf("in %#v\nout %#v\nback %#v", v, out, back)
		}
		if n == 0 && !reflect.DeepEqual(loose(out), loose(v)) && !strings.Contains(in, "REDACTED") && !bytes.Contains([]byte(in), []byte(`\`)) {
			t.Fatalf("%#v becomes %#v, and nothing was found", v, out)
		}
	})
}

// restored restores every string of a value. loose returns v with its numbers as strings, because redaction may turn a
// number into a string.
func restored(t *Table, v any) any { return walk(v, t.Restore) }

func loose(v any) any { return walk(v, func(s string) string { return s }) }

func walk(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case json.Number:
		return v.String()
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = walk(e, f)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k := range maps.Keys(v) {
			out[f(k)] = walk(v[k], f)
		}
		return out
	}
	return v
}
