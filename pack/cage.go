package pack

import (
	"path"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

func (r *reader) readBackend(n ast.Node, m *manifest, at *deferredNodes) {
	b := &m.Backend
	seen := r.readFields(n, "backend", map[string]func(ast.Node){
		"type":         choiceField(r.source, "type", backends, &b.Type),
		"command":      r.commandField(&b.Command),
		"args":         func(n ast.Node) { at.args = n; r.textsField("args", &b.Args)(n) },
		"steps":        func(n ast.Node) { at.steps = n },
		"cwdFromInput": r.wordField("cwdFromInput", inputName(), &b.CwdFromInput),
		"cwd":          choiceField(r.source, "cwd", cwds, &b.Cwd),
		"path":         r.commandPath(&b.Path),
		"env":          r.envField(m),
	})
	r.requireKeys(n, "backend", seen, "type")
	if seen["cwd"] && seen["cwdFromInput"] {
		r.addFault(tokenOf(n), "backend has both cwd and cwdFromInput: a tool runs in one directory")
	}
	switch b.Type {
	case "subprocess":
		r.requireKeys(n, "backend", seen, "command")
	case "agent":
		m.Isolation = Agent
		switch {
		case !r.builtin:
			r.addFault(tokenOf(n), "backend agent is for built-in packs: it is what an agent does by itself")
		case seen["command"] || seen["args"] || seen["env"] || seen["cwd"]:
			r.addFault(tokenOf(n), "backend agent runs nothing, and has neither command nor args nor env nor cwd")
		}
	case "workflow":
		m.Isolation = Workflow
		if seen["command"] || seen["args"] || seen["env"] || seen["cwdFromInput"] || seen["cwd"] {
			r.addFault(tokenOf(n),
				"backend workflow makes calls, and has neither command nor args nor env nor cwdFromInput nor cwd")
		}
	case "builtin", "mcp", "remote", "sandbox":
		// The fields of these backends have no meaning yet. If such a pack were loaded, its manifest could not be
		// enforced.
		r.addFault(tokenOf(n), "this version cannot run backend %s, only subprocess", b.Type)
	}
}

// commandField reads a program: a name that the runner finds on its own PATH, or an absolute path.
func (r *reader) commandField(p *string) func(ast.Node) {
	return func(n ast.Node) {
		var v string
		before := len(r.faults)
		r.textField("command", &v)(n)
		switch {
		case len(r.faults) > before:
		case program().MatchString(v), path.IsAbs(v) && path.Clean(v) == v && v != "/":
			*p = v
		default:
			r.addFault(tokenOf(n), "command wants a program's name or its absolute path, found %q", clipText(v))
		}
	}
}

func (r *reader) readSandbox(n ast.Node, m *manifest, at *deferredNodes) {
	s := &m.Sandbox
	r.readFields(n, "sandboxProfile", map[string]func(ast.Node){
		"fs":       func(n ast.Node) { r.readFSAccess(n, s, at) },
		"network":  func(n ast.Node) { r.readNetwork(n, s, at) },
		"limits":   func(n ast.Node) { r.readLimits(n, s) },
		"env":      r.envField(m),
		"cache":    r.boolField("cache", &s.Work.Cache),
		"proc":     r.boolField("proc", &s.Proc),
		"syscalls": r.cannotList("a cage gives no system call back: each that it denies is a way out of it; leave syscalls empty, or run the tool in a microvm"),
	})
}

func (r *reader) readFSAccess(n ast.Node, s *sandbox, at *deferredNodes) {
	r.readFields(n, "fs", map[string]func(ast.Node){
		"ro":   r.pathsField("ro", &s.Read),
		"rw":   func(n ast.Node) { at.write = n },
		"hide": func(n ast.Node) { at.hide = n },
		"keep": func(n ast.Node) { at.keep = n },
		"libs": r.libsField(s),
		"exec": func(n ast.Node) { at.exec = n },
	})
}

// pathsField reads absolute, clean paths other than /.
func (r *reader) pathsField(what string, p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range r.listItems(n, what) {
			var v string
			before := len(r.faults)
			r.textField(what, &v)(item)
			if len(r.faults) > before {
				continue
			}
			if !path.IsAbs(v) || path.Clean(v) != v || v == "/" {
				r.addFault(tokenOf(item), "%s wants absolute paths without .. and not /, found %q", what, clipText(v))
				continue
			}
			*p = append(*p, v)
		}
	}
}

func (r *reader) readNetwork(n ast.Node, s *sandbox, at *deferredNodes) {
	r.readFields(n, "network", map[string]func(ast.Node){
		"egress":   func(n ast.Node) { at.egress = n },
		"api":      r.apiField(s, at),
		"loopback": r.boolField("loopback", &s.Work.Loopback),
	})
}

// Upper limits of a manifest, above the capacity of any host.
const (
	maxMemory = 1 << 20 // MiB
	maxTasks  = 1 << 16
)

func (r *reader) readLimits(n ast.Node, s *sandbox) {
	r.readFields(n, "limits", map[string]func(ast.Node){
		"memoryMiB": r.countField("memoryMiB", maxMemory, &s.Memory),
		"tasks":     r.countField("tasks", maxTasks, &s.Tasks),
	})
}

func (r *reader) boolField(what string, p *bool) func(ast.Node) {
	return func(n ast.Node) {
		b, ok := n.(*ast.BoolNode)
		if !ok {
			r.addTypeFault(n, what, "true or false")
			return
		}
		*p = b.Value
	}
}

// envField reads constant variables into the environment of the manifest.
func (r *reader) envField(m *manifest) func(ast.Node) { return r.variablesField(m.Env) }

func (r *reader) variablesField(env map[string]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, kv := range r.mappingPairs(n, "env") {
			name, ok := keyText(kv.Key)
			var v string
			before := len(r.faults)
			r.textField("env", &v)(kv.Value)
			_, twice := env[name]
			switch {
			case len(r.faults) > before:
			case !ok || !envName().MatchString(name):
				r.addFault(kv.Key.GetToken(), "env wants names like [A-Za-z_][A-Za-z0-9_]*, found %q", clipText(name))
			case twice:
				r.addFault(kv.Key.GetToken(), "env sets %s twice", name)
			case strings.Contains(v, "{{"):
				r.addFault(tokenOf(kv.Value), "this version cannot render inputs into env: %s", name)
			case strings.ContainsAny(v, "\n\t"):
				r.addFault(tokenOf(kv.Value), "env %s holds a tab or a newline", name)
			default:
				r.checkVariable(kv.Key, name)
				env[name] = v
			}
		}
	}
}

// checkVariable refuses variables that the cage sets. Outside built-in packs it also refuses variables that make a loader,
// an interpreter or a tool run or read something else.
func (r *reader) checkVariable(n ast.Node, name string) {
	switch {
	case bailey.CageOwn(name):
		r.addFault(tokenOf(n), "%s is set by the cage itself", name)
	case !r.builtin && bailey.Loads(name):
		r.addFault(tokenOf(n), "%s steers a loader or an interpreter; only built-in packs may set it", name)
	}
}
