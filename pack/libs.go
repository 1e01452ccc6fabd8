package pack

import "github.com/goccy/go-yaml/ast"

// libs reads fs.libs. Files in these directories become code of the tool, so only built-in packs may name them.
func (r *reader) libs(s *sandbox) func(ast.Node) {
	return func(n ast.Node) {
		r.paths("libs", &s.Libs)(n)
		if len(s.Libs) > 0 && !r.builtin {
			r.fault(tokenOf(n), "only built-in packs name directories of libraries: fs.libs")
		}
	}
}
