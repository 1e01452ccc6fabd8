package pack

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"bailey"
)

const checked = `{
  required: [repo],
  $defs: {colour: {enum: [red, green, 7]}},
  properties: {
    repo: {type: string, format: path},
    limit: {type: integer, minimum: 1, maximum: 1000},
    ratio: {type: number, exclusiveMinimum: 0, exclusiveMaximum: 1},
    all: {type: boolean},
    rev: {type: string, pattern: '^[a-z]+$', minLength: 2, maxLength: 5},
    paths: {type: array, items: {type: string, format: subpath}, minItems: 1, maxItems: 3, uniqueItems: true},
    filter: {type: object, required: [a], properties: {a: {type: integer}}, additionalProperties: false},
    colour: {$ref: '#/$defs/colour'},
    maybe: {type: [string, 'null']},
    either: {anyOf: [{type: integer}, {type: string, maxLength: 3}]},
    note: {type: string, x-bailey: {allow: [lines]}},
    free: {type: string, x-bailey: {allow: [at, empty, file, url]}},
    never: false,
  }}`

func TestCheck(t *testing.T) {
	m := capability(t, checked, "[]")
	for _, c := range []struct {
		text     bool
		in, want map[string]any
	}{
		{true, map[string]any{"limit": "5"}, map[string]any{"limit": json.Number("5")}},
		{true, map[string]any{"limit": "1e2"}, map[string]any{"limit": json.Number("100")}},
		{true, map[string]any{"ratio": "0.5"}, map[string]any{"ratio": json.Number("0.5")}},
		{true, map[string]any{"all": "true"}, map[string]any{"all": true}},
		{true, map[string]any{"all": "false"}, map[string]any{"all": false}},
		{true, map[string]any{"paths": "a b"}, map[string]any{"paths": []any{"a b"}}},
		{true, map[string]any{"paths": `["a","b"]`}, map[string]any{"paths": []any{"a", "b"}}},
		{true, map[string]any{"paths": `[x`}, map[string]any{"paths": []any{"[x"}}},
		{true, map[string]any{"filter": `{"a":1}`}, map[string]any{"filter": map[string]any{"a": json.Number("1")}}},
		{true, map[string]any{"maybe": "null"}, map[string]any{"maybe": "null"}},
		{true, map[string]any{"rev": "main"}, map[string]any{"rev": "main"}},
		{false, map[string]any{"limit": json.Number("1000")}, map[string]any{"limit": json.Number("1000")}},
		{false, map[string]any{"limit": json.Number("5.0")}, map[string]any{"limit": json.Number("5")}},
		{false, map[string]any{"limit": 7}, map[string]any{"limit": json.Number("7")}},
		{false, map[string]any{"colour": json.Number("7.0")}, map[string]any{"colour": json.Number("7")}},
		{false, map[string]any{"maybe": nil}, map[string]any{"maybe": nil}},
		{false, map[string]any{"either": "abc"}, map[string]any{"either": "abc"}},
		{false, map[string]any{"note": "a\n\tb"}, map[string]any{"note": "a\n\tb"}},
		{false, map[string]any{"free": "@x=file://y"}, map[string]any{"free": "@x=file://y"}},
		{false, map[string]any{"free": ""}, map[string]any{"free": ""}},
		{false, map[string]any{"repo": "@odd"}, map[string]any{"repo": "@odd"}},
	} {
		c.in["repo"], c.want["repo"] = or(c.in["repo"]), or(c.want["repo"])
		got, err := m.Check(c.in, c.text)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: got %v, %v", c.in, got, err)
		}
	}
}

func or(v any) any {
	if v == nil {
		return "."
	}
	return v
}

