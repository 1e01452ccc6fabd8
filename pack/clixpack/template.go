package clixpack

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/strictyaml"
)

var (
	placeholder = lazyRegexp(`\{\{(.*?)\}\}`)
	inputForm   = lazyRegexp(`^inputs?\.([A-Za-z_][A-Za-z0-9_-]*)$`)
	filterForm  = lazyRegexp(`^default *(?:\( *(".*"|'.*'|[0-9]+) *\)|: *(".*"))$`)
)

// renderTemplate returns an argument with its placeholders in our spelling.
func (c *capability) renderTemplate(n ast.Node, text string) string {
	if strings.Contains(text, "{%") || strings.Contains(text, "{#") {
		c.file.AddFault(n, "%q contains a statement; only placeholders such as {{ input.x }} are supported",
			strictyaml.Clip(text))
		return ""
	}
	return placeholder().ReplaceAllStringFunc(text, func(word string) string {
		name, filter, filtered := strings.Cut(strings.TrimSpace(word[2:len(word)-2]), "|")
		found := inputForm().FindStringSubmatch(strings.TrimSpace(name))
		def, ok := "", true
		if filtered {
			def, ok = parseDefault(strings.TrimSpace(filter))
		} else if found != nil {
			def, filtered = c.schemaDefault(found[1])
		}
		if found == nil || !ok {
			c.file.AddFault(n, "%q is not supported; use {{ input.x }} or {{ input.x | default(\"y\") }}",
				strictyaml.Clip(word))
			return ""
		}
		if filtered {
			return "{{ input." + found[1] + " | default: " + strconv.Quote(def) + " }}"
		}
		return "{{ input." + found[1] + " }}"
	})
}

// parseDefault reads default("y"), default('y'), default(1) or default: "y".
func parseDefault(text string) (string, bool) {
	found := filterForm().FindStringSubmatch(text)
	if found == nil {
		return "", false
	}
	quoted := found[1] + found[2]
	switch quoted[0] {
	case '"':
		v, err := strconv.Unquote(quoted)
		return v, err == nil
	case '\'':
		inner := quoted[1 : len(quoted)-1]
		return inner, !strings.ContainsAny(inner, `'\`)
	}
	return quoted, true
}

// schemaDefault returns the default of an input, if it is a text or a number.
func (c *capability) schemaDefault(name string) (string, bool) {
	switch n := lookUp(lookUp(lookUp(c.schema, "properties"), name), "default").(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value, true
	case *ast.StringNode:
		return n.Value, true
	}
	return "", false
}

// lookUp returns the value of a key of a mapping, or nil.
func lookUp(n ast.Node, key string) ast.Node {
	pairs, _ := strictyaml.PairsOf(n)
	for _, kv := range pairs {
		if text, ok := strictyaml.TextOf(kv.Key); ok && text == key {
			return kv.Value
		}
	}
	return nil
}
