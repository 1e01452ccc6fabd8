package pack

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"bailey"
)

// libraryCheck returns the check of another implementation of JSON Schema.
func libraryCheck(t testing.TB, raw []byte) func(any) error {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return func(v any) error { return resolved.Validate(goNumbers(v)) }
}

// goNumbers copies v with Go number types, because the library treats a json.Number as a string.
func goNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = goNumbers(e)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = goNumbers(e)
		}
		return l
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
		return string(v)
	}
	return v
}

// schemaMaker makes random schemas and values of few different parts, so that values often nearly satisfy a schema.
type schemaMaker struct {
	*rand.Rand
	plain bool // only numbers that are the same exactly and as float64
}

func oneOf[T any](m schemaMaker, list ...T) T { return list[m.IntN(len(list))] }

func (m schemaMaker) number() json.Number {
	if m.plain || m.IntN(3) > 0 {
		return oneOf[json.Number](m, "0", "1", "2", "3", "-1", "0.5", "1.5", "1e1", "2.0", "9007199254740992")
	}
	return oneOf[json.Number](m, "0.1", "0.10000000000000000001", "0.09999999999999999999", "0.1000000000000000055511151231257827",
		"9007199254740993", "9007199254740992.5", "18446744073709551616", "18446744073709551617", "0.99999999999999999999",
		"4503599627370496.3", "4503599627370496.6", "4503599627370497", "1e-307", "1e22", "1e40", "10000000000000000000001")
}

func (m schemaMaker) value(depth int) any {
	switch n := m.IntN(8); {
	case n == 0:
		return nil
	case n == 1:
		return m.IntN(2) == 0
	case n <= 3:
		return m.number()
	case n <= 5 || depth == 0:
		return oneOf(m, "a", "b", "ab", "abc", "é", "1")
	case n == 6:
		list := []any{}
		for range m.IntN(4) {
			list = append(list, m.value(depth-1))
		}
		return list
	default:
		members := map[string]any{}
		for range m.IntN(4) {
			members[oneOf(m, "a", "b", "c", "d")] = m.value(depth - 1)
		}
		return members
	}
}

func (m schemaMaker) schema(depth int) any {
	switch m.IntN(12) {
	case 0:
		return m.IntN(4) > 0
	case 1:
		return map[string]any{"$ref": oneOf(m, "#/$defs/x", "#/$defs/y")}
	}
	s := map[string]any{}
	for range 1 + m.IntN(3) {
		m.addKeyword(s, depth)
	}
	return s
}

func (m schemaMaker) addKeyword(s map[string]any, depth int) {
	sub := func() any { return m.schema(depth - 1) }
	subs := func() (list []any) {
		for range 1 + m.IntN(3) {
			list = append(list, sub())
		}
		return list
	}
	names := oneOf(m, []string{}, []string{"a"}, []string{"a", "b"})
	last := 24
	if depth == 0 {
		last = 16
	}
	switch m.IntN(last) {
	case 0, 1:
		s["type"] = oneOf(m, typeNames...)
	case 2:
		s["type"] = []string{oneOf(m, typeNames...), oneOf(m, typeNames...)}
	case 3:
		s["enum"] = []any{m.value(1), m.value(1), m.value(0)}
	case 4:
		s["const"] = m.value(1)
	case 5:
		s["minimum"] = m.number()
	case 6:
		s["maximum"] = m.number()
	case 7:
		s["exclusiveMinimum"] = m.number()
	case 8:
		s["exclusiveMaximum"] = m.number()
	case 9:
		s["minLength"] = m.IntN(3)
	case 10:
		s["maxLength"] = m.IntN(3)
	case 11:
		s["pattern"] = oneOf(m, "^a", "b$", "^.$")
	case 12:
		s["minItems"], s["maxItems"] = m.IntN(2), 1+m.IntN(2)
	case 13:
		s["uniqueItems"] = true
	case 14:
		s["minProperties"], s["maxProperties"] = m.IntN(2), 1+m.IntN(2)
	case 15:
		s["required"] = names
	case 16:
		s["items"] = sub()
	case 17, 18:
		members := map[string]any{}
		for _, name := range names {
			members[name] = sub()
		}
		s["properties"] = members
	case 19:
		s["additionalProperties"] = sub()
	case 20:
		s["allOf"] = subs()
	case 21:
		s[oneOf(m, "anyOf", "oneOf")] = subs()
	case 22:
		s["not"] = sub()
	case 23:
		s["if"] = sub()
		s["then"] = sub()
		if m.IntN(2) == 0 {
			s["else"] = sub()
		}
	}
}