func TestCheckComplains(t *testing.T) {
	m := capability(t, checked, "[]")
	long := strings.Repeat("x", maxArg+1)
	for _, c := range []struct {
		text bool
		in   map[string]any
		want string
	}{
		{true, map[string]any{"limit": "x"}, `input /limit: "x" is not an integer`},
		{true, map[string]any{"limit": ""}, `input /limit: "" is not an integer`},
		{true, map[string]any{"limit": "0x10"}, `input /limit: "0x10" is not an integer`},
		{true, map[string]any{"limit": " 1"}, `input /limit: " 1" is not an integer`},
		{true, map[string]any{"limit": "1.5"}, `input /limit: 1.5 is not an integer`},
		{true, map[string]any{"limit": "1e400"}, `input /limit: "1e400" is not an integer`},
		{true, map[string]any{"limit": "0"}, `input /limit: 0 is less than 1`},
		{true, map[string]any{"limit": "1001"}, `input /limit: 1001 is more than 1000`},
		{true, map[string]any{"ratio": "1"}, `input /ratio: 1 is not less than 1`},
		{true, map[string]any{"ratio": "NaN"}, `input /ratio: "NaN" is not a number`},
		{true, map[string]any{"all": "yes"}, `input /all: "yes" is not a boolean`},
		{true, map[string]any{"filter": `{"a":1} {"b":2}`}, `input /filter: "{\"a\":1} {\"b\":2}" is not an object`},
		{false, map[string]any{"limit": "5"}, `input /limit: "5" is not an integer`},
		{false, map[string]any{"limit": json.Number("1e999999999")}, `input /limit: "1e999999999" is not a number within range`},
		{false, map[string]any{"limit": json.Number("x")}, `is not a number within range`},
		{false, map[string]any{"limit": true}, `input /limit: true is not an integer`},
		{false, map[string]any{"all": nil}, `input /all: null is not a boolean`},
		{false, map[string]any{"rev": "A"}, `input /rev: "A" is shorter than 2 characters; input /rev: "A" does not match ^[a-z]+$`},
		{false, map[string]any{"rev": "abcdef"}, `input /rev: "abcdef" is longer than 5 characters`},
		{false, map[string]any{"rev": json.Number("5")}, `input /rev: 5 is not a string`},
		{false, map[string]any{"paths": []any{"a", json.Number("3")}}, `input /paths/1: 3 is not a string`},
		{false, map[string]any{"paths": []any{}}, `input /paths: has 0 items, but needs at least 1`},
		{false, map[string]any{"paths": []any{"a", "b", "c", "d"}}, `may have at most 3`},
		{false, map[string]any{"paths": []any{"a", "../b"}}, `input /paths/1: "../b" is not a relative path`},
		{false, map[string]any{"paths": []any{"/a"}}, `is not a relative path`},
		{false, map[string]any{"paths": []any{":(top)a"}}, `is not a relative path`},
		{false, map[string]any{"paths": []any{"a", "a"}}, `the inputs together do not satisfy the schema`},
		{false, map[string]any{"filter": map[string]any{}}, `input /filter/a is missing`},
		{false, map[string]any{"filter": map[string]any{"a": json.Number("1"), "b": true}}, `input /filter/b is not known`},
		{false, map[string]any{"filter": map[string]any{"a\x1b": true}}, `has a key that contains the control character U+001B`},
		{false, map[string]any{"colour": "blue"}, `input /colour: "blue" is not one of "red", "green", 7`},
		{false, map[string]any{"either": "abcd"}, `input /either: "abcd" does not satisfy the combined schemas of this input`},
		{false, map[string]any{"never": "x"}, `input /never is not known`},
		{false, map[string]any{"foo": "x"}, `input "foo" is not known; t.c takes all, colour, either, `},
		{false, map[string]any{"fo\x1b[2Jo": "x"}, `input "fo\x1b[2Jo" is not known`},
		{false, map[string]any{"repo": ""}, `input /repo: "" is empty`},
		{false, map[string]any{"rev": ""}, `input /rev: "" is empty`},
		{false, map[string]any{"rev": "a\x00b"}, `input /rev: "a\x00b" holds a NUL`},
		{false, map[string]any{"rev": "a\nb"}, `holds the control character U+000A`},
		{false, map[string]any{"rev": "a\x7f"}, `holds the control character U+007F`},
		{false, map[string]any{"rev": "a\u0085"}, `holds the control character U+0085`},
		{false, map[string]any{"rev": "a\u202eb"}, `holds the invisible character U+202E`},
		{false, map[string]any{"rev": "a\u200bb"}, `holds the invisible character U+200B`},
		{false, map[string]any{"rev": "a\u2028b"}, `holds the invisible character U+2028`},
		{false, map[string]any{"rev": "a\xff"}, `holds invalid UTF-8`},
		{false, map[string]any{"note": "a\rb"}, `holds the control character U+000D`},
		{false, map[string]any{"note": long}, `has 32769 bytes, more than 32768`},
		{false, map[string]any{"repo": "a\x00"}, `holds a NUL`},
		{false, map[string]any{"rev": "@/etc/passwd"}, `would be read from a file (@)`},
		{false, map[string]any{"note": "x=@y"}, `would be read from a file (@)`},
		{false, map[string]any{"note": " @y"}, `would be read from a file (@)`},
		{false, map[string]any{"note": "FILE:///x"}, `would be read from a file (file://)`},
		{false, map[string]any{"note": "a=b=FileB://x"}, `would be read from a file (file://)`},
		{false, map[string]any{"note": "HTTP://x"}, `would be fetched`},
		{false, map[string]any{"note": "a=https://x"}, `would be fetched`},
		{false, map[string]any{"rev": struct{}{}}, `is not a JSON value`},
		{false, map[string]any{"repo": nil}, `input /repo: null is not a string`},
	} {
		if _, ok := c.in["repo"]; !ok {
			c.in["repo"] = "."
		}
		got, err := m.Check(c.in, c.text)
		if err == nil {
			t.Errorf("%.80v: accepted as %.80v", c.in, got)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || bailey.KindOf(err) != bailey.Invalid || bailey.HintOf(err) == "" {
			t.Errorf("%.80v:\ngot  %v (%v)\nwant %s", c.in, err, bailey.KindOf(err), c.want)
		}
	}
	if _, err := m.Check(nil, false); err == nil || !strings.Contains(err.Error(), "input /repo is missing") {
		t.Errorf("nothing: %v", err)
	}
}

func TestCheckSaysAllInOne(t *testing.T) {
	m := capability(t, checked, "[]")
	_, err := m.Check(map[string]any{"limit": "x", "all": "y", "ratio": "z"}, true)
	for _, want := range []string{"/limit:", "/all:", "/ratio:", "/repo is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in %v", want, err)
		}
	}
	_, err = m.Check(map[string]any{"repo": ".", "limt": "5"}, true)
	var e *bailey.Error
	if !errors.As(err, &e) || e.Hint != `did you mean "limit"?` {
		t.Errorf("hint: %+v", e)
	}
	many := map[string]any{}
	for i := range 1000 {
		many[strings.Repeat("é", i+1)] = strings.Repeat("v", 1000)
	}
	if _, err = m.Check(many, true); err == nil || len(err.Error()) > 8<<10 || !strings.Contains(err.Error(), "more complaints") {
		t.Errorf("%d bytes: %.200v", len(err.Error()), err)
	}
	list := make([]any, 100000)
	if _, err = m.Check(map[string]any{"repo": ".", "paths": list}, false); err == nil || len(err.Error()) > 8<<10 {
		t.Errorf("%.200v", err)
	}
}

func TestCheckBounds(t *testing.T) {
	m := capability(t, "{properties: {x: {}, y: {type: array, items: {type: string}}}}", "[]")
	deep := any("x")
	for range maxDeep + 2 {
		deep = []any{deep}
	}
	if _, err := m.Check(map[string]any{"x": deep}, false); err == nil || !strings.Contains(err.Error(), "nested deeper") {
		t.Error(err)
	}
	if _, err := m.Check(map[string]any{"x": strings.Repeat("[", 1<<20)}, true); err == nil {
		t.Error("accepted a megabyte of brackets")
	}
	block := strings.Repeat("x", maxArg)
	many := make([]any, maxTotal/maxArg+1)
	for i := range many {
		many[i] = block
	}
	if _, err := m.Check(map[string]any{"y": many}, false); err == nil || !strings.Contains(err.Error(), "more than 10485760") {
		t.Errorf("%.200v", err)
	}
	// Check must return copies, not the caller's values.
	in := []any{"a"}
	out, err := m.Check(map[string]any{"y": in}, false)
	if err != nil {
		t.Fatal(err)
	}
	in[0] = "--changed"
	if !reflect.DeepEqual(out["y"], []any{"a"}) {
		t.Error("the copy follows its origin")
	}
}
