package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestArguments(t *testing.T) {
	for _, empty := range []string{"", "null", "{}"} {
		if got, err := decodeArguments(json.RawMessage(empty)); err != nil || got == nil || len(got) != 0 {
			t.Errorf("%q: %v, %v", empty, got, err)
		}
	}
	got, err := decodeArguments(json.RawMessage(`{"n":1e400,"big":12345678901234567890,"o":{"k":[1,null,true]}}`))
	if err != nil || got["n"] != json.Number("1e400") || got["big"] != json.Number("12345678901234567890") {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"[]", "1", `"x"`, "{", `{"a":1,"a":1}`, `{"a":{"b":1,"b":2}}`, `{"a":1}{}`, "{\"\xff\":1}"} {
		if got, err := decodeArguments(json.RawMessage(bad)); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// FuzzStrict checks that if strict accepts a text, encoding/json reads it without losing a key.
func FuzzStrict(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1,"b":{"a":[{"a":1},{"a":2}]}}`, `{"a":1,"\u0061":2}`, `["a","a",{"a":"a"}]`,
		`{"\ud800":1,"\udfff":2}`, strings.Repeat("[", 65), `{"a":"b","b":"a"}`, `1`, `{"a":[],"a":[]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if checkStrictJSON(data) != nil {
			return
		}
		var v any
		if err := json.Unmarshal(data, &v); err != nil && !strings.Contains(err.Error(), "cannot unmarshal number") {
			t.Fatalf("%q: %v", data, err)
		}
		if depth(v) > maxDepth {
			t.Errorf("%q nests %d deep", data, depth(v))
		}
		if want := countKeys(data); keys(v) != want {
			t.Errorf("%q has %d keys, %d were kept", data, want, keys(v))
		}
	})
}

func depth(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n = max(n, depth(e))
		}
		return n + 1
	case []any:
		for _, e := range v {
			n = max(n, depth(e))
		}
		return n + 1
	}
	return 0
}

// keys counts the keys of every object in v.
func keys(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += 1 + keys(e)
		}
	case []any:
		for _, e := range v {
			n += keys(e)
		}
	}
	return n
}

// countKeys counts the colons outside strings. Each belongs to one key.
func countKeys(data []byte) (n int) {
	quoted := false
	for i := 0; i < len(data); i++ {
		switch {
		case quoted && data[i] == '\\':
			i++
		case data[i] == '"':
			quoted = !quoted
		case data[i] == ':' && !quoted:
			n++
		}
	}
	return n
}

// FuzzFinder checks that the finder sees the same id as a JSON reader, even if the message comes in pieces.
func FuzzFinder(f *testing.F) {
	for _, s := range []string{`{"id":1}`, `{"a":{"id":2},"id":"x\"y"}`, `{"id":1,"id":2}`, `{"id" : -5 ,"x":[{"id":1}]}`,
		`[{"id":1}]`, `{"id":null}`, `{"\u0069d":1}`, `{"x":"\\","id":3}`, `{"id":{"id":1}}`, `{"id":[1]}`, `{"id":1}{"id":2}`, `}}{"id":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		id := idOf(data)
		var f idFinder
		io.Copy(&f, iotest.OneByteReader(bytes.NewReader(data)))
		if !bytes.Equal(f.ID(), id) {
			t.Fatalf("%q: %q whole, %q in pieces", data, id, f.ID())
		}
		if id != nil && !json.Valid(id) {
			t.Fatalf("%q: the id %q is no JSON", data, id)
		}
		var env map[string]json.RawMessage
		if checkStrictJSON(data) != nil || json.Unmarshal(data, &env) != nil || bytes.Contains(data, []byte(`\u`)) {
			return
		}
		want := env["id"]
		if _, ok := parseID(want); !ok {
			want = nil
		}
		if !bytes.Equal(want, id) {
			t.Errorf("%q: found %q, it is %q", data, id, want)
		}
	})
}

func TestParseID(t *testing.T) {
	for raw, ok := range map[string]bool{
		`1`: true, `-1`: true, `0`: true, `9007199254740991`: true, `"x"`: true, `""`: true, `"\u0000"`: true,
		``: false, `null`: false, `1.0`: false, `1e3`: false, `+1`: false, `01`: false, `9007199254740992`: false, `-9007199254740992`: false,
		`true`: false, `{}`: false, `[1]`: false, `"x`: false, `"` + strings.Repeat("x", 256) + `"`: false, "\"\xff\"": false,
	} {
		if _, got := parseID([]byte(raw)); got != ok {
			t.Errorf("%q: %v", raw, got)
		}
	}
}

func TestLines(t *testing.T) {
	x := strings.Repeat("x", maxLine)
	broken := errors.New("broken")
	l := newLines(io.MultiReader(strings.NewReader("a\n\nb\r\n"+x+"\n"+x+"x\nc\n"+x+x+x+"\nd"), iotest.ErrReader(broken)))
	for i, want := range []string{"a", "", "b\r", x, "LONG", "c", "LONG"} {
		got, err := l.nextLine()
		if _, long := errors.AsType[tooLong](err); long != (want == "LONG") || !long && (err != nil || string(got) != want) {
			t.Fatalf("line %d: %.20q, %v", i, got, err)
		}
	}
	if got, err := l.nextLine(); err != broken {
		t.Errorf("half a line, then an error: %.20q, %v", got, err)
	}
	l = newLines(strings.NewReader("last"))
	if got, err := l.nextLine(); err != nil || string(got) != "last" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := l.nextLine(); err != io.EOF {
		t.Error(err)
	}
	l = newLines(strings.NewReader(x + "x"))
	if _, err := l.nextLine(); err == nil || err == io.EOF {
		t.Errorf("a last line that is long by one: %v", err)
	}
}
