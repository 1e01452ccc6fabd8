package pack

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// readFields calls the function of each key in the mapping n and returns the keys that exist. An unknown or repeated key is
// a fault.
func (s *source) readFields(n ast.Node, what string, known map[string]func(ast.Node)) map[string]bool {
	seen := map[string]bool{}
	for _, kv := range s.mappingPairs(n, what) {
		key, ok := keyText(kv.Key)
		if !ok {
			s.addFault(kv.Key.GetToken(), "%s wants words as keys", what)
			continue
		}
		if full, ok := keyAliases[key]; ok {
			key = full
		}
		read, ok := known[key]
		switch {
		case !ok:
			s.addFault(kv.Key.GetToken(), "%s has no key %q%s", what, clipText(key), didYouMean(key, sortedKeys(known)))
		case seen[key]:
			s.addFault(kv.Key.GetToken(), "%s has the key %q twice", what, key)
		default:
			seen[key] = true
			read(kv.Value)
		}
	}
	return seen
}

// requireKeys records one fault for all missing keys.
func (s *source) requireKeys(n ast.Node, what string, seen map[string]bool, wanted ...string) {
	var missing []string
	for _, k := range wanted {
		if !seen[k] {
			missing = append(missing, k)
		}
	}
	if len(missing) > 0 {
		s.addFault(tokenOf(n), "%s wants %s", what, strings.Join(missing, ", "))
	}
}

// keyAliases contains the key spellings of published manifests. They do not apply in a schema and in env, where the
// author chooses the names.
var keyAliases = map[string]string{
	"argv_pattern": "argvPattern", "cwd_from_input": "cwdFromInput", "input_schema": "inputSchema",
	"memory_mib":    "memoryMiB",
	"output_schema": "outputSchema", "sandbox_profile": "sandboxProfile", "side_effect_class": "sideEffectClass",
}

func keyText(k ast.MapKeyNode) (string, bool) {
	n, ok := k.(*ast.StringNode)
	if !ok {
		return "", false
	}
	return n.Value, true
}

// mappingPairs returns the entries of a mapping. If n is not a mapping, it records a fault and returns nil.
func (s *source) mappingPairs(n ast.Node, what string) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	s.addTypeFault(n, what, "a mapping")
	return nil
}

func (s *source) addTypeFault(n ast.Node, what, want string) {
	s.addFault(tokenOf(n), "%s wants %s, found %s", what, want, describeNode(n))
}

func tokenOf(n ast.Node) *token.Token {
	if n == nil {
		return nil
	}
	return n.GetToken()
}

func describeNode(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.BoolNode:
		return "a boolean (quote it to make it a string)"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number (quote it to make it a string)"
	case *ast.StringNode:
		return fmt.Sprintf("%q", clipText(n.Value))
	}
	return "a text"
}

// textField reads a string into p.
func (s *source) textField(what string, p *string) func(ast.Node) {
	return func(n ast.Node) {
		switch n := n.(type) {
		case *ast.StringNode:
			*p = s.checkVisible(n, n.Value)
		case *ast.LiteralNode:
			*p = s.checkVisible(n, n.Value.Value)
		default:
			s.addTypeFault(n, what, "a string")
		}
	}
}

// textsField reads a list of strings into p.
func (s *source) textsField(what string, p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range s.listItems(n, what) {
			var v string
			s.textField(what, &v)(item)
			*p = append(*p, v)
		}
	}
}

func (s *source) listItems(n ast.Node, what string) []ast.Node {
	if n, ok := n.(*ast.SequenceNode); ok {
		return n.Values
	}
	s.addTypeFault(n, what, "a list")
	return nil
}

// countField reads an integer from 1 to limit into p.
func (s *source) countField(what string, limit int64, p *int64) func(ast.Node) {
	return func(n ast.Node) {
		i, ok := n.(*ast.IntegerNode)
		if !ok {
			s.addTypeFault(n, what, "an integer")
			return
		}
		v, err := strconv.ParseInt(i.Token.Value, 10, 64)
		if err != nil || v < 1 || v > limit {
			s.addFault(i.Token, "%s wants an integer from 1 to %d, found %s", what, limit, clipText(i.Token.Value))
			return
		}
		*p = v
	}
}

// choiceField reads one of the words in known into p. The values of the map are the canonical words.
func choiceField[T ~string](s *source, what string, known map[string]T, p *T) func(ast.Node) {
	return func(n ast.Node) {
		var word string
		before := len(s.faults)
		s.textField(what, &word)(n)
		if len(s.faults) > before {
			return
		}
		v, ok := known[word]
		if !ok {
			s.addFault(tokenOf(n), "%s is one of %s, found %q%s", what, strings.Join(sortedKeys(known), ", "),
				clipText(word), didYouMean(word, sortedKeys(known)))
			return
		}
		*p = v
	}
}

// toJSONValue converts a YAML node to JSON values: map[string]any, []any, string, json.Number, bool, nil.
func (s *source) toJSONValue(n ast.Node) any {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return s.toJSONObject(n)
	case *ast.SequenceNode:
		list := make([]any, 0, len(n.Values))
		for _, item := range n.Values {
			list = append(list, s.toJSONValue(item))
		}
		return list
	case *ast.StringNode:
		return s.checkVisible(n, n.Value)
	case *ast.LiteralNode:
		return s.checkVisible(n, n.Value.Value)
	case *ast.BoolNode:
		return n.Value
	case *ast.IntegerNode, *ast.FloatNode:
		return s.toJSONNumber(n)
	case *ast.NullNode:
		return nil
	}
	s.addTypeFault(n, "a schema", "what JSON can say")
	return nil
}

func (s *source) toJSONObject(n ast.Node) map[string]any {
	obj := map[string]any{}
	for _, kv := range s.mappingPairs(n, "a schema") {
		name, ok := keyText(kv.Key)
		if _, twice := obj[name]; !ok || twice {
			s.addFault(kv.Key.GetToken(), "keys are words, each once; found %q", clipText(name))
			continue
		}
		s.checkVisible(kv.Key, name)
		obj[name] = s.toJSONValue(kv.Value)
	}
	return obj
}

// checkVisible refuses text with invisible characters. Escapes can add them after the check of the file.
func (s *source) checkVisible(n ast.Node, v string) string {
	if what := describeHiddenChar(v, true); what != "" {
		s.addFault(tokenOf(n), "%s does not belong in a manifest", what)
	}
	return v
}

func (s *source) toJSONNumber(n ast.Node) any {
	v := json.Number(n.GetToken().Value)
	if _, err := parseNumber(v); err != nil {
		s.addFault(tokenOf(n), "%q is not a number as JSON writes it", clipText(v.String()))
		return nil
	}
	return v
}
