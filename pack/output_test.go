package pack

import (
	"encoding/json"
	"strings"
	"testing"

	"bailey"
)

func promising(t testing.TB, schema string) *Capability {
	t.Helper()
	return mustParse(t, strings.Replace(sample, "timeout: 30s", "outputSchema: "+schema, 1)).Capabilities[0]
}

const pods = `{type: object, required: [items], properties: {kind: {const: List}, items: {type: array, maxItems: 3, items: {type: object, required: [name],
      properties: {name: {type: string, pattern: "^[a-z-]+$"}, host: {type: string, format: host}, up: {type: boolean}, n: {type: integer, minimum: 0}, phase: {enum: [Running, Failed]}},
      anyOf: [{required: [up]}, {required: [n]}]}}}}`

func TestStructure(t *testing.T) {
	m := promising(t, pods)
	for _, c := range []struct{ stdout, want string }{
		{" {\"kind\":\"List\", \"items\":[{\"name\":\"a\",\"n\":3.0,\"phase\":\"Running\"}]}\n", ""},
		{`{"items":[]}`, ""},
		{`{"items":[{"name":"@a-b http://x","up":true}]}`, `/items/0/name: "@a-b http://x" does not match`},
		{`{"items":[{"name":"","up":true}]}`, `/items/0/name: "" does not match`},
		{`{}`, "/items is missing"},
		{`{"items":[{"up":true}]}`, "/items/0/name is missing"},
		{`{"items":[{"name":"a","n":-1}]}`, "/items/0/n: -1 is less than 0"},
		{`{"items":[{"name":"a","n":1,"phase":"Gone"}]}`, `/items/0/phase: "Gone" is not one of "Running", "Failed"`},
		{`{"items":[{"name":"a","n":1,"host":"a b"}]}`, `/items/0/host: "a b" is not the name`},
		{`{"items":[{"name":"a"}]}`, "anyOf"},
		{`{"kind":"Pod","items":[]}`, "Pod"},
		{`[]`, "/: a list of 0 is not an object"},
		{``, "it is not JSON"},
		{`{"items":[]} {}`, "it is not JSON"},
		{`{"items":[]}]`, "it is not JSON"},
		{`{"items":[`, "it is not JSON"},
		{"{\"items\":[],\"\xff\":1", "it is not JSON"},
		{`{"items":[],"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, "nested deeper than 128"},
		{`{"items":[],"x":"` + strings.Repeat("<", 1<<20) + `"}`, "more than 3145728"},
		// redaction keeps a value valid
		{`{"items":[{"name":"[REDACTED_API_KEY_1]","up":true,"host":"[REDACTED_IPV4_2]","phase":"[REDACTED_TOKEN_X]"}]}`, ""},
		{`{"items":[{"name":1,"x":"[REDACTED_API_KEY_1]"}]}`, "/items/0/name: 1 is not a string"},
		// written by the tool itself (package redact)
		{`{"items":[{"name":"[REDACTED__API_KEY_1]","up":true}]}`, "does not match"},
	} {
		raw, err := m.Structure([]byte(c.stdout))
		switch {
		case c.want == "" && (err != nil || !json.Valid(raw)):
			t.Errorf("%.80s: %v", c.stdout, err)
		case c.want != "" && (raw != nil || bailey.KindOf(err) != bailey.ToolFailed || !strings.HasPrefix(err.Error(), "the output does not match outputSchema: ") ||
			!strings.Contains(err.Error(), c.want) || !strings.Contains(bailey.HintOf(err), "the tool succeeded")):
			t.Errorf("%.80s: %v, want %s", c.stdout, err, c.want)
		}
		if err != nil && len(err.Error()) > 4<<10 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
	raw, err := m.Structure([]byte(`{"items":[], "n": 12345678901234567890, "a": 1, "a": 2}`))
	if err != nil || string(raw) != `{"a":2,"items":[],"n":12345678901234567890}` {
		t.Errorf("%s, %v", raw, err)
	}
}

// TestOutputShape checks that valid output also fits the published shape, redacted or not, and that other output does
// not.
func TestOutputShape(t *testing.T) {
	m := promising(t, pods)
	check := libraryCheck(t, m.OutputShape())
	for text, want := range map[string]bool{
		`{"kind":"List","items":[{"name":"a","n":3,"phase":"Running"}]}`:               true,
		`{"kind":"List","items":[{"name":"[REDACTED_A_1]","phase":"[REDACTED_B_2]"}]}`: true,
		`{"items":[{"name":"A"}]}`:                           false,
		`{"items":[{"name":"a","phase":"Gone"}]}`:            false,
		`{"kind":"Pod","items":[]}`:                          true,
		`{"kind":"Pod","items":[{"name":"[REDACTED_A_1]"}]}`: true,
		`{"items":[{}]}`:                                     false,
		`{"items":{}}`:                                       false,
	} {
		v, err := decodeJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(v); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	if string(m.OutputSchema()) == string(m.OutputShape()) || mustParse(t, sample).Capabilities[0].OutputShape() != nil {
		t.Error("the schema itself is loosened, or nothing is promised")
	}
}

func TestOutputSchemaRefuses(t *testing.T) {
	for schema, want := range map[string]string{
		"[]":                        "outputSchema must be a mapping",
		"{type: list}":              `type must be one of`,
		"{format: date}":            "this version supports the formats",
		"{unevaluatedItems: false}": `outputSchema has no key "unevaluatedItems"`,
		"{x-bailey: {allow: [at]}}": `outputSchema has no key "x-bailey"`,
		"{properties: {a: {acceptsSecret: [X]}}}":                  `a schema has no key "acceptsSecret"`,
		"{$ref: \"#/$defs/a\", $defs: {a: {$ref: \"#/$defs/a\"}}}": "$ref",
	} {
		t.Run(schema, func(t *testing.T) {
			wantErr(t, strings.Replace(sample, "timeout: 30s", "outputSchema: "+schema, 1), want)
		})
	}
	if m := mustParse(t, sample).Capabilities[0]; m.OutputSchema() != nil || m.Narrow() != "" {
		t.Error("promises what it does not say")
	}
	if got := string(promising(t, "{type: array}").OutputSchema()); got != `{"type":"array"}` {
		t.Error(got)
	}
}

// TestPromisesAreOfPrograms checks that a capability without a program cannot have stdin, argument validators or an
// output schema.
func TestPromisesAreOfPrograms(t *testing.T) {
	const chain = `name: demo
version: 1.0.0
capabilities:
  - name: both
    backend: {type: workflow, steps: [{id: one, call: demo.look}]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
`
	if m := mustParse(t, chain).Capabilities[0]; m.Workspace() {
		t.Error("a workflow has a workspace of its own")
	}
	for key, want := range map[string]string{
		"stdin: text\n    inputSchema: {properties: {stdin: {type: string}}}": "runs no program that could read stdin",
		"outputSchema: {type: object}":                                        "runs no program that outputSchema could describe",
		"validators: [{type: DenyArgs, args: [x]}]":                           "runs no program, so it cannot have validators",
	} {
		wantErr(t, chain+"    "+key+"\n", want)
	}
	wantErr(t, strings.Replace(chain, "workflow, ", "workflow, cwd: none, ", 1), "or cwd")
}

func TestPage(t *testing.T) {
	with := func(page string) string {
		return strings.Replace(sample, "timeout: 30s", "output: {page: "+page+"}", 1)
	}
	for page, want := range map[string]string{
		"{limit: width}":            "request less at once with width",
		"{next: width}":             "request the rest with width",
		"{limit: width, next: all}": "request less at once with width, and the rest with all",
	} {
		m := mustParse(t, with(page)).Capabilities[0]
		if got := m.Narrow(); got != want {
			t.Errorf("%s: %q", page, got)
		}
		if err := m.Cut(); bailey.KindOf(err) != bailey.ToolFailed || !strings.Contains(bailey.HintOf(err), want) {
			t.Errorf("%v", err)
		}
	}
	wantErr(t, with("{}"), "page needs limit or next")
	wantErr(t, with("{limit: widht}"), `page: "widht" is not an input; did you mean "width"?`)
	wantErr(t, with("{size: width}"), `page has no key "size"`)
	wantErr(t, strings.Replace(sample, "timeout: 30s", "output: {pages: x}", 1), `output has no key "pages"`)
}

// FuzzStructure checks that any tool output is refused with a short error, or gives JSON that is accepted again.
func FuzzStructure(f *testing.F) {
	m := promising(f, pods)
	for _, seed := range []string{`{"items":[{"name":"a","n":3.0,"phase":"Running","host":"::1"}]}`, `{"items":[{"name":"[REDACTED_A_1]","up":true}]}`, `{"kind":1,"items":[{"name":"[REDACTED_A_1]"}]}`, `{"items":[{"n":1e999}]}`, `[[[]]]`, `{"items":null,"\u0000":"\ud800"}`, "\xff"} {
		f.Add([]byte(seed))
	}
	check := libraryCheck(f, m.OutputShape())
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := m.Structure(data)
		if err != nil {
			if raw != nil || bailey.KindOf(err) != bailey.ToolFailed || strings.ContainsAny(err.Error(), "\x00\x1b\n") || len(err.Error()) > 8<<10 {
				t.Errorf("%q", err)
			}
			return
		}
		again, err := m.Structure(raw)
		if err != nil || string(again) != string(raw) {
			t.Errorf("%s does not pass again: %v", raw, err)
		}
		if v, _ := decodeJSON(string(raw)); check(v) != nil {
			t.Errorf("%s is not of the shape that is shown: %v", raw, check(v))
		}
	})
}
