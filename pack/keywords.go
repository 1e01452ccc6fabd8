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

// defNames returns the names that a $ref may refer to.
func (r *reader) defNames(n ast.Node) []string {
	var names []string
	top, _ := n.(*ast.MappingNode)
	if top == nil {
		return nil
	}
	for _, kv := range top.Values {
		if k, _ := keyText(kv.Key); k != "$defs" {
			continue
		}
		for _, d := range r.mappingPairs(kv.Value, "$defs") {
			name, _ := keyText(d.Key)
			names = append(names, name)
		}
	}
	return names
}

// keywordChecker checks that a schema contains only keywords that this package and its library check. An unchecked keyword
// would be a promise that is not enforced.
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
		k.addFault(tokenOf(n), "subschemas are nested deeper than %d", maxDepth)
		return
	}
	known := k.knownKeywords(depth)
	k.readFields(n, what, known)
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
		switch key, _ := keyText(kv.Key); key {
		case "$ref":
			ref = true
		case "title", "description", "$comment", "default", "examples", "deprecated":
		default:
			beside = key
		}
	}
	if ref && beside != "" {
		k.addFault(tokenOf(n), "$ref stands alone, here %s stands beside it", clipText(beside))
	}
}

func (k *keywordChecker) knownKeywords(depth int) map[string]func(ast.Node) {
	sub := func(n ast.Node) { k.checkSchema(n, "a schema", depth+1) }
	list := func(n ast.Node) {
		for _, item := range k.listItems(n, "a list of schemas") {
			sub(item)
		}
	}
	table := func(n ast.Node) {
		seen := map[string]bool{}
		for _, kv := range k.mappingPairs(n, "a mapping of schemas") {
			name, ok := keyText(kv.Key)
			if !ok || name == "" || seen[name] {
				k.addFault(kv.Key.GetToken(), "names of properties are words, each once; found %q", clipText(name))
			}
			seen[name] = true
			sub(kv.Value)
		}
	}
	var text string
	var flag bool
	words := k.textField("the keyword", &text)
	any := func(ast.Node) {}
	boolean := k.boolField("the keyword", &flag)
	known := map[string]func(ast.Node){
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
		k.textsField("type", &names)(n)
	} else {
		names = make([]string, 1)
		k.textField("type", &names[0])(n)
	}
	for _, name := range names {
		if name != "" && !slices.Contains(typeNames, name) {
			k.addFault(tokenOf(n), "type is one of %s, found %q%s", strings.Join(typeNames, ", "), clipText(name),
				didYouMean(name, typeNames))
		}
	}
	if len(names) == 0 {
		k.addFault(tokenOf(n), "type wants at least one name")
	}
}

// checkedFormats contains the formats that this package checks. An unchecked format would look like a rule without being one.
var checkedFormats = []string{"address", "host", "path", "subpath", "url"}

func (k *keywordChecker) checkFormat(n ast.Node) {
	var v string
	k.textField("format", &v)(n)
	if !slices.Contains(checkedFormats, v) {
		k.addFault(tokenOf(n), "this version checks the formats %s, not %q", strings.Join(checkedFormats, ", "),
			clipText(v))
	}
}

// categoryForm is the grammar of secret categories in redaction.
var categoryForm = lazyRegexp(`^[A-Z][A-Z0-9_]{0,31}$`)

// checkSecrets requires an explicit list of categories. An attacker could use an input that accepts any secret to collect
// secrets.
func (k *keywordChecker) checkSecrets(n ast.Node) {
	var names []string
	k.textsField("acceptsSecret", &names)(n)
	if len(names) == 0 {
		k.addFault(tokenOf(n), "acceptsSecret wants at least one category, as in [PASSWORD]")
	}
	for _, name := range names {
		if !categoryForm().MatchString(name) {
			k.addFault(tokenOf(n), "acceptsSecret lists categories such as PASSWORD or API_KEY, found %q",
				clipText(name))
		}
	}
}

func (k *keywordChecker) checkPattern(n ast.Node) {
	var v string
	k.textField("pattern", &v)(n)
	if _, err := regexp.Compile(v); err != nil {
		k.addFault(tokenOf(n), "pattern is not a regular expression that RE2 reads: %s", safeText(err.Error()))
	}
}

func (k *keywordChecker) checkRef(n ast.Node) {
	var v string
	k.textField("$ref", &v)(n)
	name, ok := strings.CutPrefix(v, "#/$defs/")
	if !ok || strings.ContainsAny(name, "/~%") || !slices.Contains(k.defs, name) {
		k.addFault(tokenOf(n), "$ref wants #/$defs/NAME of this schema, found %q%s", clipText(v),
			didYouMean(name, k.defs))
	}
}

func (k *keywordChecker) checkDialect(n ast.Node) {
	var v string
	k.textField("$schema", &v)(n)
	if v != "https://json-schema.org/draft/2020-12/schema" {
		k.addFault(tokenOf(n), "$schema is https://json-schema.org/draft/2020-12/schema, found %q", clipText(v))
	}
}

func (k *keywordChecker) checkRequired(n ast.Node) {
	var names []string
	k.textsField("required", &names)(n)
}

func (k *keywordChecker) checkIsList(n ast.Node) { k.listItems(n, "the keyword") }

// checkBound requires a limit that float64 represents exactly, because the library compares float64 values.
func (k *keywordChecker) checkBound(n ast.Node) {
	v, ok := k.toJSONValue(n).(json.Number)
	if !ok {
		k.addTypeFault(n, "the keyword", "a number")
		return
	}
	if f, err := v.Float64(); err != nil || math.Abs(f) >= 1<<53 {
		k.addFault(tokenOf(n), "a bound is less than 2^53, found %s", clipText(v.String()))
	}
}

func (k *keywordChecker) checkSize(n ast.Node) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		k.addTypeFault(n, "the keyword", "an integer")
		return
	}
	if v, err := strconv.ParseInt(i.Token.Value, 10, 32); err != nil || v < 0 {
		k.addFault(i.Token, "a size is an integer from 0, found %s", clipText(i.Token.Value))
	}
}

func (k *keywordChecker) checkExtension(n ast.Node) {
	var allow []string
	var options string
	k.readFields(n, "x-bailey", map[string]func(ast.Node){"allow": k.textsField("allow", &allow),
		"options": k.textField("options", &options)})
	if _, wrong := parseOptionTable(options); options != "" && wrong != "" {
		k.addFault(tokenOf(n), "x-bailey options: %s", wrong)
	}
	for _, a := range allow {
		if !slices.Contains(allowances, a) {
			k.addFault(tokenOf(n), "x-bailey allows %s, not %q", strings.Join(allowances, ", "), clipText(a))
		}
	}
}
