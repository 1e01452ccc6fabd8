package pack

import (
	"path"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

func (r *reader) backend(n ast.Node, m *manifest, at *nodes) {
	b := &m.Backend
	seen := r.fields(n, "backend", map[string]func(ast.Node){
		"type":         choice(r.source, "type", backends, &b.Type),
		"command":      r.command(&b.Command),
		"args":         func(n ast.Node) { at.args = n; r.texts("args", &b.Args)(n) },
		"steps":        func(n ast.Node) { at.steps = n },
		"cwdFromInput": r.word("cwdFromInput", inputName(), &b.CwdFromInput),
		"cwd":          choice(r.source, "cwd", cwds, &b.Cwd),
		"path":         r.commandPath(&b.Path),
		"env":          r.env(m),
	})
	r.need(n, "backend", seen, "type")
	if seen["cwd"] && seen["cwdFromInput"] {
		r.fault(tokenOf(n), "backend has both cwd and cwdFromInput: a tool runs in one directory")
	}
	switch b.Type {
	case "subprocess":
		r.need(n, "backend", seen, "command")
	case "agent":
		m.Isolation = Agent
		switch {
		case !r.builtin:
			r.fault(tokenOf(n), "backend agent is for built-in packs: it is what an agent does by itself")
		case seen["command"] || seen["args"] || seen["env"] || seen["cwd"]:
			r.fault(tokenOf(n), "backend agent runs nothing, and has neither command nor args nor env nor cwd")
		}
	case "workflow":
		m.Isolation = Workflow
		if seen["command"] || seen["args"] || seen["env"] || seen["cwdFromInput"] || seen["cwd"] {
			r.fault(tokenOf(n), "backend workflow makes calls, and has neither command nor args nor env nor cwdFromInput nor cwd")
		}
	case "builtin", "mcp", "remote", "sandbox":
		// The fields of these backends have no meaning yet. If such a pack were loaded, its manifest could not be
		// enforced.
		r.fault(tokenOf(n), "this version cannot run backend %s, only subprocess", b.Type)
	}
}

// command reads a program: a name that the runner finds on its own PATH, or an absolute path.
func (r *reader) command(p *string) func(ast.Node) {
	return func(n ast.Node) {
		var v string
		before := len(r.faults)
		r.text("command", &v)(n)
		switch {
		case len(r.faults) > before:
		case program().MatchString(v), path.IsAbs(v) && path.Clean(v) == v && v != "/":
			*p = v
		default:
			r.fault(tokenOf(n), "command wants a program's name or its absolute path, found %q", clip(v))
		}
	}
}

func (r *reader) sandbox(n ast.Node, m *manifest, at *nodes) {
	s := &m.Sandbox
	r.fields(n, "sandboxProfile", map[string]func(ast.Node){
		"fs":       func(n ast.Node) { r.files(n, s, at) },
		"network":  func(n ast.Node) { r.network(n, s, at) },
		"limits":   func(n ast.Node) { r.limits(n, s) },
		"env":      r.env(m),
		"cache":    r.flag("cache", &s.Work.Cache),
		"proc":     r.flag("proc", &s.Proc),
		"syscalls": r.cannotList("a cage gives no system call back: each that it denies is a way out of it; leave syscalls empty, or run the tool in a microvm"),
	})
}

func (r *reader) files(n ast.Node, s *sandbox, at *nodes) {
	r.fields(n, "fs", map[string]func(ast.Node){
		"ro":   r.paths("ro", &s.Read),
		"rw":   func(n ast.Node) { at.write = n },
		"hide": func(n ast.Node) { at.hide = n },
		"keep": func(n ast.Node) { at.keep = n },
		"libs": r.libs(s),
		"exec": func(n ast.Node) { at.exec = n },
	})
}

// paths reads absolute, clean paths other than /.
func (r *reader) paths(what string, p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range r.items(n, what) {
			var v string
			before := len(r.faults)
			r.text(what, &v)(item)
			if len(r.faults) > before {
				continue
			}
			if !path.IsAbs(v) || path.Clean(v) != v || v == "/" {
				r.fault(tokenOf(item), "%s wants absolute paths without .. and not /, found %q", what, clip(v))
				continue
			}
			*p = append(*p, v)
		}
	}
}

func (r *reader) network(n ast.Node, s *sandbox, at *nodes) {
	r.fields(n, "network", map[string]func(ast.Node){
		"egress":   func(n ast.Node) { at.egress = n },
		"api":      r.api(s, at),
		"loopback": r.flag("loopback", &s.Work.Loopback),
	})
}

// Upper limits of a manifest, above the capacity of any host.
const (
	maxMemory = 1 << 20 // MiB
	maxTasks  = 1 << 16
)

func (r *reader) limits(n ast.Node, s *sandbox) {
	r.fields(n, "limits", map[string]func(ast.Node){
		"memoryMiB": r.count("memoryMiB", maxMemory, &s.Memory),
		"tasks":     r.count("tasks", maxTasks, &s.Tasks),
	})
}

func (r *reader) flag(what string, p *bool) func(ast.Node) {
	return func(n ast.Node) {
		b, ok := n.(*ast.BoolNode)
		if !ok {
			r.wants(n, what, "true or false")
			return
		}
		*p = b.Value
	}
}

// env reads constant variables into the environment of the manifest.
func (r *reader) env(m *manifest) func(ast.Node) { return r.variables(m.Env) }

func (r *reader) variables(env map[string]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, kv := range r.pairs(n, "env") {
			name, ok := keyText(kv.Key)
			var v string
			before := len(r.faults)
			r.text("env", &v)(kv.Value)
			_, twice := env[name]
			switch {
			case len(r.faults) > before:
			case !ok || !envName().MatchString(name):
				r.fault(kv.Key.GetToken(), "env wants names like [A-Za-z_][A-Za-z0-9_]*, found %q", clip(name))
			case twice:
				r.fault(kv.Key.GetToken(), "env sets %s twice", name)
			case strings.Contains(v, "{{"):
				r.fault(tokenOf(kv.Value), "this version cannot render inputs into env: %s", name)
			case strings.ContainsAny(v, "\n\t"):
				r.fault(tokenOf(kv.Value), "env %s holds a tab or a newline", name)
			default:
				r.variable(kv.Key, name)
				env[name] = v
			}
		}
	}
}

// variable refuses variables that the cage sets. Outside built-in packs it also refuses variables that make a loader,
// an interpreter or a tool run or read something else.
func (r *reader) variable(n ast.Node, name string) {
	switch {
	case bailey.CageOwn(name):
		r.fault(tokenOf(n), "%s is set by the cage itself", name)
	case !r.builtin && bailey.Loads(name):
		r.fault(tokenOf(n), "%s steers a loader or an interpreter; only built-in packs may set it", name)
	}
}
