package pack

import (
	"encoding/json"

	"github.com/goccy/go-yaml/ast"
)

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
