package gateway

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"bailey"
)

// Bounds on the settings: an entry of the ledger (64 KiB) must hold every workspace.
const (
	maxSettings   = 16 << 10 // bytes
	maxWorkspaces = 64
)

// freshSettings is what a first init writes above the first workspace.
const freshSettings = `# Settings of Bailey in this home. A change takes effect when you apply it, not before:
#
#   bailey init --apply    shows the difference and applies it
#
# Until then a gateway that starts refuses calls that name a path.

# workspaces are the directories that calls may name paths in, one a line, absolute, without symbolic
# links. They are read-only unless a capability and a rule say otherwise. While there is none, the
# directory a client is started in is the workspace of its session.
workspaces:
`

// ParseSettings returns the workspaces that the text of a settings file names. It is strict: an unknown
// key, a key given twice, or anything but a list of absolute paths is an error with line and column.
func ParseSettings(text []byte) (dirs []string, err error) {
	list, err := workspaceList(text)
	if err != nil || list == nil {
		return []string{}, err
	}
	if len(list.Values) > maxWorkspaces {
		return nil, fault(list, "%d workspaces are over the %d allowed", len(list.Values), maxWorkspaces)
	}
	dirs = []string{}
	for _, item := range list.Values {
		n, ok := item.(*ast.StringNode)
		switch {
		case !ok:
			return nil, fault(item, "a workspace is the path of a directory")
		case !filepath.IsAbs(n.Value) || filepath.Clean(n.Value) != n.Value || !plain(n.Value):
			return nil, fault(item, "the workspace %q is not an absolute, clean path", n.Value)
		case slices.Contains(dirs, n.Value):
			return nil, fault(item, "the workspace %q is named twice", n.Value)
		}
		dirs = append(dirs, n.Value)
	}
	return dirs, nil
}

// AddWorkspace returns text with dir as one workspace more; everything else, comments too, stays.
func AddWorkspace(text []byte, dir string) ([]byte, error) {
	old, err := ParseSettings(text)
	if err != nil {
		return nil, err
	}
	if !plain(dir) {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the path %q holds characters that a settings file may not", dir),
			Hint: "give the directory a plain name"}
	}
	if text == nil {
		text = []byte(freshSettings)
	}
	added := insert(string(text), dir)
	if now, err := ParseSettings([]byte(added)); err != nil || !slices.Equal(now, append(old, dir)) {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: SettingsName + " has a form that a workspace cannot be added to",
			Hint: fmt.Sprintf("write the line %q below workspaces: yourself, then bailey init --apply", "  - "+dir)}
	}
	return []byte(added), nil
}

// insert puts the line of dir below the last workspace, or below the key, or makes the key. Its caller
// reads the result again, so a form that it does not know is noticed.
func insert(text, dir string) string {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n")+"\n", "\n")
	at, indent := -1, "  "
	if list, err := workspaceList([]byte(text)); err == nil && list != nil && len(list.Values) > 0 {
		pos := list.Values[len(list.Values)-1].GetToken().Position
		at = pos.Line
		if line := lines[at-1]; strings.Contains(line, "-") {
			indent = line[:strings.Index(line, "-")]
		}
	} else if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "workspaces:") }); i >= 0 {
		at = i + 1
	} else {
		lines = slices.Insert(lines, len(lines)-1, "workspaces:\n")
		at = len(lines) - 1
	}
	return strings.Join(slices.Insert(lines, at, indent+"- "+strconv.Quote(dir)+"\n"), "")
}

// workspaceList returns the list node, nil where the file names none.
func workspaceList(text []byte) (list *ast.SequenceNode, err error) {
	defer func() { // the parser is foreign code: a panic in it is a fault of the file
		if p := recover(); p != nil {
			list, err = nil, unreadable(fmt.Errorf("%v", p))
		}
	}()
	if len(text) > maxSettings || !utf8.Valid(text) {
		return nil, unreadable(fmt.Errorf("it is not UTF-8 of at most %d bytes", maxSettings))
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
	if len(file.Docs) > 1 {
		return nil, unreadable(fmt.Errorf("it holds %d documents", len(file.Docs)))
	}
	if len(file.Docs) == 0 {
		return nil, nil
	}
	var pairs []*ast.MappingValueNode
	switch body := file.Docs[0].Body.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
	case *ast.MappingNode:
		pairs = body.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{body}
	default:
		return nil, fault(body, "wants keys and values")
	}
	return listOf(pairs)
}

// shallow refuses what no settings need before the parser, which recurses, sees it.
func shallow(tokens token.Tokens) error {
	const nest, keys, column = 2, 16, 16
	flow, pairs := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.DirectiveType, token.MappingKeyType:
			return faultAt(t, "anchors, aliases, tags, merge keys, directives and complex keys are not read")
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.MappingValueType:
			pairs++
		}
		deep := t.Type == token.SequenceEntryType && t.Position.Column > column
		if flow > nest || pairs > keys || deep {
			return faultAt(t, "settings are not nested so deep")
		}
	}
	return nil
}

func listOf(pairs []*ast.MappingValueNode) (list *ast.SequenceNode, err error) {
	for i, kv := range pairs {
		key, ok := kv.Key.(*ast.StringNode)
		if !ok || key.Value != "workspaces" {
			return nil, fault(kv.Key, "%q is no setting; there is workspaces", kv.Key.String())
		}
		if i > 0 {
			return nil, fault(kv.Key, "workspaces stands here twice")
		}
		switch v := kv.Value.(type) {
		case *ast.NullNode:
		case *ast.SequenceNode:
			list = v
		default:
			return nil, fault(v, "workspaces wants a list of directories")
		}
	}
	return list, nil
}

func unreadable(err error) error {
	return &bailey.Error{Kind: bailey.Invalid, Message: SettingsName + " cannot be read", Hint: "correct it, then bailey init --apply", Err: err}
}

func fault(n ast.Node, format string, args ...any) error {
	return faultAt(n.GetToken(), format, args...)
}

func faultAt(at *token.Token, format string, args ...any) error {
	where := SettingsName
	if at != nil && at.Position != nil {
		where = fmt.Sprintf("%s:%d:%d", SettingsName, at.Position.Line, at.Position.Column)
	}
	return &bailey.Error{Kind: bailey.Invalid, Message: where + ": " + fmt.Sprintf(format, args...),
		Hint: "correct it, then bailey init --apply"}
}

// plain reports whether a path can stand in a file and on a terminal as it is.
func plain(path string) bool {
	return utf8.ValidString(path) && !strings.ContainsFunc(path, func(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) })
}
