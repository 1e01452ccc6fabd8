package pack

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

// Job returns the checked call in the form that a runner takes. Places are the opened path inputs. The tool runs in the
// place that cwdFromInput names, otherwise in the workspace. A file for standard input is not mounted.
func (m *Capability) Job(args []string, places []bailey.Place) bailey.Job {
	j := bailey.Job{
		Capability: m.ID,
		Command:    m.Command,
		Args:       slices.Clone(args),
		Places:     m.mountedPlaces(places),
		Read:       slices.Clone(m.spec.Sandbox.Read),
		Libs:       slices.Clone(m.spec.Sandbox.Libs),
		Exec:       slices.Clone(m.spec.Sandbox.Exec),
		NeedsProc:  m.spec.Sandbox.Proc,
		Limits:     bailey.Limits{MemoryBytes: m.spec.Sandbox.Memory << 20, Tasks: int(m.spec.Sandbox.Tasks)},
		Timeout:    m.Timeout,
	}
	j.Wall = m.agentJailRights()
	for _, name := range sortedKeys(m.spec.Env) {
		j.Env = append(j.Env, name+"="+m.spec.Env[name])
	}
	for _, c := range m.spec.Credentials {
		if c.File {
			j.FileNames = append(j.FileNames, c.Env)
		} else {
			j.EnvNames = append(j.EnvNames, c.Env)
		}
	}
	for _, p := range places {
		if p.Input == m.spec.Backend.CwdFromInput { // "" is the workspace
			j.Dir = p.Path
			if m.spec.Backend.Repository == p.Input && p.Input != "" {
				j.Dir, j.Env = repositoryEnv(j.Env, p)
			}
		}
	}
	if len(m.spec.Sandbox.Keep) > 0 {
		j.Wall.Keep = pathsBelow(m.spec.Sandbox.Keep, places)
	}
	j.Hide = pathsBelow(m.spec.Sandbox.Hide, places)
	return j
}

// pathsBelow returns the paths that have the given names below the places.
func pathsBelow(list []inputSubpath, places []bailey.Place) (paths []string) {
	for _, s := range list {
		for _, p := range places {
			switch repo := p.Repository; {
			case p.Input != s.Input:
			case repo == nil:
				paths = append(paths, p.Path+s.Path)
			case s.Path == "/.git/HEAD" && repo.GitDir != repo.Common: // both the main worktree's and this one's
				paths = append(paths, repo.Below(s.Path), repo.Common+"/HEAD")
			default:
				paths = append(paths, repo.Below(s.Path))
			}
		}
	}
	return paths
}

// stdioSpec is the part of a manifest about input and output other than arguments.
type stdioSpec struct {
	Stdin      string      `json:"stdin,omitempty"` // text or file; "" means none
	Validators []validator `json:"validators,omitempty"`
	Output     *output     `json:"output,omitempty"`
}

// stdioNodes contains the YAML nodes of promised, which are read when the inputs are known.
type stdioNodes struct{ stdin, validators, outputSchema, output ast.Node }

// MaxStdin limits the standard input of a tool, text or file, in bytes.
const MaxStdin = 10 << 20

// StdinInput is the input that becomes standard input if the key stdin is set.
const StdinInput = "stdin"

var (
	stdins = map[string]string{"none": "", "text": "text", "file": "file"}
	cwds   = map[string]string{"workspace": "workspace", "none": "none"}
)

// Stdin returns the standard input of the tool as text, from a checked input. ok is false if there is no such text.
func (m *Capability) Stdin(input map[string]any) (text string, ok bool) {
	if m.spec.Stdin != "text" {
		return "", false
	}
	text, ok = input[StdinInput].(string)
	return text, ok
}

// Reads reports whether a place is the file for the standard input of the tool. Such a file is not visible in the cage.
func (m *Capability) Reads(p bailey.Place) bool {
	return m.spec.Stdin == "file" && p.Input == StdinInput
}

func (m *Capability) mountedPlaces(places []bailey.Place) []bailey.Place {
	return slices.DeleteFunc(slices.Clone(places), m.Reads)
}

// Workspace reports whether the tool runs in the workspace, which it can read. A manifest can say so. It is the default
// if a pack is not built-in and its capability names no path.
func (m *Capability) Workspace() bool {
	b := m.spec.Backend
	return b.Cwd == "workspace" || b.Cwd == "" && !m.Builtin && b.Type == "subprocess" && len(m.PathInputs()) == 0
}

// checkStdin checks the input that the key stdin refers to.
func (r *reader) checkStdin(n ast.Node, m *manifest, s *schema) {
	if m.Stdin == "" {
		return
	}
	in := s.root.Properties[StdinInput]
	switch {
	case in == nil || !in.hasOnlyTypes("string"): // a $ref has no type of its own
		r.AddFault(n, "stdin: %s needs an input stdin of type string, without a $ref", m.Stdin)
		return
	case m.Stdin == "text" && in.Format != "":
		r.AddFault(n, "stdin: text needs an input stdin without a format, but it has %s", in.Format)
	case m.Stdin == "file" && in.Format != "path":
		r.AddFault(n, "stdin: file needs an input stdin of format path")
	case m.Backend.CwdFromInput == StdinInput:
		r.AddFault(n, "stdin and cwdFromInput cannot be the same input")
	case m.Backend.Type != "subprocess" && m.Backend.Type != "sandbox":
		r.AddFault(n, "backend %s runs no program that could read stdin", m.Backend.Type)
	}
	in.stream, s.stdin = m.Stdin == "text", m.Stdin
}

// stdinFault returns the fault of a text for standard input, or "". The text may be empty, have lines, and begin with any
// character, because no tool interprets standard input as an option or a file name.
func stdinFault(v string) string {
	if len(v) > MaxStdin {
		return fmt.Sprintf("has %d bytes, more than %d", len(v), MaxStdin)
	}
	if what := describeHiddenChar(v, true); what != "" {
		return "holds " + what
	}
	return ""
}
