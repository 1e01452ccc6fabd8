package pack

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// defs returns the names that a $ref may refer to.
func (r *reader) defs(n ast.Node) []string {
	var names []string
	top, _ := n.(*ast.MappingNode)
	if top == nil {
		return nil
	}
	for _, kv := range top.Values {
		if k, _ := keyText(kv.Key); k != "$defs" {
			continue
		}
		for _, d := range r.pairs(kv.Value, "$defs") {
			name, _ := keyText(d.Key)
			names = append(names, name)
		}
	}
	return names
}

// keywords checks that a schema contains only keywords that this package and its library check. An unchecked keyword
// would be a promise that is not enforced.
type keywords struct {
	*reader
	defs   []string
	output bool // schema of an output: extensions for inputs are not allowed
}

func (k *keywords) schema(n ast.Node, what string, depth int) {
	if _, ok := n.(*ast.BoolNode); ok && depth > 0 {
		return
	}
	if depth > maxDepth {
		k.fault(tokenOf(n), "subschemas are nested deeper than %d", maxDepth)
		return
	}
	known := k.known(depth)
	k.fields(n, what, known)
	k.alone(n)
}

// alone refuses rules beside a $ref, because all readers would have to agree on how to combine them.
func (k *keywords) alone(n ast.Node) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return
	}
	beside, ref := "", false
	for _, kv := range m.Values {
		switch key, _ := keyText(kv.Key); key {
		case "$ref":
			ref = true
		case "title", "description", "$comment", "default", "examples", "deprecated":
		default:
			beside = key
		}
	}
	if ref && beside != "" {
		k.fault(tokenOf(n), "$ref stands alone, here %s stands beside it", clip(beside))
	}
}

func (k *keywords) known(depth int) map[string]func(ast.Node) {
	sub := func(n ast.Node) { k.schema(n, "a schema", depth+1) }
	list := func(n ast.Node) {
		for _, item := range k.items(n, "a list of schemas") {
			sub(item)
		}
	}
	table := func(n ast.Node) {
		seen := map[string]bool{}
		for _, kv := range k.pairs(n, "a mapping of schemas") {
			name, ok := keyText(kv.Key)
			if !ok || name == "" || seen[name] {
				k.fault(kv.Key.GetToken(), "names of properties are words, each once; found %q", clip(name))
			}
			seen[name] = true
			sub(kv.Value)
		}
	}
	var text string
	var flag bool
	words := k.text("the keyword", &text)
	any := func(ast.Node) {}
	boolean := k.flag("the keyword", &flag)
	known := map[string]func(ast.Node){
		"title": words, "description": words, "$comment": words, "default": any, "const": any,
		"examples": k.listed, "enum": k.listed, "deprecated": boolean, "readOnly": boolean, "uniqueItems": boolean,
		"type": k.types, "format": k.format, "pattern": k.pattern, "$ref": k.ref, "required": k.required,
		"minimum": k.number, "maximum": k.number, "exclusiveMinimum": k.number, "exclusiveMaximum": k.number,
		"minLength": k.size, "maxLength": k.size, "minItems": k.size, "maxItems": k.size, "minProperties": k.size, "maxProperties": k.size,
		"properties": table, "items": sub, "additionalProperties": sub, "not": sub, "if": sub, "then": sub, "else": sub,
		"allOf": list, "anyOf": list, "oneOf": list, "x-bailey": k.extra, "acceptsSecret": k.secrets,
	}
	if k.output {
		delete(known, "x-bailey")
		delete(known, "acceptsSecret")
	}
	if depth == 0 {
		known["$schema"], known["$defs"] = k.dialect, table
	}
	return known
}

// typeNames contains the types of JSON Schema.
var typeNames = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

