package policy

import (
	"github.com/goccy/go-yaml/ast"

	"bailey/internal/strictyaml"
)

const maxSheet = 1 << 20 // bytes of a file of rule tests or budgets

// sheetFormat is the format of files of rule tests and of budgets.
var sheetFormat = strictyaml.Format{
	Limits: strictyaml.Limits{Bytes: maxSheet, Flow: 16, Column: 64, Line: func(line string) string {
		_, bad := checkCharacters([]byte(line))
		return bad
	}},
	Text: func(text string) string {
		if ReplaceHidden(text) != text {
			return "wants one line of visible text"
		}
		return ""
	},
	Unknown: "%[2]q is no key of %[1]s; there are %[3]s", Twice: "%[2]s stands here twice", String: "text",
	NotMapping: "%[1]s wants keys and values", Documents: "holds %d YAML documents, it wants one",
}

// sheet is a file of rule tests or budgets while it is read.
type sheet struct{ *strictyaml.File }

// openSheet returns the file and its content, which is nil if the file is empty or has a fault.
func openSheet(src Source) (sheet, ast.Node) {
	s := sheet{&strictyaml.File{Format: &sheetFormat, Name: src.Name,
		Hint: "correct it; until the file reads, nothing in it counts"}}
	return s, s.Body(src.Text)
}

// textField reads a word or a line.
func textField[T ~string](s sheet, into *T) func(ast.Node) {
	return strictyaml.TextField(s.File, "", into)
}

// textListField reads a list of words. An empty list is not nil.
func textListField[T ~string](s sheet, into *[]T) func(ast.Node) {
	return strictyaml.TextsField(s.File, "", into)
}
