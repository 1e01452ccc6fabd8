package pack

import (
	"fmt"
	"strings"
	"testing"
)

// with returns a pack whose only capability has the given schema (YAML flow style) and args.
func with(schema, args string) string {
	return "name: t\nversion: '1'\ncapabilities:\n  - name: c\n    risk: low\n    sideEffectClass: none\n    reversibility: readOnly\n" +
		"    backend: {type: subprocess, command: echo, args: " + args + "}\n    inputSchema: " + schema + "\n"
}

func capability(t testing.TB, schema, args string) *Capability {
	t.Helper()
	return mustParse(t, with(schema, args)).Capabilities[0]
}

func TestSchemaRefuses(t *testing.T) {
	props := func(s string) string { return "{properties: {x: " + s + "}}" }
	deep := strings.Repeat("{items: ", maxDepth+1) + "{}" + strings.Repeat("}", maxDepth+1)
	for _, c := range []struct{ name, schema, want string }{
		{"unknown keyword", props("{multipleOf: 2}"), `a schema has no key "multipleOf"`},
		{"misspelled", props("{minLenght: 2}"), `did you mean "minLength"?`},
		{"case", props("{Type: string}"), `has no key "Type"; did you mean "type"?`},
		{"type", props("{type: int}"), `type must be one of`},
		{"type of another type", props("{type: 3}"), `must be a string`},
		{"no type", props("{type: []}"), `at least one name`},
		{"format", props("{format: date}"), `this version supports the formats address, host, path, subpath, url, not "date"`},
		{"pattern", props("{pattern: '(?=x)'}"), `not an RE2 regular expression`},
		{"remote ref", props("{$ref: 'https://example.org/x'}"), `$ref must be #/$defs/NAME`},
		{"file ref", props("{$ref: 'file:///etc/passwd'}"), `$ref must be #/$defs/NAME`},
		{"root ref", props("{$ref: '#'}"), `$ref must be #/$defs/NAME`},
		{"property ref", props("{$ref: '#/properties/x'}"), `$ref must be #/$defs/NAME`},
		{"unknown ref", "{$defs: {a: {}}, properties: {x: {$ref: '#/$defs/b'}}}", `$ref must be #/$defs/NAME`},
		{"ref in company", "{$defs: {a: {}}, properties: {x: {$ref: '#/$defs/a', type: string}}}", `$ref must be alone`},
		{"cycle", "{$defs: {a: {$ref: '#/$defs/a'}}, properties: {x: {$ref: '#/$defs/a'}}}", `a $ref leads back to itself`},
		{"unused cycle", "{$defs: {a: {$ref: '#/$defs/a', default: 1}}}", `a $ref leads back to itself`},
		{"long cycle", "{$defs: {a: {items: {$ref: '#/$defs/b'}}, b: {items: {$ref: '#/$defs/a'}}}, properties: {x: {$ref: '#/$defs/a'}}}", `a $ref leads back to itself`},
		{"deep", props(deep), `nested deeper than 16`},
		{"wide by ref", multiplying(3, 20), `more than 4096 subschemas`},
		{"deep by ref", multiplying(20, 2), `nested deeper than 16`},
		{"open top", "{additionalProperties: true}", `closed at the top`},
		{"typed top", "{type: array}", `must have type object at the top`},
		{"ref at top", "{$defs: {a: {}}, $ref: '#/$defs/a'}", `$ref must be alone`},
		{"required unknown", "{required: [x]}", `requires "x", which is not a property`},
		{"name", "{properties: {'a b': {}}}", `input name "a b" does not match`},
		{"dialect", "{$schema: 'http://json-schema.org/draft-07/schema#'}", `$schema must be https://json-schema.org/draft/2020-12/schema`},
		{"id", "{$id: 'https://example.org/'}", `has no key "$id"`},
		{"dynamic", props("{$dynamicRef: '#x'}"), `has no key "$dynamicRef"`},
		{"deep defs", props("{$defs: {}}"), `has no key "$defs"`},
		{"bound beyond float64", props("{minimum: 9007199254740993}"), `a bound must be less than 2^53`},
		{"bound in hex", props("{minimum: 0x10}"), `not a JSON number`},
		{"bound without end", props("{minimum: .inf}"), `must be`},
		{"size", props("{minLength: -1}"), `a size must be an integer from 0`},
		{"allow", props("{x-bailey: {allow: [everything]}}"), `x-bailey allows at, empty, file, lines, option, plain, url, not "everything"`},
		{"x-bailey key", props("{x-bailey: {alow: [at]}}"), `x-bailey has no key "alow"`},
		{"duplicate property", "{properties: {x: {}, x: {}}}", `each once`},
		{"properties as list", "{properties: [x]}", `must be a mapping`},
		{"default of another type", props("{type: integer, default: x}"), `inputSchema:`},
		{"hidden in enum", props(`{enum: ["a\u200b"]}`), "invisible character"},
		{"too large", props("{description: '" + strings.Repeat("x", maxSchema) + "'}"), `larger than`},
		{"text", "hello", `must be a mapping`},
		{"true", "true", `must be a mapping`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("x", []byte(with(c.schema, "[]")))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// multiplying returns a schema of n definitions, each of which refers several times to the previous one.
func multiplying(n, times int) string {
	var b strings.Builder
	b.WriteString("{$defs: {d0: {type: string}")
	for i := range n {
		ref := fmt.Sprintf("{$ref: '#/$defs/d%d'}", i)
		fmt.Fprintf(&b, ", d%d: {allOf: [%s]}", i+1, strings.Repeat(ref+", ", times-1)+ref)
	}
	fmt.Fprintf(&b, "}, properties: {x: {$ref: '#/$defs/d%d'}}}", n)
	return b.String()
}

func TestSchemaTakes(t *testing.T) {
	for _, schema := range []string{
		"{}", "{type: object}", "{$schema: 'https://json-schema.org/draft/2020-12/schema', additionalProperties: false}",
		"{properties: {x: true}}", "{properties: {x: {$ref: '#/$defs/a', description: d}}, $defs: {a: {type: string}}}",
		"{properties: {x: {anyOf: [{type: string}, {type: integer}]}, y: {not: {type: 'null'}}}}",
		"{properties: {x: {if: {type: string}, then: {minLength: 2}, else: {minimum: 2}}}, minProperties: 1}",
		"{properties: {x: {type: [string, 'null'], default: a, examples: [b], deprecated: true}}, required: [x]}",
	} {
		if _, err := Parse("x", []byte(with(schema, "[]"))); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}
