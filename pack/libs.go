package pack

import "github.com/goccy/go-yaml/ast"

// libsField reads fs.libs. Files in these directories become code of the tool, so only built-in packs may name them.
func (r *reader) libsField(s *sandbox) func(ast.Node) {
	return func(n ast.Node) {
		r.pathsField("libs", &s.Libs)(n)
		if len(s.Libs) > 0 && !r.builtin {
			r.addFault(tokenOf(n), "only built-in packs name directories of libraries: fs.libs")
		}
	}
}
