package pack

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

// preview is what shows, before anybody answers, what a call would do.
type preview struct {
	Command string            `json:"command,omitempty"` // "": the backend's
	Looks   [][]string        `json:"looks"`
	Env     map[string]string `json:"env,omitempty"` // beside the capability's own
	Timeout time.Duration     `json:"timeout,omitempty"`
	Covers  bool              `json:"covers,omitempty"` // what it shows is all that matters of the path inputs
	Bind    []bind            `json:"bind,omitempty"`
}

// Bounds of a preview: a person waits for it, and it runs again once there is an answer.
const (
	maxLooks       = 8
	maxLookTime    = 30 * time.Second
	defaultLookFor = 10 * time.Second
)

// Previews returns the command lines of the preview as the manifest has them, none where it has no preview.
func (m *Capability) Previews() (lines [][]string) {
	p := m.spec.Preview
	if p == nil {
		return nil
	}
	command := m.Command
	if p.Command != "" {
		command = p.Command
	}
	for _, args := range p.Looks {
		lines = append(lines, append([]string{command}, args...))
	}
	return lines
}

// Covers reports whether the manifest promises that its preview shows all that matters of the files and directories that
// a call names.
func (m *Capability) Covers() bool { return m.spec.Preview != nil && m.spec.Preview.Covers }

// Preview returns the command lines that show what a checked call would do, in their order; none where the manifest has
// no preview. They are rendered as the call's own arguments are. Nothing is lent to them, and every place is only read.
// Shown stands in those that follow others, see [Capability.Follows].
func (m *Capability) Preview(input map[string]any, paths map[string]string, places []bailey.Place, shown string) ([]bailey.Job, error) {
	p := m.spec.Preview
	if p == nil {
		return nil, nil
	}
	seen := slices.Clone(places)
	for i := range seen {
		seen[i].Write = false
	}
	var jobs []bailey.Job
	for _, look := range m.looks {
		args, err := m.render(filled(look, shown), input, paths)
		if err != nil {
			return nil, err
		}
		j := m.Job(args, seen)
		if p.Command != "" {
			j.Command = p.Command
		}
		for _, name := range keys(p.Env) {
			j.Env = append(j.Env, name+"="+p.Env[name])
		}
		j.Wall = nil // it looks, and runs nothing of what it looks at
		j.EnvNames, j.FileNames, j.Timeout = nil, nil, p.Timeout
		if j.Timeout == 0 {
			j.Timeout = defaultLookFor
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// preview reads the key of that name, which speaks of inputs and so comes after the schema.
func (r *reader) preview(n ast.Node, m *manifest, s *schema) (looks [][]element, binds []bound) {
	if n == nil {
		return nil, nil
	}
	p := &preview{}
	var lines []ast.Node
	var bind ast.Node
	env := map[string]string{}
	seen := r.fields(n, "preview", map[string]func(ast.Node){
		"command": r.command(&p.Command),
		"args":    func(n ast.Node) { lines = r.lines(n) },
		"env":     r.variables(env),
		"timeout": r.within(maxLookTime, &p.Timeout),
		"covers":  r.covers(&p.Covers),
		"bind":    func(n ast.Node) { bind = n },
	})
	r.need(n, "preview", seen, "args")
	for name := range env {
		if _, twice := m.Env[name]; twice {
			r.fault(tokenOf(n), "preview sets %s, which the capability sets itself", name)
		}
	}
	for _, line := range lines {
		var args []string
		r.texts("args", &args)(line)
		looks = append(looks, r.following(line, args, s))
		p.Looks = append(p.Looks, args)
	}
	if len(env) > 0 {
		p.Env = maps.Clone(env)
	}
	m.Preview = p
	return looks, r.binds(tokenOf(n), bind, m, s, p)
}

// lines reads one command line, or a list of them.
func (r *reader) lines(n ast.Node) []ast.Node {
	items := r.items(n, "args")
	if len(items) == 0 {
		r.fault(tokenOf(n), "args of a preview wants a command line, or a list of them")
		return nil
	}
	if _, nested := items[0].(*ast.SequenceNode); !nested {
		return []ast.Node{n}
	}
	if len(items) > maxLooks {
		r.fault(tokenOf(n), "a preview has at most %d command lines, found %d", maxLooks, len(items))
		return nil
	}
	for _, item := range items {
		if l, list := item.(*ast.SequenceNode); !list || len(l.Values) == 0 {
			r.wants(item, "each command line of a preview", "a list of arguments")
			return nil
		}
	}
	return items
}

func (r *reader) covers(p *bool) func(ast.Node) {
	return func(n ast.Node) {
		var what string
		before := len(r.faults)
		choice(r.source, "covers", map[string]string{"contents": "contents"}, &what)(n)
		*p = len(r.faults) == before
	}
}

// within reads a duration up to most.
func (r *reader) within(most time.Duration, p *time.Duration) func(ast.Node) {
	return func(n ast.Node) {
		before := len(r.faults)
		r.timeout(p)(n)
		if len(r.faults) == before && *p > most {
			r.fault(tokenOf(n), "timeout of a preview is at most %s, found %s", most, strings.TrimSpace(p.String()))
		}
	}
}
