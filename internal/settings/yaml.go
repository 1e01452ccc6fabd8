package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"bailey"
	"bailey/internal/redact"
)

// Limits of the settings. One ledger entry (64 KiB) must hold all workspaces and the redaction.
const (
	MaxSettings   = 16 << 10 // bytes
	maxWorkspaces = 64
	maxRedaction  = 32 << 10 // bytes of the rules as JSON, including escapes
)

// Contents is the parsed content of a settings file.
type Contents struct {
	Workspaces []string
	Redaction  redact.Config // must compile
	Signers    []string      // lines in the format of package sshsig
	Approvers  []Approver    // their lines have the format of package sshsig
	Broker     *Broker       // nil: no credentials can be leased
	Notify     Notify
	Network    Network
	Agents     AgentRules
}

// ParseSettings parses a settings file. It is strict: an unknown or repeated key, a workspace that is not an absolute
// path, or a redaction rule that fails its own examples is an error with line and column.
func ParseSettings(text []byte) (c Contents, err error) {
	defer func() { err = inFile(FileName, "bailey init --apply", err) }()
	defer foreign(&err)
	body, err := document(text)
	if err != nil {
		return Contents{Workspaces: []string{}}, err
	}
	c.Workspaces = []string{}
	err = each(body, "setting", keys{
		"workspaces":    func(n ast.Node) (err error) { c.Workspaces, err = workspacesOf(n); return err },
		"redaction":     func(n ast.Node) (err error) { c.Redaction, err = rulesOf(n); return err },
		"policySigners": func(n ast.Node) (err error) { c.Signers, err = signersOf(n); return err },
		"notify":        func(n ast.Node) (err error) { c.Notify, err = notifyOf(n); return err },
		"approvers":     func(n ast.Node) (err error) { c.Approvers, err = approversOf(n); return err },
		"broker":        func(n ast.Node) (err error) { c.Broker, err = brokerOf(n); return err },
		"network":       func(n ast.Node) (err error) { c.Network, err = networkOf(n); return err },
		"agents": func(n ast.Node) error {
			return each(n, "part of agents", keys{"required": truth("required", &c.Agents.Required), "listed": countOf("listed", maxListed, &c.Agents.Listed),
				"asking": func(n ast.Node) (err error) { c.Agents.Asking, err = askingOf(n); return err }})
		},
	})
	if err != nil {
		return Contents{Workspaces: []string{}}, err
	}
	return c, nil
}

// foreign converts a panic of the parser, which is third-party code, to an error about the file.
func foreign(err *error) {
	if p := recover(); p != nil {
		*err = unreadable(fmt.Errorf("%v", p))
	}
}

// document returns the single document of a text, or nil if there is none.
func document(text []byte) (ast.Node, error) {
	if len(text) > MaxSettings || !utf8.Valid(text) {
		return nil, unreadable(fmt.Errorf("it is not UTF-8 of at most %d bytes", MaxSettings))
	}
	tokens := lexer.Tokenize(string(text))
	if err := shallow(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			return nil, faultAt(at.GetToken(), "%s", at.GetMessage())
		}
		return nil, unreadable(err)
	}
	switch len(file.Docs) {
	case 0:
		return nil, nil
	case 1:
		return file.Docs[0].Body, nil
	}
	return nil, unreadable(fmt.Errorf("it holds %d documents", len(file.Docs)))
}

// shallow refuses deep nesting and unneeded syntax before the recursive parser sees the text. Blocks nest by column, so
// their column is limited. Outside braces, a line may have only one key.
func shallow(tokens token.Tokens) error {
	const nest, column = 4, 24
	flow, keyed := 0, 0
	for _, t := range tokens {
		deep := false
		switch t.Type {
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.DirectiveType, token.MappingKeyType:
			return faultAt(t, "anchors, aliases, tags, merge keys, directives and complex keys are not read")
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType:
			deep = t.Position.Column > column
		case token.MappingValueType:
			deep = flow == 0 && (t.Position.Line == keyed || t.Prev != nil && t.Prev.Position.Column > column)
			if flow == 0 {
				keyed = t.Position.Line
			}
		}
		if deep || flow > nest {
			return faultAt(t, "settings are not nested so deep")
		}
	}
	return nil
}

// keys maps each allowed key of a mapping to the function that reads its value.
type keys map[string]func(ast.Node) error

// each reads a mapping. Every key must be known and may occur only once.
func each(n ast.Node, what string, known keys) error {
	pairs, ok := pairsOf(n)
	if !ok {
		return fault(n, "wants keys and values")
	}
	seen := map[string]bool{}
	for _, kv := range pairs {
		key, ok := kv.Key.(*ast.StringNode)
		if !ok || known[key.Value] == nil {
			return fault(kv.Key, "%q is no %s; there is %s", kv.Key.String(), what, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if seen[key.Value] {
			return fault(kv.Key, "%s stands here twice", key.Value)
		}
		seen[key.Value] = true
		if err := known[key.Value](kv.Value); err != nil {
			return err
		}
	}
	return nil
}

func pairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return nil, true
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// items reads a list. A null value is an empty list.
func items(n ast.Node, wants string, read func(ast.Node) error) error {
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.SequenceNode:
		for _, item := range n.Values {
			if err := read(item); err != nil {
				return err
			}
		}
	default:
		return fault(n, "%s", wants)
	}
	return nil
}

func unreadable(err error) error { return &misread{why: " cannot be read", err: err} }

func fault(n ast.Node, format string, args ...any) error {
	return faultAt(n.GetToken(), format, args...)
}

func faultAt(at *token.Token, format string, args ...any) error {
	return &misread{why: place(at) + ": " + fmt.Sprintf(format, args...)}
}

// place returns the position of a token in its file.
func place(at *token.Token) string {
	if at == nil || at.Position == nil {
		return ""
	}
	return fmt.Sprintf(":%d:%d", at.Position.Line, at.Position.Column)
}

// misread is an error in a file whose name the parser does not know; see [inFile].
type misread struct {
	why  string // the text after the file name
	cure string // hint; if empty: correct it
	err  error
}

func (m *misread) Error() string { return "the file" + m.why }

// inFile adds to an error the file name and the command that applies the corrected file.
func inFile(name, apply string, err error) error {
	m, ok := err.(*misread)
	if !ok {
		return err
	}
	return &bailey.Error{Kind: bailey.Invalid, Message: name + m.why, Hint: cmp.Or(m.cure, "correct it") + ", then " + apply, Err: m.err}
}

// maxAsking limits the number of clients that may ask their user, maxClientName the length of their names.
const maxAsking, maxClientName = 16, 96

// askingOf reads the names of MCP clients, as the clients give them in initialize.
func askingOf(n ast.Node) (names []string, err error) {
	err = items(n, "asking wants a list of names of MCP clients", func(item ast.Node) error {
		name, err := wordOf(item, maxClientName)
		if err == nil && (len(names) == maxAsking || slices.Contains(names, name) || strings.Contains(name, "/")) {
			err = fault(item, "a client's name has no '/' and is listed only once; at most %d may be listed", maxAsking)
		}
		names = append(names, name)
		return err
	})
	return names, err
}
