package clixpack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
	"bailey/pack"
)

// emitter writes the manifest. It remembers for each line the node of the layout that it comes from, so that a fault of
// the manifest can be reported where its author can correct it.
type emitter struct {
	lines []string
	from  []source
}

// writeLine writes a line that comes from a node.
func (e *emitter) writeLine(at source, format string, args ...any) {
	e.lines, e.from = append(e.lines, fmt.Sprintf(format, args...)), append(e.from, at)
}

func (e *emitter) joinLines() []byte { return []byte(strings.Join(e.lines, "\n") + "\n") }

// copyNode writes a value after a prefix, which ends with a colon or a dash at that indent.
func (e *emitter) copyNode(at source, indent int, prefix string) {
	pad := strings.Repeat(" ", indent+2)
	switch n := at.node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		pairs := at.file.Pairs(n, "a mapping")
		if len(pairs) == 0 {
			e.writeLine(at, "%s {}", prefix)
			return
		}
		e.writeLine(at, "%s", prefix)
		for _, kv := range pairs {
			key, ok := strictyaml.TextOf(kv.Key)
			if !ok {
				at.file.AddFault(kv.Key, "a key must be a string; quote it")
			}
			e.copyNode(source{at.file, kv.Value}, indent+2, pad+jsonText(key)+":")
		}
	case *ast.SequenceNode:
		if len(n.Values) == 0 {
			e.writeLine(at, "%s []", prefix)
			return
		}
		e.writeLine(at, "%s", prefix)
		for _, item := range n.Values {
			e.copyNode(source{at.file, item}, indent+2, pad+"-")
		}
	default:
		e.writeLine(at, "%s %s", prefix, scalarText(at))
	}
}

// scalarText returns a scalar as it is written in JSON.
func scalarText(at source) string {
	switch n := at.node.(type) {
	case *ast.BoolNode:
		return strconv.FormatBool(n.Value)
	case *ast.NullNode:
		return "null"
	case *ast.IntegerNode, *ast.FloatNode:
		if digits := n.GetToken().Value; json.Valid([]byte(digits)) {
			return digits
		}
		at.file.AddFault(n, "%s is not a number of JSON", strictyaml.Clip(n.GetToken().Value))
		return "0"
	}
	text, ok := strictyaml.TextOf(at.node)
	if !ok {
		at.file.AddFault(at.node, "this is not a value of JSON")
	}
	return jsonText(text)
}

// jsonText quotes a string so that YAML reads it as JSON does.
func jsonText(text string) string {
	var b bytes.Buffer
	w := json.NewEncoder(&b)
	w.SetEscapeHTML(false)
	if err := w.Encode(text); err != nil { // a string can always be encoded
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

var placeForm = lazyRegexp(`^` + regexp.QuoteMeta(pack.ManifestName) + `:([0-9]+):[0-9]+: `)

// locateFaults replaces the lines of the manifest in an error with those of the files that they come from.
func (e *emitter) locateFaults(err error) error {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		found := placeForm().FindStringSubmatch(line)
		if found == nil {
			continue
		}
		n, bad := strconv.Atoi(found[1])
		if bad != nil || n < 1 || n > len(e.from) || e.from[n-1].file == nil {
			continue
		}
		at := e.from[n-1]
		fault := strictyaml.Fault{Text: line[len(found[0]):]}
		if at.node != nil && at.node.GetToken() != nil && at.node.GetToken().Position != nil {
			p := at.node.GetToken().Position
			fault.Line, fault.Column = p.Line, p.Column
		}
		lines[i] = at.file.Name + fault.String()
	}
	return bailey.Invalid.New(strings.Join(lines, "\n"), cure)
}
