package strictyaml

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"bailey"
)

// Format describes a kind of file.
type Format struct {
	Limits
	Aliases map[string]string // other spellings of keys, see [File.Fields]
	// Text and Constant return the fault of a string in a field and in a value, or "". nil: every string is accepted.
	Text, Constant func(text string) string
	// Number returns the fault of a number, or "". nil: every number of JSON is accepted.
	Number func(digits string) string
	// String names the type of a string in a fault. "": a string.
	String string

	// Messages with indexed verbs. [1] is the mapping. In Unknown and Twice, [2] is the key; in Unknown, [3] are the
	// known keys, and [4] is a suggestion or nothing. In NotMapping, [2] is the node. In Documents, [1] is the number of
	// documents.
	Unknown, Twice, NotMapping, Documents string
}

// File is a file while it is read. A reader that finds a fault records it and goes on with the zero value.
type File struct {
	*Format
	Name   string
	Hint   string
	Faults []Fault // in the order in which they were found
}

// Body returns the only document of a text, or nil if there is none or a fault.
func (f *File) Body(text []byte) ast.Node {
	docs, fault := f.Parse(text)
	switch {
	case fault != nil:
		f.Faults = append(f.Faults, *fault)
	case len(docs) > 1:
		f.AddFault(nil, f.Documents, len(docs))
	case len(docs) == 1:
		if _, none := docs[0].Body.(*ast.CommentGroupNode); !none {
			return docs[0].Body
		}
	}
	return nil
}

// Err returns the fault that was found first as an Invalid error, or nil.
func (f *File) Err() error {
	if len(f.Faults) == 0 {
		return nil
	}
	return bailey.Invalid.New(f.Name+f.Faults[0].String(), f.Hint)
}

// AddFault records a fault at a node, or of the whole file if the node is nil.
func (f *File) AddFault(n ast.Node, format string, args ...any) {
	var at *token.Token
	if n != nil {
		at = n.GetToken()
	}
	f.Faults = append(f.Faults, *faultAt(at, strings.TrimSpace(fmt.Sprintf(format, args...))))
}

// AddTypeFault records that a node has the wrong type.
func (f *File) AddTypeFault(n ast.Node, what, want string) {
	f.AddFault(n, "%s must be %s, not %s", what, want, describeNode(n))
}

func describeNode(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.BoolNode:
		return "a boolean (quote it to make it a string)"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number (quote it to make it a string)"
	case *ast.StringNode:
		return fmt.Sprintf("%q", Clip(n.Value))
	}
	return "a text"
}

// Fields maps each key of a mapping to the function that reads its value.
type Fields map[string]func(ast.Node)

// Fields reads the mapping n and returns the keys that exist. An unknown or repeated key is a fault.
func (f *File) Fields(n ast.Node, what string, known Fields) map[string]bool {
	seen := map[string]bool{}
	for _, kv := range f.Pairs(n, what) {
		key := KeyText(kv)
		if full, ok := f.Aliases[key]; ok {
			key = full
		}
		read, ok := known[key]
		switch {
		case !ok:
			names := slices.Sorted(maps.Keys(known))
			f.AddFault(kv.Key, f.Unknown, what, Clip(cmp.Or(key, kv.Key.GetToken().Value)),
				strings.Join(names, ", "), DidYouMean(key, names))
		case seen[key]:
			f.AddFault(kv.Key, f.Twice, what, key)
		default:
			seen[key] = true
			read(kv.Value)
		}
	}
	return seen
}

// KeyText returns the key of an entry, or "" if it is no string.
func KeyText(kv *ast.MappingValueNode) string {
	if key, ok := kv.Key.(*ast.StringNode); ok {
		return key.Value
	}
	return ""
}

// Pairs returns the entries of a mapping. Another node is a fault.
func (f *File) Pairs(n ast.Node, what string) []*ast.MappingValueNode {
	pairs, ok := PairsOf(n)
	if !ok {
		f.AddFault(n, f.NotMapping, what, describeNode(n))
	}
	return pairs
}

