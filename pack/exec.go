package pack

import (
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

// buildRights contains the rights that a build tool has in addition to those of a normal tool.
type buildRights struct {
	Run      []string `json:"run,omitempty"`   // path inputs whose files may be executed
	Trees    []string `json:"trees,omitempty"` // directories of host programs, canonical
	Cache    bool     `json:"cache,omitempty"` // HOME is kept for the project
	Loopback bool     `json:"loopback,omitempty"`
}

// FSExec is the waiver of a capability that executes other programs than its own.
const FSExec = "fs.exec"

// Waivers returns the parts of the cage that the manifest gives up, sorted. Policy must name each of them.
func (m *Capability) Waivers() []string {
	if m.Uncaged() {
		return []string{NoIsolation} // the whole cage
	}
	w, helpers := m.spec.Sandbox.Work, len(m.spec.Sandbox.Exec) > 0
	if len(w.Run)+len(w.Trees) > 0 || helpers && !m.Builtin { // the helpers of built-in packs were examined with them
		return []string{FSExec}
	}
	return nil
}

// Home returns how the tool uses a HOME that is kept for a project: "fetches" if it has network access, "builds" if it
// has none, "" if no HOME is kept.
func (m *Capability) Home() string {
	switch w := m.agentJailRights(); {
	case w == nil || w.Cache == "":
		return ""
	case w.Fetches:
		return "fetches"
	}
	return "builds"
}

// Loopback reports whether the tool may connect to itself over a network without an exit.
func (m *Capability) Loopback() bool { return m.spec.Sandbox.Work.Loopback }

// Programs returns the possible paths of the command in search order: first in each directory of programs that the
// manifest names, then the command as written.
func (m *Capability) Programs() (list []string) {
	if !path.IsAbs(m.Command) {
		for _, dir := range m.commandDirs() {
			list = append(list, path.Join(dir, m.Command))
		}
	}
	return append(list, m.Command)
}

// agentJailRights returns the agent-jail rights of the tool, or nil if it has none. A tree with the name bin is on the search
// path, before the default directories.
func (m *Capability) agentJailRights() *bailey.Wall {
	s := m.spec.Sandbox.Work
	if len(s.Run)+len(s.Trees)+len(m.spec.Sandbox.Keep) == 0 && !s.Cache {
		return nil
	}
	w := &bailey.Wall{Run: len(s.Run) > 0}
	for _, tree := range s.Trees {
		w.Trees = append(w.Trees, bailey.Tree{Path: tree})
	}
	if dirs := m.commandDirs(); len(dirs) > 0 {
		w.Path = strings.Join(append(dirs, searched), ":")
	}
	if s.Cache {
		w.Cache, w.Fetches = m.Pack, len(m.spec.Sandbox.Egress) > 0
	}
	return w
}

// commandDirs returns the directories that are searched for the command before the default ones.
func (m *Capability) commandDirs() (dirs []string) {
	for _, tree := range m.spec.Sandbox.Work.Trees {
		if path.Base(tree) == "bin" {
			dirs = append(dirs, tree)
		}
	}
	return append(dirs, m.spec.Backend.Path...)
}

// commandPath reads backend.path.
func (r *reader) commandPath(p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		r.pathsField("path", p)(n)
		if len(*p) > 0 && !r.builtin {
			r.AddFault(n, "only built-in packs may set where their command is searched: backend.path")
		}
	}
}

// searched is the default search path of every cage.
const searched = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// readExec reads fs.exec. It runs after the schema, because entries refer to inputs.
func (r *reader) readExec(m *manifest, at *deferredNodes, s *schema) {
	if at.exec != nil {
		for _, item := range r.Items(at.exec, "exec") {
			r.readExecEntry(item, m, s)
		}
	}
	w := &m.Sandbox.Work
	switch {
	case len(w.Run) > 0 && len(w.Run) < len(m.Sandbox.Write):
		r.AddFault(at.exec,
			"exec must have all of fs.rw: the tool could write a file and run it elsewhere")
	case (len(m.Sandbox.Egress) > 0 || m.Sandbox.API != nil) && len(w.Run)+len(w.Trees) > 0:
		r.AddFault(at.exec,
			"exec can name programs, but no directory, only if egress reaches a network: files of the project could run with that network")
	case len(m.Backend.Path) > 0 && !w.Cache:
		r.AddFault(at.backend, "path needs cache: the jails of other tools have a constant search path")
	case m.Isolation != Jail && (len(w.Run)+len(w.Trees)+len(m.Sandbox.Keep) > 0 || w.Cache || w.Loopback):
		r.AddFault(at.sandbox,
			"isolation %s contradicts fs.exec, fs.keep, cache and loopback, which need a jail", m.Isolation)
	}
}

// readExecEntry reads one entry of fs.exec: a path input, a program, or a directory of programs if it ends with a slash.
func (r *reader) readExecEntry(n ast.Node, m *manifest, s *schema) {
	v, ok := r.ReadText(n, "exec")
	if !ok {
		return
	}
	w := &m.Sandbox.Work
	if strings.Contains(v, "{{") {
		list := &ast.SequenceNode{Values: []ast.Node{n}}
		for at, e := range r.inputPaths(list, "exec", m, s) {
			switch name := e.parts[0].input; {
			case !e.isPlaceholder():
				r.AddFault(at, "exec must be only a path input, as \"{{ input.x }}\", not %q", strictyaml.Clip(v))
			case !slices.Contains(m.Sandbox.Write, name):
				r.AddFault(at,
					"exec needs inputs in fs.rw: input.%s is not writable", name)
			case slices.Contains(w.Run, name):
				r.AddFault(at, "exec names input.%s twice", name)
			default:
				w.Run = append(w.Run, name)
			}
		}
		return
	}
	dir, tree := strings.CutSuffix(v, "/")
	switch {
	case !r.builtin && tree:
		r.AddFault(n, "only built-in packs may name directories of programs in fs.exec; name each program")
	case !path.IsAbs(v) || path.Clean(dir) != dir || dir == "" || dir == "/":
		r.AddFault(n, "exec must be absolute paths without .. and not /, not %q", strictyaml.Clip(v))
	case tree:
		w.Trees = append(w.Trees, dir)
	default:
		m.Sandbox.Exec = append(m.Sandbox.Exec, v)
	}
}
