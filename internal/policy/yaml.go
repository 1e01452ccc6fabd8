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
			return "must be one line of visible text"
		}
		return ""
	},
	Unknown: "%[2]q is not a key of %[1]s; use %[3]s", Twice: "%[2]s is here twice", String: "text",
	NotMapping: "%[1]s must have keys and values", Documents: "has %d YAML documents, but must have one",
}

// sheet is a file of rule tests or budgets while it is read.
type sheet struct{ *strictyaml.File }

// openSheet returns the file and its content, which is nil if the file is empty or has a fault.
func openSheet(src Source) (sheet, ast.Node) {
	s := sheet{&strictyaml.File{Format: &sheetFormat, Name: src.Name,
		Hint: "correct it; until then, nothing in the file applies"}}
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
