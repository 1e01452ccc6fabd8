package policy

import (
	"encoding/json"

	"github.com/goccy/go-yaml/ast"
)

// phrase parses a word or a line. If text looks like a number or a boolean, it must be quoted.
func phrase[T ~string](s sheet, into *T) func(ast.Node) error {
	return func(n ast.Node) error {
		v, ok := textOf(n)
		if !ok {
			return s.fault(n.GetToken(), "wants text; quote it where it looks like a number, a boolean or nothing")
		}
		if visible(v) != v {
			return s.fault(n.GetToken(), "wants one line of visible text")
		}
		*into = T(v)
		return nil
	}
}

func textOf(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

func (s sheet) flag(into *bool) func(ast.Node) error {
	return func(n ast.Node) error {
		v, ok := n.(*ast.BoolNode)
		if !ok {
			return s.fault(n.GetToken(), "wants true or false")
		}
		*into = v.Value
		return nil
	}
}

// list parses a list of words. An empty list is not nil.
func list[T ~string](s sheet, into *[]T) func(ast.Node) error {
	return func(n ast.Node) error {
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			return s.fault(n.GetToken(), "wants a list, as in [one, two]")
		}
		*into = []T{}
		for _, item := range seq.Values {
			var word T
			if err := phrase(s, &word)(item); err != nil {
				return err
			}
			*into = append(*into, word)
		}
		return nil
	}
}

// object parses a mapping with arbitrary keys, each at most once.
func (s sheet) object(n ast.Node) (map[string]any, error) {
	pairs, ok := pairsOf(n)
	if !ok {
		return nil, s.fault(n.GetToken(), "wants keys and values")
	}
	out := make(map[string]any, len(pairs))
	for _, kv := range pairs {
		name, ok := s.key(kv)
		if !ok {
			return nil, s.fault(kv.Key.GetToken(), "%q is no name of an input: quote it", clip(kv.Key.String()))
		}
		if _, twice := out[name]; twice {
			return nil, s.fault(kv.Key.GetToken(), "%s stands here twice", clip(name))
		}
		v, err := s.value(kv.Value)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

// value converts a node to the value that JSON would give. Numbers keep their digits.
func (s sheet) value(n ast.Node) (any, error) {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return s.object(n)
	case *ast.SequenceNode:
		out := make([]any, 0, len(n.Values))
		for _, item := range n.Values {
			v, err := s.value(item)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case *ast.BoolNode:
		return n.Value, nil
	case *ast.NullNode:
		return nil, nil
	case *ast.IntegerNode, *ast.FloatNode:
		digits := n.GetToken().Value
		if !json.Valid([]byte(digits)) {
			return nil, s.fault(n.GetToken(), "%s is no number as JSON writes it", clip(digits))
		}
		return json.Number(digits), nil
	}
	if v, ok := textOf(n); ok {
		return v, nil
	}
	return nil, s.fault(n.GetToken(), "is nothing that an input can be")
}