// PairsOf returns the entries of a mapping, and whether the node is one.
func PairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// FirstKey returns the first key of a mapping, which is where a person looks for it, or n itself. The token of a mapping
// is the colon after that key.
func FirstKey(n ast.Node) ast.Node {
	if pairs, _ := PairsOf(n); len(pairs) > 0 {
		return pairs[0].Key
	}
	return n
}

// Items returns the elements of a list. Another node is a fault.
func (f *File) Items(n ast.Node, what string) []ast.Node {
	if n, ok := n.(*ast.SequenceNode); ok {
		return n.Values
	}
	f.AddTypeFault(n, what, "a list")
	return nil
}

// TextOf returns the value of a string.
func TextOf(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// ReadText returns the value of a string, and whether it has no fault.
func (f *File) ReadText(n ast.Node, what string) (string, bool) {
	v, ok := TextOf(n)
	if !ok {
		f.AddTypeFault(n, what, cmp.Or(f.String, "a string"))
		return "", false
	}
	return v, f.checkText(n, v, f.Text)
}

func (f *File) checkText(n ast.Node, v string, fault func(string) string) bool {
	if fault == nil || fault(v) == "" {
		return true
	}
	f.AddFault(n, "%s", fault(v))
	return false
}

// TextField reads a string.
func TextField[T ~string](f *File, what string, into *T) func(ast.Node) {
	return func(n ast.Node) {
		v, _ := f.ReadText(n, what)
		*into = T(v)
	}
}

// TextsField reads a list of strings. An empty list is not nil.
func TextsField[T ~string](f *File, what string, into *[]T) func(ast.Node) {
	return func(n ast.Node) {
		*into = []T{}
		for _, item := range f.Items(n, what) {
			v, _ := f.ReadText(item, what)
			*into = append(*into, T(v))
		}
	}
}

// BoolField reads true or false.
func (f *File) BoolField(what string, into *bool) func(ast.Node) {
	return func(n ast.Node) {
		if b, ok := n.(*ast.BoolNode); ok {
			*into = b.Value
			return
		}
		f.AddTypeFault(n, what, "true or false")
	}
}

// Object converts a mapping with any keys to the value that JSON would give.
func (f *File) Object(n ast.Node, what string) map[string]any {
	pairs := f.Pairs(n, what)
	object := make(map[string]any, len(pairs))
	for _, kv := range pairs {
		name, ok := TextOf(kv.Key)
		if !ok {
			f.AddFault(kv.Key, "%q is invalid: quote it", Clip(kv.Key.GetToken().Value))
			continue
		}
		if _, twice := object[name]; twice {
			f.AddFault(kv.Key, f.Twice, what, Clip(name))
			continue
		}
		f.checkText(kv.Key, name, f.Constant)
		object[name] = f.Value(kv.Value, what)
	}
	return object
}

// Value converts a node to the value that JSON would give. Numbers keep their digits, as [json.Number].
func (f *File) Value(n ast.Node, what string) any {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return f.Object(n, what)
	case *ast.SequenceNode:
		list := make([]any, 0, len(n.Values))
		for _, item := range n.Values {
			list = append(list, f.Value(item, what))
		}
		return list
	case *ast.BoolNode:
		return n.Value
	case *ast.NullNode:
		return nil
	case *ast.IntegerNode, *ast.FloatNode:
		digits := n.GetToken().Value
		if bad := f.numberFault(digits); bad != "" {
			f.AddFault(n, "%s", bad)
		}
		return json.Number(digits)
	}
	v, ok := TextOf(n)
	if !ok {
		f.AddFault(n, "is not a valid input")
	}
	f.checkText(n, v, f.Constant)
	return v
}

func (f *File) numberFault(digits string) string {
	if f.Number != nil {
		return f.Number(digits)
	}
	if !json.Valid([]byte(digits)) {
		return Clip(digits) + " is not a JSON number"
	}
	return ""
}
