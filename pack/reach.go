package pack

import (
	"path"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// readPathAccess reads fs.rw, fs.hide and fs.keep. It runs after the schema, because they refer to inputs.
func (r *reader) readPathAccess(m *manifest, at *deferredNodes, s *schema) {
	s0 := &m.Sandbox
	for n, e := range r.inputPaths(at.write, "rw", m, s) {
		switch name := e.parts[0].input; {
		case !e.isPlaceholder():
			r.addFault(tokenOf(n), "rw wants a path input alone, as \"{{ input.x }}\", found %q", clipText(e.text))
		case slices.Contains(s0.Write, name):
			r.addFault(tokenOf(n), "rw names input.%s twice", name)
		case m.SideEffect == None || m.SideEffect == ReadOnly:
			r.addFault(tokenOf(n), "sideEffectClass %s contradicts rw: what only looks writes nothing", m.SideEffect)
		default:
			s0.Write = append(s0.Write, name)
		}
	}
	for n, e := range r.inputPaths(at.hide, "hide", m, s) {
		p := e.parts
		switch {
		case len(p) != 2 || p[1].input != "" || p[1].text == "/" || path.Clean(p[1].text) != p[1].text ||
			p[1].text[0] != '/':
			r.addFault(tokenOf(n), "hide wants a path below a path input, as \"{{ input.x }}/name\", found %q",
				clipText(e.text))
		case slices.Contains(s0.Write, p[0].input):
			r.addFault(tokenOf(n),
				"hide cannot hide what is below input.%s: the tool may write there and would make another", p[0].input)
		default:
			s0.Hide = append(s0.Hide, inputSubpath{p[0].input, p[1].text})
		}
	}
	for n, e := range r.inputPaths(at.keep, "keep", m, s) {
		p := e.parts
		switch {
		case len(p) != 2 || p[1].input != "" || p[1].text == "/" || path.Clean(p[1].text) != p[1].text || p[1].text[0] != '/':
			r.addFault(tokenOf(n), "keep wants a path below a path input, as \"{{ input.x }}/name\", found %q",
				clipText(e.text))
		case !slices.Contains(s0.Write, p[0].input):
			r.addFault(tokenOf(n), "keep wants inputs that fs.rw names: input.%s is not written", p[0].input)
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
		for _, item := range r.listItems(n, what) {
			var v string
			before := len(r.faults)
			r.textField(what, &v)(item)
			e := argTemplate{}
			if len(r.faults) == before {
				e = r.readTemplate(item, v)
			}
			if len(r.faults) > before {
				continue
			}
			if len(e.parts) == 0 || e.parts[0].def != nil || e.parts[0].flag != "" ||
				!pathInput(s, m, e.parts[0].input) {
				r.addFault(tokenOf(item), "%s wants path inputs, as \"{{ input.x }}\", found %q", what, clipText(v))
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
