package pack

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bailey"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on a manifest. The parser recurses, and a goroutine that overflows its stack cannot be
// recovered: nesting is bounded on the tokens, before the parser sees them.
const (
	maxFile   = 1 << 20 // bytes
	maxNest   = 32      // flow brackets open at once, and block entries opened on one line
	maxIndent = 128     // columns; block nesting cannot exceed it by more than maxNest
	maxFaults = 20      // reported at once
)

// source is a manifest while it is read. It collects what is wrong instead of stopping at the first.
type source struct {
	name   string
	faults []fault
}

type fault struct {
	line, column int
	text         string
}

func (s *source) fault(at *token.Token, format string, args ...any) {
	f := fault{text: fmt.Sprintf(format, args...)}
	if at != nil && at.Position != nil {
		f.line, f.column = at.Position.Line, at.Position.Column
	}
	s.faults = append(s.faults, f)
}

// err returns every fault in the file's order as one Invalid error, nil when there is none.
func (s *source) err() error {
	if len(s.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(s.faults, func(a, b fault) int {
		if a.line != b.line {
			return a.line - b.line
		}
		return a.column - b.column
	})
	var b strings.Builder
	for i, f := range s.faults {
		if i == maxFaults {
			fmt.Fprintf(&b, "\n%s: and %d more", s.name, len(s.faults)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d:%d: %s", s.name, f.line, f.column, f.text)
	}
	return &bailey.Error{Kind: bailey.Invalid, Message: b.String(), Hint: "correct the manifest; a pack with a fault is not loaded at all"}
}

// parse returns the one document's body, or nil with the faults recorded.
func (s *source) parse(data []byte) (body ast.Node) {
	if len(data) > maxFile {
		s.fault(nil, "a manifest is at most %d bytes, this one has %d", maxFile, len(data))
		return nil
	}
	if line, what := odd(string(data)); what != "" {
		s.faults = append(s.faults, fault{line, 1, what + " does not belong in a manifest"})
		return nil
	}
	// The parser is foreign code on foreign bytes: a panic in it is a fault of the file.
	defer func() {
		if p := recover(); p != nil {
			s.fault(nil, "is not YAML that can be read: %s", show(fmt.Sprint(p)))
			body = nil
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if !s.plain(tokens) {
		return nil
	}
	// Duplicate keys are ours to report: all of them, and in our words.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		s.syntax(err)
		return nil
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		s.fault(nil, "wants one YAML document, found %d", len(file.Docs))
		return nil
	}
	return file.Docs[0].Body
}

// odd finds the first character that can make a manifest read differently from how it looks.
func odd(text string) (line int, what string) {
	for i, row := range strings.Split(text, "\n") {
		if what := strange(strings.TrimSuffix(row, "\r"), true); what != "" {
			return i + 1, what
		}
	}
	return 0, ""
}

func (s *source) syntax(err error) {
	if e, ok := err.(yaml.Error); ok {
		s.fault(e.GetToken(), "%s", show(e.GetMessage()))
		return
	}
	s.fault(nil, "%s", show(err.Error()))
}

// plain refuses what a manifest has no use for (anchors, aliases, tags, merge keys, directives,
// complex keys) and nesting beyond the bounds.
func (s *source) plain(tokens token.Tokens) bool {
	flow, opened, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, opened = t.Position.Line, 0
		}
		switch t.Type {
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.DirectiveType, token.MappingKeyType:
			s.fault(t, "%q: anchors, aliases, tags, merge keys, directives and complex keys are not read", clip(t.Value))
			return false
		case token.InvalidType:
			s.fault(t, "%s", show(t.Error))
			return false
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingValueType:
			opened++
			if flow == 0 && t.Position.Column > maxIndent && t.Type == token.SequenceEntryType {
				s.fault(t, "is indented by more than %d columns", maxIndent)
				return false
			}
		}
		if flow > maxNest || flow == 0 && opened > maxNest {
			s.fault(t, "is nested deeper than %d", maxNest)
			return false
		}
	}
	return s.narrow(tokens)
}

// narrow bounds the column of block keys, and with it how deep blocks can nest.
func (s *source) narrow(tokens token.Tokens) bool {
	for i, t := range tokens {
		if t.Type != token.MappingValueType || i == 0 {
			continue
		}
		if key := tokens[i-1]; key.Position.Column > 8*maxIndent {
			s.fault(key, "is indented by more than %d columns", 8*maxIndent)
			return false
		}
	}
	return true
}

// fields calls the function of each key in the mapping n and returns the keys that were there. An
// unknown or repeated key is a fault.
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

// need records one fault for all the keys that were not there.
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

// keyAliases are spellings of keys that published manifests use.
var keyAliases = map[string]string{"argv_pattern": "argvPattern"}

func keyText(k ast.MapKeyNode) (string, bool) {
	n, ok := k.(*ast.StringNode)
	if !ok {
		return "", false
	}
	return n.Value, true
}

// pairs returns the entries of a mapping, none with a fault when n is something else.
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

// choice reads one of the words in known into p; the map's values are the canonical words.
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
