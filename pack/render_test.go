package pack

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"bailey"
)

const rendered = "{properties: {s: {type: string, x-bailey: {allow: [empty, lines, at, url, file]}}, n: {type: integer}, f: {type: number}, b: {type: boolean}, " +
	"l: {type: array, items: {type: string}}, p: {type: string, format: path}, any: {}, " +
	"o: {type: string, x-bailey: {allow: [option]}}, lo: {type: array, items: {type: string, x-bailey: {allow: [option]}}}}}"

func TestRender(t *testing.T) {
	for _, c := range []struct {
		args string
		in   map[string]any
		want []string // nil: refused
	}{
		{`["{{ input.s }}"]`, map[string]any{"s": "x y; $(z)"}, []string{"x y; $(z)"}},
		{`["{{input.s}}"]`, map[string]any{"s": "{{ input.n }}", "n": json.Number("1")}, []string{"{{ input.n }}"}},
		{`["a", "{{ input.s }}", "b"]`, nil, []string{"a", "b"}},
		{`["--x={{ input.s }}"]`, nil, []string{}},
		{`["--x={{ input.s }}"]`, map[string]any{"s": ""}, []string{"--x="}},
		{`["--x={{ input.s }}"]`, map[string]any{"s": "-y"}, []string{"--x=-y"}},
		{`["{{ input.s }}"]`, map[string]any{"s": ""}, []string{""}},
		{`["{{ input.s | default: \"d e\" }}"]`, nil, []string{"d e"}},
		{`["{{ input.s | default: \"-d\" }}"]`, nil, []string{"-d"}},
		{`["{{ input.s | default: \"d\" }}"]`, map[string]any{"s": nil}, []string{"d"}},
		{`["{{ input.s | default: \"d\" }}"]`, map[string]any{"s": "x"}, []string{"x"}},
		{`["{{ input.s | default: \"-d\" }}"]`, map[string]any{"s": "-x"}, nil},
		{`["{{ input.s }}"]`, map[string]any{"s": "-x"}, nil},
		{`["{{ input.s }}"]`, map[string]any{"s": "-"}, nil},
		{`["{{ input.s }}{{ input.n }}"]`, map[string]any{"s": "", "n": json.Number("-1")}, nil},
		{`["{{ input.n }}{{ input.s }}"]`, map[string]any{"s": "-x", "n": json.Number("1")}, []string{"1-x"}},
		{`["{{ input.n }}{{ input.s }}"]`, map[string]any{"s": "-x"}, []string{}},
		{`["{{ input.n }}"]`, map[string]any{"n": json.Number("-5")}, nil},
		{`["--", "{{ input.s }}"]`, map[string]any{"s": "-x"}, []string{"--", "-x"}},
		{`["{{ input.s }}", "--"]`, map[string]any{"s": "-x"}, nil},
		{`["{{ input.s }}", "{{ input.l }}"]`, map[string]any{"s": "x", "l": []any{"--", "-y"}}, nil},
		{`["{{ input.l }}"]`, map[string]any{"l": []any{"a", "b c"}}, []string{"a", "b c"}},
		{`["x", "{{ input.l }}"]`, map[string]any{"l": []any{}}, []string{"x"}},
		{`["{{ input.l }}"]`, map[string]any{"l": []any{"a", "-b"}}, nil},
		{`["{{ input.l | each: \"--f=\" }}", "x"]`, map[string]any{"l": []any{"a", "-b"}}, []string{"--f=a", "--f=-b", "x"}},
		{`["{{ input.l | each: \"--f=\" }}", "x"]`, nil, []string{"x"}},
		{`["--", "{{ input.l }}"]`, map[string]any{"l": []any{"a", "-b"}}, []string{"--", "a", "-b"}},
		{`["{{ input.l }}"]`, map[string]any{"l": []any{[]any{"a"}}}, nil},
		{`["{{ input.n }}"]`, map[string]any{"n": json.Number("1e6")}, []string{"1000000"}},
		{`["{{ input.n }}"]`, map[string]any{"n": json.Number("12345678901234567890")}, []string{"12345678901234567890"}},
		{`["{{ input.n }}"]`, map[string]any{"n": json.Number("-0")}, []string{"0"}},
		{`["{{ input.f }}"]`, map[string]any{"f": json.Number("0.10")}, []string{"0.10"}},
		{`["-{{ input.n }}"]`, map[string]any{"n": json.Number("5")}, []string{"-5"}},
		{`["{{ input.b }}"]`, map[string]any{"b": false}, []string{"false"}},
		{`["{{ input.b | flag: \"--all\" }}"]`, map[string]any{"b": true}, []string{"--all"}},
		{`["{{ input.b | flag: \"--all\" }}"]`, map[string]any{"b": false}, []string{}},
		{`["{{ input.b | flag: \"--all\" }}"]`, nil, []string{}},
		{`["{{ input.p }}"]`, map[string]any{"p": "../x"}, []string{"/canonical/x"}},
		{`["--in={{ input.p }}"]`, map[string]any{"p": "../x"}, []string{"--in=/canonical/x"}},
		{`["{{ input.any }}"]`, map[string]any{"any": map[string]any{}}, nil},
		{`["a{{ input.any }}"]`, map[string]any{"any": []any{"x"}}, nil},
		{`["{{ input.s }}"]`, map[string]any{"s": "a\x00b"}, nil},
		{`["{{ input.s }}{{ input.s }}"]`, map[string]any{"s": strings.Repeat("x", maxArg/2+1)}, nil},
		{`["{{ input.o }}", "{{ input.lo }}"]`, map[string]any{"o": "-x", "lo": []any{"a", "--b"}}, []string{"-x", "a", "--b"}},
		{`["{{ input.o }}{{ input.s }}"]`, map[string]any{"o": "", "s": "-x"}, nil},
		{`["{{ input.lo }}", "{{ input.s }}"]`, map[string]any{"lo": []any{"-a"}, "s": "-x"}, nil},
		{`["", " "]`, nil, []string{"", " "}},
	} {
		m := capability(t, rendered, c.args)
		got, err := m.Render(c.in, map[string]string{"p": "/canonical/x"})
		if c.want == nil {
			if err == nil || bailey.KindOf(err) != bailey.Invalid {
				t.Errorf("%s with %.60v: got %q, %v", c.args, c.in, got, err)
			}
			continue
		}
		if err != nil || len(got)+len(c.want) > 0 && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s with %.60v: got %q, %v; want %q", c.args, c.in, got, err, c.want)
		}
	}
}

