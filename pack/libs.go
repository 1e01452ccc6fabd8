package pack

import "github.com/goccy/go-yaml/ast"

// libs reads fs.libs. What lies there becomes code of the tool, so it is not for everybody to name.
func (r *reader) libs(s *sandbox) func(ast.Node) {
	return func(n ast.Node) {
		r.paths("libs", &s.Libs)(n)
		if len(s.Libs) > 0 && !r.builtin {
			r.fault(tokenOf(n), "only built-in packs name directories of libraries: fs.libs")
		}
	}
}
