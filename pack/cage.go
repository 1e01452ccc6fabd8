package pack

import (
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

func (r *reader) readBackend(n ast.Node, m *manifest, at *deferredNodes) {
	b := &m.Backend
	seen := r.Fields(n, "backend", strictyaml.Fields{
		"type":         choiceField(r, "type", backends, &b.Type),
		"command":      r.commandField(&b.Command),
		"args":         func(n ast.Node) { at.args = n; strictyaml.TextsField(r.File, "args", &b.Args)(n) },
		"steps":        func(n ast.Node) { at.steps = n },
		"cwdFromInput": r.wordField("cwdFromInput", inputName(), &b.CwdFromInput),
		"signs":        choiceField(r, "signs", signings, &b.Signs),
		"repository":   r.wordField("repository", inputName(), &b.Repository),
		"cwd":          choiceField(r, "cwd", cwds, &b.Cwd),
		"path":         r.commandPath(&b.Path),
		"env":          r.envField(m),
	})
	r.requireKeys(n, "backend", seen, "type")
	if seen["cwd"] && seen["cwdFromInput"] {
		r.AddFault(n, "backend has both cwd and cwdFromInput: a tool runs in one directory")
	}
	if b.Repository == "none" { // as a fragment would otherwise say
		b.Repository = ""
	}
	if b.Repository != "" && b.Type != "subprocess" {
		r.AddFault(n, "backend %s runs no program that could use a repository", b.Type)
	}
	switch b.Type {
	case "subprocess":
		r.requireKeys(n, "backend", seen, "command")
	case "agent":
		m.Isolation = Agent
		switch {
		case !r.builtin:
			r.AddFault(n, "backend agent is only for built-in packs: it describes what an agent does itself")
		case seen["command"] || seen["args"] || seen["env"] || seen["cwd"]:
			r.AddFault(n, "backend agent runs nothing, and must not have command, args, env or cwd")
		}
	case "workflow":
		m.Isolation = Workflow
		if seen["command"] || seen["args"] || seen["env"] || seen["cwdFromInput"] || seen["cwd"] {
			r.AddFault(n,
				"backend workflow makes calls, and must not have command, args, env, cwdFromInput or cwd")
		}
	case "remote":
		m.Isolation = Host
		switch {
		case !r.builtin:
			r.AddFault(n, "backend remote is only for built-in packs: it runs commands on source hosts")
		case seen["command"] || seen["env"] || seen["cwd"] || seen["cwdFromInput"]:
			r.AddFault(n, "backend remote has only args: the verb, the host and its text")
		}
	case "sandbox":
		m.Isolation = Sandbox
		switch {
		case !r.builtin:
			r.AddFault(n, "backend sandbox is only for built-in packs: it acts on virtual machines")
		case seen["command"] || seen["env"] || seen["cwd"] || seen["cwdFromInput"]:
			r.AddFault(n, "backend sandbox has only args: the verb, and its operands")
		}
	case "model":
		m.Isolation = Model
		switch {
		case !r.builtin:
			r.AddFault(n, "backend model is only for built-in packs: the model proxy makes these calls")
		case seen["command"] || seen["args"] || seen["env"] || seen["cwd"] || seen["cwdFromInput"]:
			r.AddFault(n, "backend model runs nothing, and must not have command, args, env or cwd")
		}
	case "builtin", "mcp":
		// The fields of these backends have no meaning yet. If such a pack were loaded, its manifest could not be
		// enforced.
		r.AddFault(n, "this version cannot run backend %s, only subprocess", b.Type)
	}
}

// commandField reads a program: a name that the runner finds on its own PATH, or an absolute path.
func (r *reader) commandField(p *string) func(ast.Node) {
	return func(n ast.Node) {
		v, ok := r.ReadText(n, "command")
		switch {
		case !ok:
		case program().MatchString(v), path.IsAbs(v) && path.Clean(v) == v && v != "/":
			*p = v
		default:
			r.AddFault(n, "command must be a program's name or its absolute path, not %q", strictyaml.Clip(v))
		}
	}
}

func (r *reader) readSandbox(n ast.Node, m *manifest, at *deferredNodes) {
	s := &m.Sandbox
	r.Fields(n, "sandboxProfile", strictyaml.Fields{
		"fs":       func(n ast.Node) { r.readFSAccess(n, s, at) },
		"network":  func(n ast.Node) { r.readNetwork(n, s, at) },
		"limits":   func(n ast.Node) { r.readLimits(n, s) },
		"env":      r.envField(m),
		"cache":    r.BoolField("cache", &s.Work.Cache),
		"proc":     r.BoolField("proc", &s.Proc),
		"syscalls": r.cannotList("syscalls must be empty: each system call that a jail denies is a way out of it; or run the tool in a microvm"),
	})
}

func (r *reader) readFSAccess(n ast.Node, s *sandbox, at *deferredNodes) {
	r.Fields(n, "fs", strictyaml.Fields{
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
		for _, item := range r.Items(n, what) {
			v, ok := r.ReadText(item, what)
			if !ok {
				continue
			}
			if !path.IsAbs(v) || path.Clean(v) != v || v == "/" {
				r.AddFault(item, "%s must be absolute paths without .. and not /, not %q", what, strictyaml.Clip(v))
				continue
			}
			*p = append(*p, v)
		}
	}
}

func (r *reader) readNetwork(n ast.Node, s *sandbox, at *deferredNodes) {
	r.Fields(n, "network", strictyaml.Fields{
		"egress":   func(n ast.Node) { at.egress = n },
		"api":      r.apiField(s, at),
		"loopback": r.BoolField("loopback", &s.Work.Loopback),
	})
}

// Upper limits of a manifest, above the capacity of any host.
const (
	maxMemory = 1 << 20 // MiB
	maxTasks  = 1 << 16
)

func (r *reader) readLimits(n ast.Node, s *sandbox) {
	r.Fields(n, "limits", strictyaml.Fields{
		"memoryMiB": r.countField("memoryMiB", maxMemory, &s.Memory),
		"tasks":     r.countField("tasks", maxTasks, &s.Tasks),
	})
}

// envField reads constant variables into the environment of the manifest.
func (r *reader) envField(m *manifest) func(ast.Node) { return r.variablesField(m.Env) }

func (r *reader) variablesField(env map[string]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, kv := range r.Pairs(n, "env") {
			name := strictyaml.KeyText(kv)
			v, ok := r.ReadText(kv.Value, "env")
			_, twice := env[name]
			switch {
			case !ok:
			case !envName().MatchString(name):
				r.AddFault(kv.Key, "env needs names like [A-Za-z_][A-Za-z0-9_]*, not %q", strictyaml.Clip(name))
			case twice:
				r.AddFault(kv.Key, "env sets %s twice", name)
			case strings.Contains(v, "{{"):
				r.AddFault(kv.Value, "this version cannot render inputs into env: %s", name)
			case strings.ContainsAny(v, "\n\t"):
				r.AddFault(kv.Value, "env %s contains a tab or a newline", name)
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
		r.AddFault(n, "%s is set by the jail itself", name)
	case !r.builtin && bailey.Loads(name):
		r.AddFault(n, "%s controls a loader or an interpreter; only built-in packs may set it", name)
	}
}

// readPathAccess reads fs.rw, fs.hide and fs.keep. It runs after the schema, because they refer to inputs.
func (r *reader) readPathAccess(m *manifest, at *deferredNodes, s *schema) {
	s0 := &m.Sandbox
	for n, e := range r.inputPaths(at.write, "rw", m, s) {
		switch name := e.parts[0].input; {
		case !e.isPlaceholder():
			r.AddFault(n, "rw must be only a path input, as \"{{ input.x }}\", not %q", strictyaml.Clip(e.text))
		case slices.Contains(s0.Write, name):
			r.AddFault(n, "rw names input.%s twice", name)
		case m.SideEffect == None || m.SideEffect == ReadOnly:
			r.AddFault(n, "sideEffectClass %s contradicts rw: it only reads", m.SideEffect)
		default:
			s0.Write = append(s0.Write, name)
		}
	}
	for n, e := range r.inputPaths(at.hide, "hide", m, s) {
		p := e.parts
		switch {
		case len(p) != 2 || p[1].input != "" || p[1].text == "/" || path.Clean(p[1].text) != p[1].text ||
			p[1].text[0] != '/':
			r.AddFault(n, "hide must be a path below a path input, as \"{{ input.x }}/name\", not %q",
				strictyaml.Clip(e.text))
		case slices.Contains(s0.Write, p[0].input):
			r.AddFault(n,
				"hide cannot hide files below input.%s: the tool may write there and could create another", p[0].input)
		default:
			s0.Hide = append(s0.Hide, inputSubpath{p[0].input, p[1].text})
		}
	}
	for n, e := range r.inputPaths(at.keep, "keep", m, s) {
		p := e.parts
		switch {
		case len(p) != 2 || p[1].input != "" || p[1].text == "/" || path.Clean(p[1].text) != p[1].text || p[1].text[0] != '/':
			r.AddFault(n, "keep must be a path below a path input, as \"{{ input.x }}/name\", not %q",
				strictyaml.Clip(e.text))
		case !slices.Contains(s0.Write, p[0].input):
			r.AddFault(n, "keep needs inputs in fs.rw: input.%s is not writable", p[0].input)
		default:
			s0.Keep = append(s0.Keep, inputSubpath{p[0].input, p[1].text})
		}
	}
}

// inputPaths yields the templates in a list, which must begin with a path input, in the order of the file.
func (r *reader) inputPaths(n ast.Node, what string, m *manifest,
	s *schema) func(yield func(ast.Node, argTemplate) bool) {
	return func(yield func(ast.Node, argTemplate) bool) {
		if n == nil {
			return
		}
		for _, item := range r.Items(n, what) {
			before := len(r.Faults)
			v, ok := r.ReadText(item, what)
			if !ok {
				continue
			}
			e := r.readTemplate(item, v)
			if len(r.Faults) > before {
				continue
			}
			if len(e.parts) == 0 || e.parts[0].def != nil || e.parts[0].flag != "" ||
				!pathInput(s, m, e.parts[0].input) {
				r.AddFault(item, "%s must be path inputs, as \"{{ input.x }}\", not %q", what, strictyaml.Clip(v))
				continue
			}
			if !yield(item, e) {
				return
			}
		}
	}
}

// pathInput reports whether the gate opens this input for the cage: an input of format path, or the one that
// cwdFromInput names.
func pathInput(s *schema, m *manifest, name string) bool {
	in := s.props[name]
	return in != nil && !(name == StdinInput && s.stdin != "") &&
		(in.Format == "path" || name == m.Backend.CwdFromInput)
}

// libsField reads fs.libs. Files in these directories become code of the tool, so only built-in packs may name them.
func (r *reader) libsField(s *sandbox) func(ast.Node) {
	return func(n ast.Node) {
		r.pathsField("libs", &s.Libs)(n)
		if len(s.Libs) > 0 && !r.builtin {
			r.AddFault(n, "only built-in packs may name directories of libraries: fs.libs")
		}
	}
}

// NoIsolation is the waiver of a capability that runs without a cage.
const NoIsolation = "isolation"

// Uncaged reports whether the tool runs without a cage. Such a tool has all rights of the user of the gateway, whatever
// its class.
func (m *Capability) Uncaged() bool { return m.Isolation == Open }

// Writes reports whether the tool may write to a place of the call.
func (m *Capability) Writes() bool {
	for _, in := range m.PathInputs() {
		if in.Write {
			return true
		}
	}
	return m.Uncaged()
}

// checkUncaged refuses features that conflict with isolation none: those that only a cage provides, and those that would run
// before the call is allowed without one. Egress, API and fs.exec have their own checks.
func (r *reader) checkUncaged(n ast.Node, m *manifest, at *deferredNodes) {
	if m.Isolation != Open {
		return
	}
	s := &m.Sandbox
	for _, f := range []struct {
		what  string
		there bool
	}{
		{"fs", len(s.Read)+len(s.Write)+len(s.Hide)+len(s.Libs)+len(s.Exec) > 0},
		{"limits", s.Memory > 0 || s.Tasks > 0},
		{"proc", s.Proc},
	} {
		if f.there {
			r.AddFault(at.sandbox, "isolation none contradicts %s, which needs a jail", f.what)
		}
	}
	if len(m.Credentials) > 0 {
		r.AddFault(n,
			"isolation none contradicts credentials: without a jail, other programs of its user could read what the tool is lent")
	}
	if at.preview != nil {
		r.AddFault(at.preview,
			"isolation none contradicts preview: it would run without a jail before the approval")
	}
}
