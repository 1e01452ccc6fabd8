package pack

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const diffed = `name: demo
version: 1.0.0
capabilities:
  - name: get
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    timeout: 30s
    backend: {type: subprocess, command: wget, args: ["{{ input.n }}"]}
    sandboxProfile: {network: {egress: ["a.example.com:443"]}, limits: {memoryMiB: 64}}
    inputSchema:
      type: object
      required: [n]
      properties: {n: {type: string, maxLength: 9, pattern: "^a$", enum: [a, b]}}
`

func TestDiff(t *testing.T) {
	parsed := func(edits ...string) *Pack {
		text := strings.NewReplacer(edits...).Replace(diffed)
		p, err := Parse("pack.yaml", []byte(text))
		if err != nil {
			t.Fatal(err, text)
		}
		return p
	}
	old := parsed()
	for _, c := range []struct{ edits, want []string }{
		{[]string{"1.0.0", "1.1.0"}, nil},
		{[]string{"risk: low", "risk: low\n    description: other"}, nil},
		{[]string{"risk: low", "risk: high"}, []string{"risk low → high"}},
		{[]string{"sideEffectClass: readOnly\n    reversibility: readOnly", "sideEffectClass: mutating\n    reversibility: reversible"}, []string{"reversibility readOnly → reversible", "sideEffectClass readOnly → mutating"}},
		{[]string{"30s", "10s"}, nil},
		{[]string{"30s", "1m"}, []string{"timeout 30s → 1m0s"}},
		{[]string{"    timeout: 30s\n", ""}, []string{"timeout 30s → 0s"}},
		{[]string{"command: wget", "command: curl"}, []string{`backend {"args":["{{ input.n }}"],"command":"wget","type":"subprocess"} → {"args":["{{ input.n }}"],"command":"curl","type":"subprocess"}`}},
		{[]string{`egress: ["a.`, `egress: ["b.example.com:443", "a.`}, []string{"sandboxProfile.egress + b.example.com:443"}},
		{[]string{"memoryMiB: 64", "memoryMiB: 32"}, nil},
		{[]string{"memoryMiB: 64", "memoryMiB: 65, tasks: 4"}, []string{"sandboxProfile.memoryMiB 64 → 65", "sandboxProfile.tasks nothing → 4"}},
		{[]string{"network: {egress: [\"a.example.com:443\"]}, ", ""}, nil},
		{[]string{"network", "fs: {ro: [/usr/share/zoneinfo]}, network"}, []string{"sandboxProfile.ro + /usr/share/zoneinfo"}},
		{[]string{"    sandboxProfile", "    credentials: [{name: t, env: T}]\n    sandboxProfile"}, []string{`credentials + {"env":"T","name":"t"}`}},
		{[]string{"required: [n]", "required: []"}, []string{"input required - n"}},
		{[]string{"maxLength: 9", "maxLength: 8"}, nil},
		{[]string{"maxLength: 9", "maxLength: 10"}, []string{"input n maxLength: 9 → 10"}},
		{[]string{"maxLength: 9, ", ""}, []string{"input n maxLength: 9 → nothing"}},
		{[]string{`pattern: "^a$"`, `pattern: ".*"`}, []string{"input n pattern: ^a$ → .*"}},
		{[]string{"enum: [a, b]", "enum: [b]"}, nil},
		{[]string{"enum: [a, b]", "enum: [a, b, c]"}, []string{`input n enum: ["a","b"] → ["a","b","c"]`}},
		{[]string{"enum: [a, b]", "enum: [a, b], x-bailey: {allow: [url]}"}, []string{`input n x-bailey: nothing → {"allow":["url"]}`}},
		{[]string{"maxLength: 9", "maxLength: 9, format: path"}, []string{"input n format: nothing → path"}},
		{[]string{"properties: {", "properties: {m: {type: boolean}, "}, []string{`input m + {"type":"boolean"}`}},
		{[]string{"risk: low", "risk: low\n    isolation: none", "    sandboxProfile: {network: {egress: [\"a.example.com:443\"]}, limits: {memoryMiB: 64}}\n", ""},
			[]string{"isolation jail → none: it runs without a jail, with all rights of its user", "sandboxProfile.memoryMiB 64 → nothing"}},
		{[]string{"name: get", "name: put", "risk: low", "risk: low\n    isolation: none", "    sandboxProfile: {network: {egress: [\"a.example.com:443\"]}, limits: {memoryMiB: 64}}\n", ""},
			[]string{"new sideEffectClass readOnly, risk low, reversibility readOnly, runs wget without a jail"}},
		{[]string{"name: get", "name: put"}, []string{"new sideEffectClass readOnly, risk low, reversibility readOnly, runs wget", "sandboxProfile.egress + a.example.com:443"}},
	} {
		var got []string
		for _, d := range Diff(old, parsed(c.edits...)) {
			got = append(got, d.What+" "+d.Text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.edits, got, c.want)
		}
	}
	if got := Diff(nil, old); len(got) != 2 || got[0].What != "new" || len(Diff(old, old)) != 0 {
		t.Error(got)
	}
}

