package settings

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

// freshSettings is the text before the first workspace in a new settings file.
const freshSettings = `# Settings of Bailey in this home. A change takes effect when you apply it, not before:
#
#   bailey init --apply    shows the difference and applies it
#
# Until then a gateway that starts refuses calls that name a path, and redacts as was applied last.

# workspaces are the directories that calls may name paths in, one a line, absolute, without symbolic
# links. They are read-only unless a capability and a rule say otherwise. While there is none, the
# directory a client is started in is the workspace of its session.
workspaces:
`

func workspacesOf(n ast.Node) ([]string, error) {
	dirs := []string{}
	err := items(n, "workspaces wants a list of directories", func(item ast.Node) error {
		n, ok := item.(*ast.StringNode)
		switch {
		case len(dirs) == maxWorkspaces:
			return fault(item, "over the %d workspaces allowed", maxWorkspaces)
		case !ok:
			return fault(item, "a workspace is the path of a directory")
		case !filepath.IsAbs(n.Value) || filepath.Clean(n.Value) != n.Value || !plain(n.Value):
			return fault(item, "the workspace %q is not an absolute, clean path", n.Value)
		case slices.Contains(dirs, n.Value):
			return fault(item, "the workspace %q is named twice", n.Value)
		}
		dirs = append(dirs, n.Value)
		return nil
	})
	return dirs, err
}

// AddWorkspace returns text with dir as an additional workspace. Everything else, including comments, is preserved.
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
	now, err := ParseSettings([]byte(added))
	want := old
	want.Workspaces = append(slices.Clone(old.Workspaces), dir)
	if err != nil || !reflect.DeepEqual(now, want) {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: FileName + " has a form that a workspace cannot be added to",
			Hint: fmt.Sprintf("write the line %q below workspaces: yourself, then bailey init --apply", "  - "+dir)}
	}
	return []byte(added), nil
}

// insert adds the line of dir after the last workspace, or after the key, or adds the key. The caller must parse the
// result again, so that a form that insert does not support is detected.
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

// workspaceList returns the list node, or nil if the file has none.
func workspaceList(text []byte) (list *ast.SequenceNode, err error) {
	defer foreign(&err)
	body, err := document(text)
	if err != nil {
		return nil, err
	}
	pairs, _ := pairsOf(body)
	for _, kv := range pairs {
		if key, ok := kv.Key.(*ast.StringNode); ok && key.Value == "workspaces" {
			list, _ = kv.Value.(*ast.SequenceNode)
		}
	}
	return list, nil
}

// plain reports whether a path can be written to a file and a terminal without escapes.
func plain(path string) bool {
	return utf8.ValidString(path) && !strings.ContainsFunc(path, func(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) })
}
