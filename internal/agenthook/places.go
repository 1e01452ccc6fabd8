package agenthook

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
)

// Places are the files outside of the workspaces that an agent may use with its own tools: sources of dependencies,
// its own configuration, and the scratch files of its project. All paths are canonical.
type Places struct {
	Config   string          // the directory of Claude Code's configuration, for example ~/.claude
	State    string          // its file with the list of projects, for example ~/.claude.json
	Temp     string          // the directory of its scratch files, for example /tmp/claude-1000
	Sources  []string        // patterns of the directories with sources of dependencies
	Shots    []string        // directories of screenshots
	Readable func() []string // the directories of the settings; nil: none
}

// readableConfig lists what an agent may read in the directory of its configuration. .credentials.json is not in the
// list, nor are the transcripts of other projects.
var readableConfig = []string{"CLAUDE.md", "settings.json", "settings.local.json", "keybindings.json", "agents",
	"commands", "skills", "rules", "output-styles", "plugins", "plans", "image-cache"}

// Permit reports whether a path outside of the workspaces may be read or, if write is set, written. dir is the working
// directory of the agent, root the workspace that contains it. All paths are canonical. The error says why a path that
// looks like one of these places is refused.
func (p Places) Permit(dir, root, real string, write bool) (bool, error) {
	for _, base := range []string{filepath.Join(p.Config, "projects"), p.Temp} {
		rest, below := strings.CutPrefix(real, base+string(filepath.Separator))
		if base == "" || !below {
			continue
		}
		name, file, _ := strings.Cut(rest, string(filepath.Separator))
		own := p.projectOf(dir, root, name)
		switch {
		case own == "":
			return false, bailey.Denied.New("these files of Claude Code are of another project",
				"name the files of the project that you work in")
		case base == p.Temp, strings.HasPrefix(file, "memory"+string(filepath.Separator)), file == "memory":
		case write: // transcripts are a record
			return false, nil
		}
		return true, p.checkUnique(own, name)
	}
	if !write && filepath.Base(real) == ".credentials.json" { // also in a configuration directory that is not known here
		return false, bailey.Denied.New(real+" contains the agent's credentials", "no setting permits reading it")
	}
	if write {
		if plans := filepath.Join(p.Config, "plans"); p.Config != "" && isBelow(plans, real) {
			return false, bailey.Denied.New("the agents of all projects share "+plans,
				`keep plans in the project: add "plansDirectory": "plans" to .claude/settings.json`)
		}
		return false, nil
	}
	return p.isReadable(real), nil
}

func (p Places) isReadable(real string) bool {
	below := func(dir string) bool { return dir != "" && isBelow(dir, real) }
	if below(p.Config) { // its other files contain secrets and transcripts
		return slices.ContainsFunc(readableConfig, func(name string) bool { return below(filepath.Join(p.Config, name)) })
	}
	if p.Readable != nil && slices.ContainsFunc(p.Readable(), below) {
		return true
	}
	if isPicture(real) && slices.ContainsFunc(p.Shots, below) {
		return true
	}
	return slices.ContainsFunc(p.Sources, func(pattern string) bool { return isBelowMatch(pattern, real) })
}

func isPicture(path string) bool {
	return slices.Contains([]string{".png", ".jpg", ".jpeg", ".webp", ".gif"}, strings.ToLower(filepath.Ext(path)))
}

// isBelow reports whether path is dir or below it.
func isBelow(dir, path string) bool {
	const sep = string(filepath.Separator)
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, sep)+sep)
}

// longestName is the length above which Claude Code cuts the name of a project and adds a hash.
const longestName = 200

// projectName returns the name under which Claude Code keeps the files of a project. Several projects can have one
// name.
func projectName(dir string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, dir)
}

// projectOf returns the directory with this name among dir and its parents up to root, or "".
func (p Places) projectOf(dir, root, name string) string {
	if root == "" || !isBelow(root, dir) || len(name) > longestName { // "": the call is outside of every workspace
		return ""
	}
	for ; isBelow(root, dir); dir = filepath.Dir(dir) {
		if projectName(dir) == name {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return ""
}

// checkUnique returns an error if another directory has the name of a project: its files would be in the same place.
// Claude Code's list of projects counts, and every directory that exists, because an agent may have worked there.
func (p Places) checkUnique(own, name string) error {
	others, all := directoriesNamed(string(filepath.Separator), name)
	listed, err := p.listedProjects()
	if err != nil || !all {
		return bailey.Denied.Wrapf(err, "put the file into the project",
			"cannot find out whether another project has the name %q too", name)
	}
	for _, other := range append(others, listed...) {
		if projectName(other) == name && other != own && resolveLinks(other) != own {
			return bailey.Denied.Errorf("rename one of the two directories",
				"%s and %s have the same name for Claude Code, %q, and would share these files", own, other, name)
		}
	}
	return nil
}

// listedProjects returns the directories in Claude Code's list of projects.
func (p Places) listedProjects() (dirs []string, err error) {
	var state struct {
		Projects map[string]json.RawMessage `json:"projects"`
	}
	text, err := os.ReadFile(p.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	return slices.Collect(maps.Keys(state.Projects)), err
}

// maxNamed limits the directories that are looked at.
const maxNamed = 1000

// directoriesNamed returns the directories below top whose paths have a project's name. It enters only directories
// whose path is a beginning of it. all is false if there are too many.
func directoriesNamed(top, name string) (found []string, all bool) {
	queue := []string{top}
	for n := 0; len(queue) > 0; n++ {
		if n == maxNamed {
			return found, false
		}
		dir := queue[0]
		queue = queue[1:]
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			rest, ok := strings.CutPrefix(name, projectName(path))
			switch {
			case !ok || !e.IsDir(): // a link leads to a directory that has its own name
			case rest == "":
				found = append(found, path)
			case rest[0] == '-':
				queue = append(queue, path)
			}
		}
	}
	return found, true
}