// TestDiffSeesEveryField checks that a change of any key of a manifest gives a line, also for keys that are added
// later.
func TestDiffSeesEveryField(t *testing.T) {
	silent := []string{"Pack", "Version", "ID", "Description", "Docs"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[manifest]()) {
		if slices.Contains(silent, f.Name) {
			continue
		}
		was := &Capability{ID: "demo.get"}
		now := &Capability{ID: "demo.get"}
		v := reflect.ValueOf(&now.spec).Elem().FieldByIndex(f.Index)
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"minProperties":-1,"weird":1}`))
			was.spec.InputSchema = json.RawMessage("{}")
		} else {
			fill(v)
		}
		if was.spec.InputSchema == nil {
			was.spec.InputSchema = json.RawMessage("{}")
		}
		if now.spec.InputSchema == nil {
			now.spec.InputSchema = json.RawMessage("{}")
		}
		if got := Diff(&Pack{Capabilities: []*Capability{was}}, &Pack{Capabilities: []*Capability{now}}); len(got) == 0 {
			t.Errorf("nobody is told that %s changes", f.Name)
		}
	}
}

// fill sets v and all its parts to values other than zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(time.Hour))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 { // JSON
			v.SetBytes([]byte(`{"weird":1}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		elem := reflect.New(v.Type().Elem()).Elem()
		if elem.Kind() == reflect.Interface {
			elem.Set(reflect.ValueOf("y"))
		} else {
			fill(elem)
		}
		v.SetMapIndex(reflect.ValueOf("X"), elem)
	default:
		panic(fmt.Sprint("a manifest has a field of kind ", v.Kind()))
	}
}

// TestDiffTakesNoNameForAKey checks that a name chosen by the author is compared as a name even if it equals a key of
// the manifest.
func TestDiffTakesNoNameForAKey(t *testing.T) {
	for _, name := range []string{"ro", "rw", "exec", "egress", "credentials", "hide", "env", "inputSchema", "sandboxProfile", "timeout", "memoryMiB"} {
		with := func(value string) *Pack {
			c := &Capability{ID: "demo.get"}
			c.spec.InputSchema, c.spec.Env = json.RawMessage("{}"), map[string]string{name: value}
			return &Pack{Capabilities: []*Capability{c}}
		}
		got := Diff(with("a"), with("b"))
		if len(got) != 1 || got[0].What != "env."+name || got[0].Text != "a → b" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestDiffSeesOpenedKeys checks that a removed key is reported if its object accepts additional keys, because the key
// then accepts every value that those do.
func TestDiffSeesOpenedKeys(t *testing.T) {
	with := func(schema string) *Pack {
		c := &Capability{ID: "demo.get"}
		c.spec.InputSchema = json.RawMessage(`{"type":"object","properties":{"o":` + schema + `},"additionalProperties":false}`)
		return &Pack{Capabilities: []*Capability{c}}
	}
	if got := Diff(with(`{"type":"object","properties":{"mode":{"enum":["safe"]}}}`), with(`{"type":"object"}`)); len(got) != 1 || got[0].What != "input o mode" {
		t.Error(got)
	}
	if got := Diff(with(`{"properties":{"mode":{"enum":["safe"]},"n":true},"additionalProperties":{"type":"string"}}`), with(`{"properties":{"n":true},"additionalProperties":{"type":"string"}}`)); len(got) != 1 {
		t.Error(got)
	}
	if got := Diff(with(`{"properties":{"mode":{"enum":["safe"]}},"additionalProperties":false}`), with(`{"additionalProperties":false}`)); len(got) != 0 {
		t.Error(got)
	}
}
