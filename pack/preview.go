package pack

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

// preview describes the command lines that show the effect of a call before it is approved.
type preview struct {
	Command string            `json:"command,omitempty"` // "": the command of the backend
	Looks   [][]string        `json:"looks"`
	Env     map[string]string `json:"env,omitempty"` // in addition to that of the capability
	Timeout time.Duration     `json:"timeout,omitempty"`
	Covers  bool              `json:"covers,omitempty"` // the output covers everything that matters in the path inputs
	Bind    []bind            `json:"bind,omitempty"`
}

// Limits of a preview. A person waits for it, and it runs again after the answer.
const (
	maxLooks       = 8
	maxLookTime    = 30 * time.Second
	defaultLookFor = 10 * time.Second
)

// Previews returns the command lines of the preview as written in the manifest, or nil if it has no preview.
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

// Covers reports whether the manifest promises that its preview shows everything that matters in the files and
// directories of a call.
func (m *Capability) Covers() bool { return m.spec.Preview != nil && m.spec.Preview.Covers }

// Preview returns the jobs that show the effect of a checked call, in order, or nil if the manifest has no preview.
// They are rendered like the arguments of the call. They get no credentials, and every place is read-only. Shown is
// inserted into those that follow others, see [Capability.Follows].
func (m *Capability) Preview(input map[string]any, paths map[string]string, places []bailey.Place,
	shown string) ([]bailey.Job, error) {
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
		args, err := m.renderArgs(fillShown(look, shown), input, paths)
		if err != nil {
			return nil, err
		}
		j := m.Job(args, seen)
		if p.Command != "" {
			j.Command = p.Command
		}
		for _, name := range sortedKeys(p.Env) {
			j.Env = append(j.Env, name+"="+p.Env[name])
		}
		j.Wall = nil // a preview executes no files of the project
		j.EnvNames, j.FileNames, j.Timeout = nil, nil, p.Timeout
		if j.Timeout == 0 {
			j.Timeout = defaultLookFor
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// readPreview reads the key of that name. It runs after the schema, because the key refers to inputs.
func (r *reader) readPreview(n ast.Node, m *manifest, s *schema) (looks [][]argTemplate, binds []parsedBind) {
	if n == nil {
		return nil, nil
	}
	p := &preview{}
	var lines []ast.Node
	var bind ast.Node
	env := map[string]string{}
	seen := r.Fields(n, "preview", strictyaml.Fields{
		"command": r.commandField(&p.Command),
		"args":    func(n ast.Node) { lines = r.splitCommandLines(n) },
		"env":     r.variablesField(env),
		"timeout": r.limitedTimeoutField(maxLookTime, &p.Timeout),
		"covers":  r.coversField(&p.Covers),
		"bind":    func(n ast.Node) { bind = n },
	})
	r.requireKeys(n, "preview", seen, "args")
	for name := range env {
		if _, twice := m.Env[name]; twice {
			r.AddFault(n, "preview sets %s, which the capability sets itself", name)
		}
	}
	for _, line := range lines {
		var args []string
		strictyaml.TextsField(r.File, "args", &args)(line)
		looks = append(looks, r.readCommandLine(line, args, s))
		p.Looks = append(p.Looks, args)
	}
	if len(env) > 0 {
		p.Env = maps.Clone(env)
	}
	m.Preview = p
	return looks, r.readBinds(n, bind, m, s, p)
}

// splitCommandLines reads one command line, or a list of them.
func (r *reader) splitCommandLines(n ast.Node) []ast.Node {
	items := r.Items(n, "args")
	if len(items) == 0 {
		r.AddFault(n, "args of a preview must be a command line, or a list of them")
		return nil
	}
	if _, nested := items[0].(*ast.SequenceNode); !nested {
		return []ast.Node{n}
	}
	if len(items) > maxLooks {
		r.AddFault(n, "a preview can have at most %d command lines, not %d", maxLooks, len(items))
		return nil
	}
	for _, item := range items {
		if l, list := item.(*ast.SequenceNode); !list || len(l.Values) == 0 {
			r.AddTypeFault(item, "each command line of a preview", "a list of arguments")
			return nil
		}
	}
	return items
}

func (r *reader) coversField(p *bool) func(ast.Node) {
	return func(n ast.Node) {
		var what string
		before := len(r.Faults)
		choiceField(r, "covers", map[string]string{"contents": "contents"}, &what)(n)
		*p = len(r.Faults) == before
	}
}

// limitedTimeoutField reads a duration of at most most.
func (r *reader) limitedTimeoutField(most time.Duration, p *time.Duration) func(ast.Node) {
	return func(n ast.Node) {
		before := len(r.Faults)
		r.timeoutField(p)(n)
		if len(r.Faults) == before && *p > most {
			r.AddFault(n, "timeout of a preview is at most %s, not %s", most, strings.TrimSpace(p.String()))
		}
	}
}
