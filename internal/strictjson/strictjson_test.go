package strictjson

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func nested(n int) string { return strings.Repeat(`{"a":[`, n) + strings.Repeat("]}", n) }

// TestCheck checks which JSON is refused, and that text that is no JSON is told apart from JSON that is not strict.
func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "", ` [1, {"a": null, "b": {"a": -1e400}}] `: "", `"\ud800"`: "", `{"a":"a","A":"a"}`: "", nested(4): "",
		"": "it is not JSON", "{": "it is not JSON", "{}{}": "it is not JSON: more data follows", "{} 1": "it is not JSON",
		`{"a":1,}`: "it is not JSON", "// a\n{}": "it is not JSON", "[01]": "it is not JSON", "\ufeff{}": "it is not JSON", "\"\xff\"": "it is not JSON: it is not UTF-8",
		"\"a\nb\"":                   "it is not JSON",
		`{"a":1,"a":2}`:              `the key "a" is twice in one object`,
		`[{"a":{"b":1,"\u0062":2}}]`: `the key "b" is twice`,
		`{"\ud800":1,"\udfff":2}`:    "is twice",
		nested(5):                    "it is nested deeper than 8",
		nested(20_000):               "it is not JSON",
		strings.Repeat("[", 100):     "it is not JSON",
		`{"` + strings.Repeat("k", 100) + `":1,"` + strings.Repeat("k", 100) + `":1}`: `the key "` + strings.Repeat("k", maxKey) + `\u2026" is twice`,
	} {
		err := Check([]byte(text), 8)
		if want == "" && err == nil {
			continue
		}
		if want == "" || err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrSyntax) != strings.HasPrefix(want, ErrSyntax.Error()) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

// TestOffset checks that an error of Check names its byte.
func TestOffset(t *testing.T) {
	for text, want := range map[string]int{"{\n,}": 2, `{"a":1,"a":2}`: 7, "[1,]": 2} {
		if at := Offset(Check([]byte(text), 8)); at != want {
			t.Errorf("%s: byte %d, want %d", text, at, want)
		}
	}
	if at := Offset(errors.New("x")); at != 0 {
		t.Errorf("another error: %d", at)
	}
}

// TestDecode checks that unknown fields and a second value are refused, and that numbers keep their digits.
func TestDecode(t *testing.T) {
	var v struct{ A any }
	if err := Decode([]byte(` {"a": 12345678901234567890} `), &v); err != nil || v.A != json.Number("12345678901234567890") {
		t.Errorf("%v, %v", v, err)
	}
	for _, text := range []string{`{"b":1}`, `{"a":1}{}`, `{"a":1}]`, "", "{"} {
		if err := Decode([]byte(text), &v); err == nil {
			t.Errorf("%q is decoded", text)
		}
	}
}

// TestMembers checks that members keep their order and their text.
func TestMembers(t *testing.T) {
	list, ok := Members([]byte(` {"b": [1, "\u0061"] , "\u0061":null}`))
	if !ok || len(list) != 2 || list[0].Name != "b" || string(list[0].Value) != `[1, "\u0061"]` || list[1].Name != "a" || string(list[1].Value) != "null" {
		t.Errorf("%q, %v", list, ok)
	}
	if list, ok := Members([]byte("{}")); !ok || len(list) != 0 {
		t.Errorf("%q, %v", list, ok)
	}
	for _, text := range []string{"[]", "null", "1"} {
		if _, ok := Members([]byte(text)); ok {
			t.Errorf("%q has members", text)
		}
	}
}

// FuzzCheck checks that accepted text is valid JSON whose objects keep all members.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{`{}`, `{"a":1,"b":{"a":[{"a":1},{"a":2}]}}`, `{"a":1,"\u0061":2}`, `{"\ud800":1,"\udfff":2}`, nested(3), "1 2", `{"a":[],"a":[]}`, "\"\xff\""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if Check(data, 8) != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is accepted", data)
		}
		list, ok := Members(data)
		var object map[string]json.RawMessage
		if err := json.Unmarshal(data, &object); (err == nil && object != nil) != ok || len(object) != len(list) {
			t.Fatalf("%q: %d members, %v; %v", data, len(list), ok, err)
		}
	})
}
