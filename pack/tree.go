package pack

import (
	"encoding/json"

	"github.com/goccy/go-yaml/ast"
)

// tree converts a YAML node to JSON values: map[string]any, []any, string, json.Number, bool, nil.
func (s *source) tree(n ast.Node) any {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return s.object(n)
	case *ast.SequenceNode:
		list := make([]any, 0, len(n.Values))
		for _, item := range n.Values {
			list = append(list, s.tree(item))
		}
		return list
	case *ast.StringNode:
		return s.sound(n, n.Value)
	case *ast.LiteralNode:
		return s.sound(n, n.Value.Value)
	case *ast.BoolNode:
		return n.Value
	case *ast.IntegerNode, *ast.FloatNode:
		return s.numeral(n)
	case *ast.NullNode:
		return nil
	}
	s.wants(n, "a schema", "what JSON can say")
	return nil
}

func (s *source) object(n ast.Node) map[string]any {
	obj := map[string]any{}
	for _, kv := range s.pairs(n, "a schema") {
		name, ok := keyText(kv.Key)
		if _, twice := obj[name]; !ok || twice {
			s.fault(kv.Key.GetToken(), "keys are words, each once; found %q", clip(name))
			continue
		}
		s.sound(kv.Key, name)
		obj[name] = s.tree(kv.Value)
	}
	return obj
}

// sound refuses text with invisible characters. Escapes can add them after the check of the file.
func (s *source) sound(n ast.Node, v string) string {
	if what := strange(v, true); what != "" {
		s.fault(tokenOf(n), "%s does not belong in a manifest", what)
	}
	return v
}

func (s *source) numeral(n ast.Node) any {
	v := json.Number(n.GetToken().Value)
	if _, err := number(v); err != nil {
		s.fault(tokenOf(n), "%q is not a number as JSON writes it", clip(v.String()))
		return nil
	}
	return v
}
