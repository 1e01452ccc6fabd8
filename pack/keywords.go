package pack

import (
	"encoding/json"
	"math"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/strictyaml"
)

// defNames returns the names that a $ref may refer to.
func (r *reader) defNames(n ast.Node) []string {
	var names []string
	top, _ := n.(*ast.MappingNode)
	if top == nil {
		return nil
	}
	for _, kv := range top.Values {
		if strictyaml.KeyText(kv) != "$defs" {
			continue
		}
		for _, d := range r.Pairs(kv.Value, "$defs") {
			names = append(names, strictyaml.KeyText(d))
		}
	}
	return names
}

// keywordChecker checks that a schema contains only keywords that this package checks. An unchecked keyword would be a
// promise that is not enforced.
type keywordChecker struct {
	*reader
	defs   []string
	output bool // schema of an output: extensions for inputs are not allowed
}

func (k *keywordChecker) checkSchema(n ast.Node, what string, depth int) {
	if _, ok := n.(*ast.BoolNode); ok && depth > 0 {
		return
	}
	if depth > maxDepth {
		k.AddFault(n, "subschemas are nested deeper than %d", maxDepth)
		return
	}
	known := k.knownKeywords(depth)
	k.Fields(n, what, known)
	k.checkRefAlone(n)
}

// checkRefAlone refuses rules beside a $ref, because all readers would have to agree on how to combine them.
func (k *keywordChecker) checkRefAlone(n ast.Node) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return
	}
	beside, ref := "", false
	for _, kv := range m.Values {
		switch key := strictyaml.KeyText(kv); key {
		case "$ref":
			ref = true
		case "title", "description", "$comment", "default", "examples", "deprecated":
		default:
			beside = key
		}
	}
	if ref && beside != "" {
		k.AddFault(n, "$ref must be alone, but %s is beside it", strictyaml.Clip(beside))
	}
}

func (k *keywordChecker) knownKeywords(depth int) strictyaml.Fields {
	sub := func(n ast.Node) { k.checkSchema(n, "a schema", depth+1) }
	list := func(n ast.Node) {
		for _, item := range k.Items(n, "a list of schemas") {
			sub(item)
		}
	}
	table := func(n ast.Node) {
		seen := map[string]bool{}
		for _, kv := range k.Pairs(n, "a mapping of schemas") {
			name := strictyaml.KeyText(kv)
			if name == "" || seen[name] {
				k.AddFault(kv.Key, "names of properties must be words, each once, not %q", strictyaml.Clip(name))
			}
			seen[name] = true
			sub(kv.Value)
		}
	}
	var text string
	var flag bool
	words := strictyaml.TextField(k.File, "the keyword", &text)
	any := func(ast.Node) {}
	boolean := k.BoolField("the keyword", &flag)
	known := strictyaml.Fields{
		"title": words, "description": words, "$comment": words, "default": any, "const": any,
		"examples": k.checkIsList, "enum": k.checkIsList, "deprecated": boolean, "readOnly": boolean,
		"uniqueItems": boolean,
		"type":        k.checkTypes, "format": k.checkFormat, "pattern": k.checkPattern, "$ref": k.checkRef,
		"required": k.checkRequired,
		"minimum":  k.checkBound, "maximum": k.checkBound, "exclusiveMinimum": k.checkBound,
		"exclusiveMaximum": k.checkBound,
		"minLength":        k.checkSize, "maxLength": k.checkSize, "minItems": k.checkSize, "maxItems": k.checkSize,
		"minProperties": k.checkSize, "maxProperties": k.checkSize,
		"properties": table, "items": sub, "additionalProperties": sub, "not": sub, "if": sub, "then": sub, "else": sub,
		"allOf": list, "anyOf": list, "oneOf": list, "x-bailey": k.checkExtension, "acceptsSecret": k.checkSecrets,
	}
	if k.output {
		delete(known, "x-bailey")
		delete(known, "acceptsSecret")
	}
	if depth == 0 {
		known["$schema"], known["$defs"] = k.checkDialect, table
	}
	return known
}

// typeNames contains the types of JSON Schema.
var typeNames = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

func (k *keywordChecker) checkTypes(n ast.Node) {
	var names []string
	if _, list := n.(*ast.SequenceNode); list {
		strictyaml.TextsField(k.File, "type", &names)(n)
	} else {
		names = make([]string, 1)
		strictyaml.TextField(k.File, "type", &names[0])(n)
	}
	for _, name := range names {
		if name != "" && !slices.Contains(typeNames, name) {
			k.AddFault(n, "type must be one of %s, not %q%s", strings.Join(typeNames, ", "), strictyaml.Clip(name),
				strictyaml.DidYouMean(name, typeNames))
		}
	}
	if len(names) == 0 {
		k.AddFault(n, "type needs at least one name")
	}
}