// TestLikeTheLibrary compares the check of inputs and outputs with another implementation of JSON Schema, on random
// schemas and values. If the library refuses a value, so must the check. If all numbers are the same exactly and as
// float64, both accept the same values.
func TestLikeTheLibrary(t *testing.T) {
	rounds, accepted, refused := 6000, 0, 0
	if testing.Short() {
		rounds = 150
	}
	for i := range rounds {
		m := schemaMaker{rand.New(rand.NewPCG(uint64(i), 1)), i%2 == 0}
		raw, err := json.Marshal(map[string]any{"type": "object", "additionalProperties": false,
			"$defs":      map[string]any{"x": map[string]any{"type": "string"}, "y": map[string]any{"minimum": m.number()}},
			"properties": map[string]any{"v": m.schema(3)}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := compileSchema(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		library := libraryCheck(t, raw)
		c := Capability{ID: "t.c", schema: s, output: s}
		for range 8 {
			v := map[string]any{"v": m.value(2)}
			text := jsonText(v)
			_, in := c.Check(v, false)
			_, out := c.Structure([]byte(text))
			for what, err := range map[string]error{"input": in, "output": out} {
				switch lib := library(v); {
				case lib != nil && err == nil:
					t.Errorf("%s %s of %s is accepted; the library: %v", what, text, raw, lib)
				case lib == nil && err != nil && m.plain:
					t.Errorf("%s %s of %s: %v", what, text, raw, err)
				case err == nil:
					accepted++
				default:
					refused++
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	if accepted < rounds || refused < rounds {
		t.Errorf("%d accepted, %d refused: the test does not try both", accepted, refused)
	}
}

// TestWholeRules checks the complaints about rules for a value as a whole.
func TestWholeRules(t *testing.T) {
	m := capability(t, `{minProperties: 1, properties: {
	  x: {const: null}, y: {type: object, maxProperties: 1}, z: {type: array, uniqueItems: true},
	  when: {if: {type: integer}, then: {minimum: 3}, else: {type: string}}}}`, "[]")
	for in, want := range map[string]string{
		`{"x":null}`:                            "",
		`{"x":"a"}`:                             "do not satisfy the schema of t.c: /x const",
		`{}`:                                    "do not satisfy the schema of t.c: minProperties",
		`{"y":{"a":1,"b":2}}`:                   "do not satisfy the schema of t.c: /y maxProperties",
		`{"z":[1,1.0]}`:                         "do not satisfy the schema of t.c: /z uniqueItems",
		`{"z":[{"a":1,"b":2},{"b":2,"a":1.0}]}`: "do not satisfy the schema of t.c: /z uniqueItems",
		`{"z":["1",1,[1],{"1":1}]}`:             "",
		`{"when":3}`:                            "",
		`{"when":2}`:                            "input /when: 2 does not satisfy the combined schemas of this input",
		`{"when":true}`:                         "input /when: true does not satisfy the combined schemas of this input",
	} {
		v, err := decodeJSON(in)
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Check(v.(map[string]any), false)
		if want == "" && err != nil || want != "" && (bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

// TestDefaults checks that a default must satisfy its schema, also null, in an output, and in an unused definition.
func TestDefaults(t *testing.T) {
	for _, schema := range []string{"{type: string, default: null}", "{type: integer, default: x}", "{default: 3, anyOf: [{maximum: 2}]}"} {
		for _, pack := range []string{with(fmt.Sprintf("{properties: {x: %s}}", schema), "[]"), with(fmt.Sprintf("{$defs: {x: %s}}", schema), "[]"),
			strings.Replace(sample, "timeout: 30s", "outputSchema: "+schema, 1)} {
			wantErr(t, pack, "does not satisfy its schema")
		}
	}
	capability(t, "{properties: {x: {type: [string, 'null'], default: null}}}", "[]")
}
