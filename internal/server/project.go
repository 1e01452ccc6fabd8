package server

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/workspace"
	"bailey/pack"
)

// projectFile is a file that marks the directory in which a tool works, wherever below it the tool is started.
type projectFile struct {
	pack  string
	names []string // the first one that exists in a directory above counts
	start string   // input for the directory below it in which the tool starts; "" if it starts at the top
}

var projectFiles = []projectFile{
	{"go", []string{"go.work", "go.mod"}, "in"}, {"cargo", []string{"Cargo.toml"}, ""},
	{"npm", []string{"package.json"}, ""}, {"pnpm", []string{"package.json"}, ""}, {"yarn", []string{"package.json"}, ""},
}

// useProject makes a command line that was typed below the top of a project a call for that project. The tool would search
// upwards too, but a jail does not show the directories above the one of the call. The top must be in a workspace.
func useProject(m *pack.Capability, input map[string]any, dir string, workspaces []string) {
	at := slices.IndexFunc(projectFiles, func(f projectFile) bool { return f.pack == m.Pack })
	if at < 0 || !filepath.IsAbs(dir) {
		return
	}
	f, name := projectFiles[at], m.CwdInput()
	if name == "" || input[name] != "." || f.start != "" && input[f.start] != nil {
		return
	}
	dir = workspace.Canonical(dir)
	top := projectTop(f, dir, workspaces)
	below, err := filepath.Rel(top, dir)
	if top == "" || top == dir || err != nil {
		return
	}
	if input[name] = top; f.start != "" {
		input[f.start] = below
	}
}

// fillProject returns the input of a call with the directory of the session, if the agent does not name the directory of the
// project. In a directory below the top of a project, this is the top.
func (s *Server) fillProject(call bailey.Call) map[string]any {
	m, err := s.shelf.Lookup(call.Capability)
	if err != nil || call.Dir == "" {
		return call.Input
	}
	name := m.ProjectInput()
	if _, given := call.Input[name]; name == "" || given || m.HasFolder(name) {
		return call.Input
	}
	input := map[string]any{name: "."}
	maps.Copy(input, call.Input)
	useProject(m, input, call.Dir, s.workspaces.Written())
	return input
}

// projectTop returns the directory of a project that dir is in, or "".
func projectTop(f projectFile, dir string, workspaces []string) string {
	for _, name := range f.names {
		for at := dir; slices.ContainsFunc(workspaces, func(w string) bool {
			return at == w || strings.HasPrefix(at, strings.TrimSuffix(w, "/")+"/")
		}); at = filepath.Dir(at) {
			if info, err := os.Lstat(filepath.Join(at, name)); err == nil && info.Mode().IsRegular() {
				return at
			}
		}
	}
	return ""
}