// TestRenderWantsOpenedPaths checks that a path that was not opened never reaches the tool as the caller wrote it.
func TestRenderWantsOpenedPaths(t *testing.T) {
	m := capability(t, rendered, `["{{ input.p }}"]`)
	for _, paths := range []map[string]string{nil, {"q": "/x"}, {"p": ""}} {
		if got, err := m.Render(map[string]any{"p": "x"}, paths); !errors.Is(err, bailey.Internal) {
			t.Errorf("%v: %q, %v", paths, got, err)
		}
	}
}

func TestRenderTotal(t *testing.T) {
	m := capability(t, rendered, `["{{ input.l }}"]`)
	l := make([]any, maxTotal/maxArg+1)
	for i := range l {
		l[i] = strings.Repeat("x", maxArg)
	}
	if _, err := m.Render(map[string]any{"l": l}, nil); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
}

func TestTemplateRefuses(t *testing.T) {
	for args, want := range map[string]string{
		`["{{ input.x }}"]`:                              `input.x is not in the inputSchema`,
		`["{{ input.any2 }}"]`:                           `did you mean "any"?`,
		`["{{ env.HOME }}"]`:                             `is not a placeholder`,
		`["{{ input.s"]`:                                 `is not a placeholder`,
		`["{{ input.s }"]`:                               `is not a placeholder`,
		`["{{ input.s | upper }}"]`:                      `is not a placeholder`,
		`["{{ input.s | default: x }}"]`:                 `is not a placeholder`,
		`["{{ input.s | default: \"x }}"]`:               `is not a placeholder`,
		`["{{ input.s | default: \"x\" | flag: \"\"}}"]`: `is not a placeholder`,
		`["{{ input.b | flag: \"\" }}"]`:                 `is not a placeholder`,
		`["{{ input.s input.n }}"]`:                      `is not a placeholder`,
		`["{{ input. }}"]`:                               `is not a placeholder`,
		`["{{}}"]`:                                       `is not a placeholder`,
		`["a }} b"]`:                                     `closes a placeholder`,
		`["{{ input.s | flag: \"-x\" }}"]`:               `flag needs a boolean`,
		`["x{{ input.b | flag: \"-x\" }}"]`:              `flag needs a boolean`,
		`["{{ input.s | each: \"-x\" }}"]`:               `each needs a list`,
		`["x{{ input.l | each: \"-x\" }}"]`:              `may be a list`,
		`["{{ input.l | each: \"\" }}"]`:                 `is not a placeholder`,
		`["--x={{ input.l }}"]`:                          `may be a list`,
		`["-{{ input.s }}"]`:                             `would choose the option`,
		`["--{{ input.s }}"]`:                            `would choose the option`,
		`["--{{ input.s }}=x"]`:                          `would choose the option`,
		`[1]`:                                            `args must be a string, not a number`,
		`["a\x07"]`:                                      `control character`,
	} {
		if _, err := Parse("x", []byte(with(rendered, args))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
	object := "{properties: {o: {type: object}}}"
	if _, err := Parse("x", []byte(with(object, `["{{ input.o }}"]`))); err == nil || !strings.Contains(err.Error(), "is an object") {
		t.Error(err)
	}
}

func FuzzValues(f *testing.F) {
	m := capability(f, "{properties: {s: {type: string}, n: {type: number}, l: {type: array, items: {type: string}}, b: {type: boolean}, o: {type: object}, any: {}}}",
		`["{{ input.s }}", "--s={{ input.s }}", "{{ input.n }}", "{{ input.l }}", "{{ input.b }}", "--", "{{ input.s }}", "{{ input.any }}"]`)
	m.spec.Validators = []validator{{Type: denyArgs, Args: []string{"--force", "-f", "evil"}}}
	read := capability(f, "{properties: {stdin: {type: string}}}", `[]`)
	read.schema.root.Properties["stdin"].stream = true
	f.Add([]byte(`{"s":"@x\u000a","o":{"k":1}}`), true)
	for _, seed := range []string{`{"s":"x","o":{"k":0}}`, `{"s":"evil","o":{"k":0}}`, `{"l":["x","-f"],"o":{"k":0}}`, `{"s":"-x","n":1e5}`, `{"l":["a","@b"],"n":-1}`, `{"any":[1,{"a":null}]}`, `{"s":"=file://"}`, `{"o":{"a":[[]]}}`, `{"n":1e308}`} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, text bool) {
		in, err := decodeJSON(string(data))
		input, ok := in.(map[string]any)
		if err != nil || !ok {
			return
		}
		if given, ok := input["s"].(string); ok {
			if _, err := read.Check(map[string]any{"stdin": given}, text); (err == nil) != (stdinFault(given) == "") {
				t.Errorf("stdin %q: %v", given, err)
			}
		}
		clean, err := m.Check(input, text)
		if err != nil {
			if bailey.KindOf(err) != bailey.Invalid || strings.ContainsAny(err.Error(), "\x00\x1b\n") || len(err.Error()) > 8<<10 {
				t.Errorf("%q", err)
			}
			return
		}
		again, err := m.Check(clean, false)
		if err != nil || !reflect.DeepEqual(clean, again) {
			t.Errorf("what passed once does not pass again: %v, %v", clean, err)
		}
		args, err := m.Render(clean, nil)
		if err != nil {
			return
		}
		operands := false
		for _, a := range args {
			if a == "--" {
				operands = true
			}
			if a == "evil" || a == "-f" || a == "--force" {
				t.Errorf("denied, and in %q", args)
			}
			if describeHiddenChar(a, false) != "" || len(a) > maxArg || !operands && strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--s=") {
				t.Errorf("argument %q in %q", a, args)
			}
		}
	})
}
