package pack

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// fields calls the function of each key in the mapping n and returns the keys that exist. An unknown or repeated key is
// a fault.
func (s *source) fields(n ast.Node, what string, known map[string]func(ast.Node)) map[string]bool {
	seen := map[string]bool{}
	for _, kv := range s.pairs(n, what) {
		key, ok := keyText(kv.Key)
		if !ok {
			s.fault(kv.Key.GetToken(), "%s wants words as keys", what)
			continue
		}
		if full, ok := keyAliases[key]; ok {
			key = full
		}
		read, ok := known[key]
		switch {
		case !ok:
			s.fault(kv.Key.GetToken(), "%s has no key %q%s", what, clip(key), near(key, keys(known)))
		case seen[key]:
			s.fault(kv.Key.GetToken(), "%s has the key %q twice", what, key)
		default:
			seen[key] = true
			read(kv.Value)
		}
	}
	return seen
}

// need records one fault for all missing keys.
func (s *source) need(n ast.Node, what string, seen map[string]bool, wanted ...string) {
	var missing []string
	for _, k := range wanted {
		if !seen[k] {
			missing = append(missing, k)
		}
	}
	if len(missing) > 0 {
		s.fault(tokenOf(n), "%s wants %s", what, strings.Join(missing, ", "))
	}
}

// keyAliases contains the key spellings of published manifests. They do not apply in a schema and in env, where the
// author chooses the names.
var keyAliases = map[string]string{
	"argv_pattern": "argvPattern", "cwd_from_input": "cwdFromInput", "input_schema": "inputSchema", "memory_mib": "memoryMiB",
	"output_schema": "outputSchema", "sandbox_profile": "sandboxProfile", "side_effect_class": "sideEffectClass",
}

func keyText(k ast.MapKeyNode) (string, bool) {
	n, ok := k.(*ast.StringNode)
	if !ok {
		return "", false
	}
	return n.Value, true
}

// pairs returns the entries of a mapping. If n is not a mapping, it records a fault and returns nil.
func (s *source) pairs(n ast.Node, what string) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	s.wants(n, what, "a mapping")
	return nil
}

func (s *source) wants(n ast.Node, what, want string) {
	s.fault(tokenOf(n), "%s wants %s, found %s", what, want, found(n))
}

func tokenOf(n ast.Node) *token.Token {
	if n == nil {
		return nil
	}
	return n.GetToken()
}

func found(n ast.Node) string {
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
		return fmt.Sprintf("%q", clip(n.Value))
	}
	return "a text"
}

// text reads a string into p.
func (s *source) text(what string, p *string) func(ast.Node) {
	return func(n ast.Node) {
		switch n := n.(type) {
		case *ast.StringNode:
			*p = s.sound(n, n.Value)
		case *ast.LiteralNode:
			*p = s.sound(n, n.Value.Value)
		default:
			s.wants(n, what, "a string")
		}
	}
}

// texts reads a list of strings into p.
func (s *source) texts(what string, p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range s.items(n, what) {
			var v string
			s.text(what, &v)(item)
			*p = append(*p, v)
		}
	}
}

func (s *source) items(n ast.Node, what string) []ast.Node {
	if n, ok := n.(*ast.SequenceNode); ok {
		return n.Values
	}
	s.wants(n, what, "a list")
	return nil
}

// count reads an integer from 1 to limit into p.
func (s *source) count(what string, limit int64, p *int64) func(ast.Node) {
	return func(n ast.Node) {
		i, ok := n.(*ast.IntegerNode)
		if !ok {
			s.wants(n, what, "an integer")
			return
		}
		v, err := strconv.ParseInt(i.Token.Value, 10, 64)
		if err != nil || v < 1 || v > limit {
			s.fault(i.Token, "%s wants an integer from 1 to %d, found %s", what, limit, clip(i.Token.Value))
			return
		}
		*p = v
	}
}

// choice reads one of the words in known into p. The values of the map are the canonical words.
func choice[T ~string](s *source, what string, known map[string]T, p *T) func(ast.Node) {
	return func(n ast.Node) {
		var word string
		before := len(s.faults)
		s.text(what, &word)(n)
		if len(s.faults) > before {
			return
		}
		v, ok := known[word]
		if !ok {
			s.fault(tokenOf(n), "%s is one of %s, found %q%s", what, strings.Join(keys(known), ", "), clip(word), near(word, keys(known)))
			return
		}
		*p = v
	}
}
