package pack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

const (
	maxFile   = 1 << 20 // bytes of a manifest
	maxFaults = 20      // reported at once
)

// manifestFormat is the format of pack.yaml. Its aliases are the key spellings of published manifests. They do not apply
// in a schema and in env, where the author chooses the names.
var manifestFormat = strictyaml.Format{
	Limits: strictyaml.Limits{Bytes: maxFile, Flow: 32, Column: 128, Line: visibleFault},
	Text:   visibleFault, Constant: visibleFault, Number: numberFault, // escapes can add invisible characters
	Unknown: "%[1]s has no key %[2]q%[4]s", Twice: "%[1]s has the key %[2]q twice",
	NotMapping: "%[1]s must be a mapping, not %[2]s", Documents: "must have one YAML document, not %d",
	Aliases: map[string]string{
		"argv_pattern": "argvPattern", "cwd_from_input": "cwdFromInput", "input_schema": "inputSchema",
		"memory_mib":    "memoryMiB",
		"output_schema": "outputSchema", "sandbox_profile": "sandboxProfile", "side_effect_class": "sideEffectClass",
	},
}

func visibleFault(text string) string {
	if what := describeHiddenChar(text, true); what != "" {
		return what + " is not allowed in a manifest"
	}
	return ""
}

func numberFault(digits string) string {
	if _, err := parseNumber(json.Number(digits)); err != nil {
		return fmt.Sprintf("%q is not a JSON number", strictyaml.Clip(digits))
	}
	return ""
}

// reader converts the document into a Pack. It collects all faults instead of stopping at the first one.
type reader struct {
	*strictyaml.File
	builtin bool
}

// toError returns all faults in the order of the file as one Invalid error, or nil if there are none.
func (r *reader) toError() error {
	if len(r.Faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.Faults, func(a, b strictyaml.Fault) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	var lines []string
	for i, f := range r.Faults {
		if i == maxFaults {
			lines = append(lines, fmt.Sprintf("%s: and %d more", r.Name, len(r.Faults)-i))
			break
		}
		lines = append(lines, r.Name+f.String())
	}
	return bailey.Invalid.New(strings.Join(lines, "\n"), "correct the manifest; a pack with a fault is not loaded")
}

// safeText makes untrusted text safe for an error: one line, control characters escaped, shortened.
func safeText(v string) string {
	q := strconv.QuoteToGraphic(strictyaml.Clip(v))
	return q[1 : len(q)-1]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// requireKeys records one fault for all missing keys.
func (r *reader) requireKeys(n ast.Node, what string, seen map[string]bool, wanted ...string) {
	missing := slices.DeleteFunc(wanted, func(key string) bool { return seen[key] })
	if len(missing) > 0 {
		r.AddFault(n, "%s needs %s", what, strings.Join(missing, ", "))
	}
}

// countField reads an integer from 1 to limit into p.
func (r *reader) countField(what string, limit int64, p *int64) func(ast.Node) {
	return func(n ast.Node) {
		i, ok := n.(*ast.IntegerNode)
		if !ok {
			r.AddTypeFault(n, what, "an integer")
			return
		}
		v, err := strconv.ParseInt(i.Token.Value, 10, 64)
		if err != nil || v < 1 || v > limit {
			r.AddFault(i, "%s must be an integer from 1 to %d, not %s", what, limit, strictyaml.Clip(i.Token.Value))
			return
		}
		*p = v
	}
}

// choiceField reads one of the words in known into p. The values of the map are the canonical words.
func choiceField[T ~string](r *reader, what string, known map[string]T, p *T) func(ast.Node) {
	return func(n ast.Node) {
		word, ok := r.ReadText(n, what)
		if !ok {
			return
		}
		v, ok := known[word]
		if !ok {
			names := sortedKeys(known)
			r.AddFault(n, "%s must be one of %s, not %q%s", what, strings.Join(names, ", "), strictyaml.Clip(word),
				strictyaml.DidYouMean(word, names))
			return
		}
		*p = v
	}
}