// checkedFormats contains the formats that this package checks. An unchecked format would look like a rule without being one.
var checkedFormats = []string{"address", "host", "path", "subpath", "url"}

func (k *keywordChecker) checkFormat(n ast.Node) {
	v, _ := k.ReadText(n, "format")
	if !slices.Contains(checkedFormats, v) {
		k.AddFault(n, "this version supports the formats %s, not %q", strings.Join(checkedFormats, ", "),
			strictyaml.Clip(v))
	}
}

// categoryForm is the grammar of secret categories in redaction.
var categoryForm = lazyRegexp(`^[A-Z][A-Z0-9_]{0,31}$`)

// checkSecrets requires an explicit list of categories. An attacker could use an input that accepts any secret to collect
// secrets.
func (k *keywordChecker) checkSecrets(n ast.Node) {
	var names []string
	strictyaml.TextsField(k.File, "acceptsSecret", &names)(n)
	if len(names) == 0 {
		k.AddFault(n, "acceptsSecret needs at least one category, as in [PASSWORD]")
	}
	for _, name := range names {
		if !categoryForm().MatchString(name) {
			k.AddFault(n, "acceptsSecret must list categories such as PASSWORD or API_KEY, not %q", strictyaml.Clip(name))
		}
	}
}

func (k *keywordChecker) checkPattern(n ast.Node) {
	v, _ := k.ReadText(n, "pattern")
	if _, err := syntax.Parse(v, syntax.Perl); err != nil {
		k.AddFault(n, "pattern is not an RE2 regular expression: %s", safeText(err.Error()))
	}
}

func (k *keywordChecker) checkRef(n ast.Node) {
	v, _ := k.ReadText(n, "$ref")
	name, ok := strings.CutPrefix(v, "#/$defs/")
	if !ok || strings.ContainsAny(name, "/~%") || !slices.Contains(k.defs, name) {
		k.AddFault(n, "$ref must be #/$defs/NAME of this schema, not %q%s", strictyaml.Clip(v),
			strictyaml.DidYouMean(name, k.defs))
	}
}

func (k *keywordChecker) checkDialect(n ast.Node) {
	v, _ := k.ReadText(n, "$schema")
	if v != "https://json-schema.org/draft/2020-12/schema" {
		k.AddFault(n, "$schema must be https://json-schema.org/draft/2020-12/schema, not %q", strictyaml.Clip(v))
	}
}

func (k *keywordChecker) checkRequired(n ast.Node) {
	var names []string
	strictyaml.TextsField(k.File, "required", &names)(n)
}

func (k *keywordChecker) checkIsList(n ast.Node) { k.Items(n, "the keyword") }

// checkBound requires a limit whose integers float64 represents exactly, because tools may compare float64 values.
func (k *keywordChecker) checkBound(n ast.Node) {
	v, ok := k.Value(n, "a schema").(json.Number)
	if !ok {
		k.AddTypeFault(n, "the keyword", "a number")
		return
	}
	if f, err := v.Float64(); err != nil || math.Abs(f) >= 1<<53 {
		k.AddFault(n, "a bound must be less than 2^53, not %s", strictyaml.Clip(v.String()))
	}
}

func (k *keywordChecker) checkSize(n ast.Node) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		k.AddTypeFault(n, "the keyword", "an integer")
		return
	}
	if v, err := strconv.ParseInt(i.Token.Value, 10, 32); err != nil || v < 0 {
		k.AddFault(i, "a size must be an integer from 0, not %s", strictyaml.Clip(i.Token.Value))
	}
}

func (k *keywordChecker) checkExtension(n ast.Node) {
	var allow []string
	var options string
	k.Fields(n, "x-bailey", strictyaml.Fields{"allow": strictyaml.TextsField(k.File, "allow", &allow),
		"options": strictyaml.TextField(k.File, "options", &options)})
	if _, wrong := parseOptionTable(options); options != "" && wrong != "" {
		k.AddFault(n, "x-bailey options: %s", wrong)
	}
	for _, a := range allow {
		if !slices.Contains(allowances, a) {
			k.AddFault(n, "x-bailey allows %s, not %q", strings.Join(allowances, ", "), strictyaml.Clip(a))
		}
	}
}
