package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"bailey"
)

// Limits of a file of rule tests. The parser is recursive, so nesting is checked on the tokens before it runs.
const (
	maxSheet  = 1 << 20 // bytes
	maxNest   = 16      // open brackets
	maxColumn = 64      // column of a block entry: blocks nest by column, even on one line
)

// yamlFile is a YAML file being parsed. Parsing stops at the first error.
type yamlFile struct{ name string }

func (s yamlFile) errorAt(at *token.Token, format string, args ...any) error {
	place := s.name
	if at != nil && at.Position != nil {
		place = fmt.Sprintf("%s:%d:%d", s.name, at.Position.Line, at.Position.Column)
	}
	return bailey.Invalid.New(place+": "+replaceHidden(fmt.Sprintf(format, args...)),
		"correct it; until the file reads, nothing in it counts")
}

// replaceHidden replaces characters in a message that would control a terminal or that a reader would not see.
func replaceHidden(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || IsHiddenRune(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// parseDocument returns the single document of a file, or nil if the file is empty.
func (s yamlFile) parseDocument(text []byte) (body ast.Node, err error) {
	if len(text) > maxSheet {
		return nil, s.errorAt(nil, "a file of tests is at most %d bytes, this one has %d", maxSheet, len(text))
	}
	if at, bad := checkCharacters(text); bad != "" {
		return nil, s.errorAt(&token.Token{Position: &token.Position{Line: lineNumber(text, at), Column: 1}}, "%s", bad)
	}
	// The parser is third-party code. If it panics, the file is treated as faulty.
	defer func() {
		if p := recover(); p != nil {
			body, err = nil, s.errorAt(nil, "is no YAML that can be read: %v", p)
		}
	}()
	tokens := lexer.Tokenize(string(text))
	if err := s.checkTokens(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // each refuses duplicates, with our own message
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) {
			return nil, s.errorAt(at.GetToken(), "%s", at.GetMessage())
		}
		return nil, s.errorAt(nil, "%v", err)
	}
	switch len(file.Docs) {
	case 0:
		return nil, nil
	case 1:
		return file.Docs[0].Body, nil
	}
	return nil, s.errorAt(nil, "holds %d YAML documents, it wants one", len(file.Docs))
}

// checkTokens refuses constructs that no test needs: nesting beyond the limits, and, for example, anchors and aliases,
// which can make a small file a large one.
func (s yamlFile) checkTokens(tokens token.Tokens) error {
	flow := 0
	for _, t := range tokens {
		at, entry := t, false
		switch t.Type {
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.DirectiveType,
			token.MappingKeyType:
			return s.errorAt(t, "anchors, aliases, tags, merge keys, directives and complex keys are not read")
		case token.InvalidType:
			return s.errorAt(t, "%s", t.Error)
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.MappingValueType:
			entry = flow == 0
			if t.Prev != nil {
				at = t.Prev // the key
			}
		case token.SequenceEntryType:
			entry = flow == 0
		}
		if flow > maxNest || entry && at.Position.Column > maxColumn {
			return s.errorAt(at, "tests are not nested so deep")
		}
	}
	return nil
}

// keyParsers maps the allowed keys of a mapping to the functions that parse their values.
type keyParsers map[string]func(ast.Node) error

// parseMapping parses a mapping. Every key must be known and must appear only once.
func (s yamlFile) parseMapping(n ast.Node, what string, known keyParsers) error {
	pairs, ok := pairsOf(n)
	if !ok {
		return s.errorAt(n.GetToken(), "%s wants keys and values", what)
	}
	seen := map[string]bool{}
	for _, kv := range pairs {
		name, ok := s.keyName(kv)
		switch {
		case !ok || known[name] == nil:
			return s.errorAt(kv.Key.GetToken(), "%q is no key of %s; there are %s", clipText(kv.Key.String()), what,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case seen[name]:
			return s.errorAt(kv.Key.GetToken(), "%s stands here twice", name)
		}
		seen[name] = true
		if err := known[name](kv.Value); err != nil {
			return err
		}
	}
	return nil
}

func (s yamlFile) keyName(kv *ast.MappingValueNode) (string, bool) {
	k, ok := kv.Key.(*ast.StringNode)
	if !ok {
		return "", false
	}
	return k.Value, true
}

func pairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// clipText limits the text that a message quotes from a file.
func clipText(text string) string {
	const most = 80
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

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
