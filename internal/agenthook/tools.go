package agenthook

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"bailey"
	"bailey/internal/guard"
)

// Inputs lists the agent inputs that the package reads. The others, for example the content of a file to write, need
// not be sent.
var Inputs = []string{"command", "file_path", "notebook_path", "path", "pattern", "url"}

// silentTools lists tools of Claude Code that have no effect by themselves: the resulting calls are announced separately, or
// the tool only talks to the person.
var silentTools = []string{"Task", "Agent", "TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet",
	"TaskOutput", "TaskStop", "BashOutput",
	"KillShell", "KillBash", "AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "ToolSearch", "Skill"}

// ours is the prefix that Claude Code gives to the tools of Bailey's own MCP server.
const ours = "mcp__bailey__"

// translateEvent translates an event into calls. If it returns no calls, the verdict holds.
func (c Config) translateEvent(e Event) ([]plannedCall, Verdict) {
	if !filepath.IsAbs(e.Dir) {
		return nil, denyVerdict("the agent did not report its working directory")
	}
	for _, key := range pathInputs[e.Tool] {
		v, ok := c.expandHome(e.Input[key])
		if !ok {
			return nil, denyVerdict("%s: %.80q is not an unambiguous path; use an absolute path without spaces around it", e.Tool, e.Input[key])
		}
		if v != e.Input[key] {
			e.Input = maps.Clone(e.Input)
			e.Input[key] = v
		}
	}
	file := func(p plannedCall, key string) ([]plannedCall, Verdict) {
		if e.Input[key] == "" {
			return nil, denyVerdict("%s without %s", e.Tool, key)
		}
		path := resolveLinks(absolutePath(e.Dir, e.Input[key]))
		p.input, p.dir = map[string]any{"path": path}, e.Dir
		if p.id != read {
			p.input = writeInput(path)
		}
		return []plannedCall{p}, Verdict{}
	}
	switch e.Tool {
	case "Bash":
		return c.translateLine(e)
	case "Edit", "MultiEdit":
		return file(plannedCall{id: edit}, "file_path")
	case "Write":
		return file(plannedCall{id: write}, "file_path")
	case "NotebookEdit":
		return file(plannedCall{id: edit}, "notebook_path")
	case "NotebookRead":
		return file(plannedCall{id: read}, "notebook_path")
	case "Read":
		return file(plannedCall{id: read}, "file_path")
	case "LS":
		return file(plannedCall{id: read}, "path")
	case "Grep", "Glob":
		return []plannedCall{{id: read, dir: e.Dir, input: map[string]any{"path": c.searchRoot(e)}}}, Verdict{}
	case "WebFetch":
		return []plannedCall{{id: fetch, dir: e.Dir, input: map[string]any{"url": e.Input["url"]},
			instead: otherTool(e)}}, Verdict{}
	}
	switch tool, mcp := strings.CutPrefix(e.Tool, ours); {
	case mcp && c.Ours(tool): // the gate decides the call itself
		return nil, Verdict{Effect: bailey.Allow, Reason: "Bailey decides the call itself"}
	case slices.Contains(silentTools, e.Tool):
		return nil, Verdict{Silent: true}
	case e.Tool == "":
		return nil, denyVerdict("the agent did not name the tool")
	}
	return []plannedCall{*otherTool(e)}, Verdict{}
}

func otherTool(e Event) *plannedCall {
	return &plannedCall{id: other, dir: e.Dir, input: map[string]any{"tool": e.Tool}, about: e.Input["url"]}
}

// searchRoot returns the directory in which a search starts. For a glob, the literal path before the pattern is appended.
func (c Config) searchRoot(e Event) string {
	dir := absolutePath(e.Dir, e.Input["path"])
	if e.Tool != "Glob" {
		return dir
	}
	pattern := e.Input["pattern"]
	if i := strings.IndexAny(pattern, "*?[{"); i >= 0 {
		if up := strings.Index(pattern[i:], ".."); up >= 0 {
			return string(filepath.Separator) // .. after a wildcard leads up from an unknown directory
		}
		pattern = pattern[:strings.LastIndexByte(pattern[:i], '/')+1]
	}
	return absolutePath(dir, strings.TrimSuffix(pattern, "/")+slashSuffix(pattern))
}

func slashSuffix(pattern string) string {
	if strings.HasPrefix(pattern, "/") && strings.Trim(pattern, "/") == "" {
		return "/"
	}
	return ""
}

// pathInputs lists, for each tool, the inputs that hold a path.
var pathInputs = map[string][]string{"Edit": {"file_path"}, "MultiEdit": {"file_path"}, "Write": {"file_path"},
	"Read":         {"file_path"},
	"NotebookEdit": {"notebook_path"}, "NotebookRead": {"notebook_path"}, "LS": {"path"}, "Grep": {"path"}, "Glob": {"path", "pattern"}}

// expandHome returns a path as the agent's tools interpret it. Claude Code expands ~ to the home directory and trims
// surrounding blanks; a path with such blanks is refused.
func (c Config) expandHome(path string) (string, bool) {
	blank := func(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' || r == 0 }
	home, tilde := strings.CutPrefix(path, "~")
	switch tilde = tilde && (home == "" || home[0] == '/'); {
	case strings.TrimFunc(path, blank) != path, len(path) > maxPath:
		return "", false
	case tilde:
		return c.Home + home, c.Home != ""
	}
	return path, true
}

// absolutePath resolves a path as the agent's own tools do: without a shell, and without following links.
func absolutePath(dir, path string) string {
	if path == "" {
		return dir
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

const actsGit = "git: a repository's configuration, hooks and references"

// actingProgram returns which program outside any cage acts on a file by itself, or "" if no such program is known. Names are
// compared in folded form (see [guard.Fold]). Git directories are recognised as git recognises them, by their content
// and not by their name or location, because .git may be a file or a link that points to such a directory.
func actingProgram(path string) string {
	parts := strings.Split(filepath.ToSlash(path), "/")
	for i, part := range parts {
		if i > 0 {
			if e, ok := guard.Name(parts[i-1], part); ok {
				return e.Reason
			}
		}
		switch folded := guard.Fold(part); {
		case folded == ".git", i == len(parts)-1 && (folded == "head" || folded == "commondir"):
			return actsGit
		case i > 0 && (folded == "head" || slices.Contains(guard.OfGit, folded)) &&
			isRepository(filepath.FromSlash(strings.Join(parts[:i], "/"))):
			return actsGit
		}
	}
	return ""
}

// isRepository reports whether git would accept a directory as a repository. A partial match counts too, because an agent
// could create the missing files first.
func isRepository(dir string) bool {
	has := func(name string) bool { _, err := os.Lstat(filepath.Join(dir, name)); return err == nil }
	return has("HEAD") || has("commondir") || has("objects") && has("refs")
}

// writeInput returns the input of a call that writes a file: its path as the rules know it, and the program that acts on
// it.
func writeInput(path string) map[string]any {
	input := map[string]any{"path": canonicalSpelling(path)}
	if by := actingProgram(path); by != "" {
		input["acts"] = by
	}
	return input
}

// canonicalSpelling returns a path in which every name known to the rules has its canonical spelling. Names without a dot are left
// alone: on a case-sensitive file system, a directory Head is not HEAD; input.acts covers that case.
func canonicalSpelling(path string) string {
	parts := strings.Split(path, string(filepath.Separator))
	for i, part := range parts {
		if folded := guard.Fold(part); folded == ".git" {
			parts[i] = folded
		} else if e, ok := guard.Name("", part); ok && strings.HasPrefix(e.Spelt, ".") &&
			!strings.Contains(e.Name, "*") {
			parts[i] = e.Spelt
		}
	}
	return strings.Join(parts, string(filepath.Separator))
}