func (k *keywords) types(n ast.Node) {
	var names []string
	if _, list := n.(*ast.SequenceNode); list {
		k.texts("type", &names)(n)
	} else {
		names = make([]string, 1)
		k.text("type", &names[0])(n)
	}
	for _, name := range names {
		if name != "" && !slices.Contains(typeNames, name) {
			k.fault(tokenOf(n), "type is one of %s, found %q%s", strings.Join(typeNames, ", "), clip(name), near(name, typeNames))
		}
	}
	if len(names) == 0 {
		k.fault(tokenOf(n), "type wants at least one name")
	}
}

// formats contains the formats that this package checks. An unchecked format would look like a rule without being one.
var formats = []string{"address", "host", "path", "subpath", "url"}

func (k *keywords) format(n ast.Node) {
	var v string
	k.text("format", &v)(n)
	if !slices.Contains(formats, v) {
		k.fault(tokenOf(n), "this version checks the formats %s, not %q", strings.Join(formats, ", "), clip(v))
	}
}

// categoryForm is the grammar of secret categories in redaction.
var categoryForm = lazy(`^[A-Z][A-Z0-9_]{0,31}$`)

// secrets requires an explicit list of categories. An attacker could use an input that accepts any secret to collect
// secrets.
func (k *keywords) secrets(n ast.Node) {
	var names []string
	k.texts("acceptsSecret", &names)(n)
	if len(names) == 0 {
		k.fault(tokenOf(n), "acceptsSecret wants at least one category, as in [PASSWORD]")
	}
	for _, name := range names {
		if !categoryForm().MatchString(name) {
			k.fault(tokenOf(n), "acceptsSecret lists categories such as PASSWORD or API_KEY, found %q", clip(name))
		}
	}
}

func (k *keywords) pattern(n ast.Node) {
	var v string
	k.text("pattern", &v)(n)
	if _, err := regexp.Compile(v); err != nil {
		k.fault(tokenOf(n), "pattern is not a regular expression that RE2 reads: %s", show(err.Error()))
	}
}

func (k *keywords) ref(n ast.Node) {
	var v string
	k.text("$ref", &v)(n)
	name, ok := strings.CutPrefix(v, "#/$defs/")
	if !ok || strings.ContainsAny(name, "/~%") || !slices.Contains(k.defs, name) {
		k.fault(tokenOf(n), "$ref wants #/$defs/NAME of this schema, found %q%s", clip(v), near(name, k.defs))
	}
}

func (k *keywords) dialect(n ast.Node) {
	var v string
	k.text("$schema", &v)(n)
	if v != "https://json-schema.org/draft/2020-12/schema" {
		k.fault(tokenOf(n), "$schema is https://json-schema.org/draft/2020-12/schema, found %q", clip(v))
	}
}

func (k *keywords) required(n ast.Node) {
	var names []string
	k.texts("required", &names)(n)
}

func (k *keywords) listed(n ast.Node) { k.items(n, "the keyword") }

// number requires a limit that float64 represents exactly, because the library compares float64 values.
func (k *keywords) number(n ast.Node) {
	v, ok := k.tree(n).(json.Number)
	if !ok {
		k.wants(n, "the keyword", "a number")
		return
	}
	if f, err := v.Float64(); err != nil || math.Abs(f) >= 1<<53 {
		k.fault(tokenOf(n), "a bound is less than 2^53, found %s", clip(v.String()))
	}
}

func (k *keywords) size(n ast.Node) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		k.wants(n, "the keyword", "an integer")
		return
	}
	if v, err := strconv.ParseInt(i.Token.Value, 10, 32); err != nil || v < 0 {
		k.fault(i.Token, "a size is an integer from 0, found %s", clip(i.Token.Value))
	}
}

func (k *keywords) extra(n ast.Node) {
	var allow []string
	k.fields(n, "x-bailey", map[string]func(ast.Node){"allow": k.texts("allow", &allow)})
	for _, a := range allow {
		if !slices.Contains(allowances, a) {
			k.fault(tokenOf(n), "x-bailey allows %s, not %q", strings.Join(allowances, ", "), clip(a))
		}
	}
}
