package policy

import (
	"encoding/json"

	"github.com/goccy/go-yaml/ast"
)

// textField parses a word or a line. If text looks like a number or a boolean, it must be quoted.
func textField[T ~string](s yamlFile, into *T) func(ast.Node) error {
	return func(n ast.Node) error {
		v, ok := textOf(n)
		if !ok {
			return s.errorAt(n.GetToken(), "wants text; quote it where it looks like a number, a boolean or nothing")
		}
		if replaceHidden(v) != v {
			return s.errorAt(n.GetToken(), "wants one line of visible text")
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

func (s yamlFile) boolField(into *bool) func(ast.Node) error {
	return func(n ast.Node) error {
		v, ok := n.(*ast.BoolNode)
		if !ok {
			return s.errorAt(n.GetToken(), "wants true or false")
		}
		*into = v.Value
		return nil
	}
}

// textListField parses a list of words. An empty list is not nil.
func textListField[T ~string](s yamlFile, into *[]T) func(ast.Node) error {
	return func(n ast.Node) error {
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			return s.errorAt(n.GetToken(), "wants a list, as in [one, two]")
		}
		*into = []T{}
		for _, item := range seq.Values {
			var word T
			if err := textField(s, &word)(item); err != nil {
				return err
			}
			*into = append(*into, word)
		}
		return nil
	}
}

// parseObject parses a mapping with arbitrary keys, each at most once.
func (s yamlFile) parseObject(n ast.Node) (map[string]any, error) {
	pairs, ok := pairsOf(n)
	if !ok {
		return nil, s.errorAt(n.GetToken(), "wants keys and values")
	}
	out := make(map[string]any, len(pairs))
	for _, kv := range pairs {
		name, ok := s.keyName(kv)
		if !ok {
			return nil, s.errorAt(kv.Key.GetToken(), "%q is no name of an input: quote it", clipText(kv.Key.String()))
		}
		if _, twice := out[name]; twice {
			return nil, s.errorAt(kv.Key.GetToken(), "%s stands here twice", clipText(name))
		}
		v, err := s.parseValue(kv.Value)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

// parseValue converts a node to the value that JSON would give. Numbers keep their digits.
func (s yamlFile) parseValue(n ast.Node) (any, error) {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return s.parseObject(n)
	case *ast.SequenceNode:
		out := make([]any, 0, len(n.Values))
		for _, item := range n.Values {
			v, err := s.parseValue(item)
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
			return nil, s.errorAt(n.GetToken(), "%s is no number as JSON writes it", clipText(digits))
		}
		return json.Number(digits), nil
	}
	if v, ok := textOf(n); ok {
		return v, nil
	}
	return nil, s.errorAt(n.GetToken(), "is nothing that an input can be")
}
