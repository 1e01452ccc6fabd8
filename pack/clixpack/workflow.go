package clixpack

import (
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/strictyaml"
)

// workflow is one file in workflows.
type workflow struct {
	source
	id, name    string
	description ast.Node
	steps       []step
}

// step is one call of a workflow.
type step struct {
	at        ast.Node
	call      string
	input     ast.Node
	onFailure string
}

func (t *translator) readWorkflow(file *strictyaml.File, body ast.Node) {
	w := &workflow{source: source{file, strictyaml.FirstKey(body)}}
	var version string
	seen := file.Fields(body, "a workflow", strictyaml.Fields{
		"name": nameField(file, &w.id), "version": versionField(file, &version),
		"description": func(n ast.Node) { w.description = n },
		"steps": func(n ast.Node) {
			for _, item := range file.Items(n, "steps") {
				w.steps = append(w.steps, readStep(file, item))
			}
		},
	})
	requireKeys(file, body, "a workflow", seen, "name", "steps")
	t.workflows = append(t.workflows, w)
}

func readStep(file *strictyaml.File, n ast.Node) step {
	s := step{at: n, onFailure: "abort"}
	seen := file.Fields(n, "a step", strictyaml.Fields{
		"capability": strictyaml.TextField(file, "capability", &s.call),
		"input":      func(n ast.Node) { s.input = n },
		"onFailure":  choiceField(file, "onFailure", &s.onFailure, "abort", "continue"),
	})
	requireKeys(file, n, "a step", seen, "capability")
	if _, none := s.input.(*ast.NullNode); none {
		s.input = nil
	}
	if s.input != nil {
		file.Pairs(s.input, "the input of a step")
	}
	return s
}

// workflowInputs are the inputs of a workflow: those of its steps that the steps do not set.
type workflowInputs struct {
	schemas  map[string]source
	texts    map[string]string // of the schemas
	required map[string]bool
}

// The orders of the classes, mildest first.
var (
	risks    = []string{"low", "medium", "high", "critical"}
	classes  = []string{"none", "readOnly", "additive", "mutating", "destructive"}
	reverses = []string{"readOnly", "reversible", "externallyReversible", "irreversible"}
)

var spellings = map[string]string{"read_only": "readOnly", "readonly": "readOnly", "write_remote": "mutating",
	"externally_reversible": "externallyReversible"}

// laterWord returns the later one of two words in an order. A word that is in no order is refused elsewhere.
func laterWord(order []string, a, b string) string {
	if full, ok := spellings[b]; ok {
		b = full
	}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

func (t *translator) writeWorkflow(w *workflow) {
	in := workflowInputs{map[string]source{}, map[string]string{}, map[string]bool{}}
	risk, class, back := risks[0], classes[0], reverses[0]
	t.writeLine(w.source, "  - name: %s", jsonText(w.name))
	if w.description != nil {
		t.copyNode(source{w.file, w.description}, 4, "    description:")
	}
	t.writeLine(w.source, "    backend:")
	t.writeLine(w.source, "      type: workflow")
	t.writeLine(w.source, "      steps:")
	for i, s := range w.steps {
		c := t.names[s.call]
		if c == nil || s.call == "" {
			w.file.AddFault(s.at, "step %d calls %q, which is not in capabilities; add its file, or remove the step", i+1,
				strictyaml.Clip(s.call))
			continue
		}
		risk, class, back = laterWord(risks, risk, c.risk), laterWord(classes, class, c.class), laterWord(reverses, back, c.back)
		t.writeStep(w, i, s, c, &in)
	}
	t.writeLine(w.source, "    risk: %s", risk)
	t.writeLine(w.source, "    sideEffectClass: %s", class)
	t.writeLine(w.source, "    reversibility: %s", back)
	t.writeInputs(w, in)
}

func (t *translator) writeStep(w *workflow, i int, s step, c *capability, in *workflowInputs) {
	at := source{w.file, s.at}
	t.writeLine(at, "        - id: step-%d", i+1)
	t.writeLine(at, "          call: %s", jsonText(t.name+"."+c.name))
	if s.onFailure == "continue" {
		t.writeLine(at, "          onFailure: continue")
	}
	properties, _ := strictyaml.PairsOf(lookUp(c.schema, "properties"))
	known := map[string]bool{}
	for i, kv := range properties {
		if i == 0 {
			t.writeLine(at, "          input:")
		}
		name, _ := strictyaml.TextOf(kv.Key)
		known[name] = true
		if value := lookUp(s.input, name); value != nil {
			t.writeConstant(source{w.file, value}, name)
			continue
		}
		t.writeLine(at, "            %s: %s", jsonText(name), jsonText("{{ input."+name+" }}"))
		in.addInput(w, s.at, name, c, kv.Value)
	}
	pairs, _ := strictyaml.PairsOf(s.input)
	for _, kv := range pairs {
		if name, _ := strictyaml.TextOf(kv.Key); !known[name] {
			w.file.AddFault(kv.Key, "%s has no input %q; remove it", c.id, strictyaml.Clip(name))
		}
	}
}

// writeConstant writes an input that a step sets. In the layout it is no template.
func (t *translator) writeConstant(at source, name string) {
	first := len(t.lines)
	t.copyNode(at, 12, "            "+jsonText(name)+":")
	if strings.Contains(strings.Join(t.lines[first:], "\n"), "{{") {
		at.file.AddFault(at.node, "the input of a step cannot contain {{; remove it, and give the input to the workflow")
	}
}

// addInput adds an input of a step to those of the workflow.
func (in *workflowInputs) addInput(w *workflow, at ast.Node, name string, c *capability, schema ast.Node) {
	var e emitter
	e.copyNode(source{c.file, schema}, 0, "")
	text := string(e.joinLines())
	if other, ok := in.texts[name]; ok && other != text {
		w.file.AddFault(at, "the steps declare input %q differently; set it in one of them", strictyaml.Clip(name))
	}
	in.schemas[name], in.texts[name] = source{c.file, schema}, text
	required, _ := lookUp(c.schema, "required").(*ast.SequenceNode)
	if required != nil && slices.ContainsFunc(required.Values, func(n ast.Node) bool {
		text, _ := strictyaml.TextOf(n)
		return text == name
	}) {
		in.required[name] = true
	}
}

func (t *translator) writeInputs(w *workflow, in workflowInputs) {
	t.writeLine(w.source, "    inputSchema:")
	t.writeLine(w.source, "      type: object")
	names := slices.Sorted(maps.Keys(in.required))
	if len(names) > 0 {
		t.writeLine(w.source, "      required:")
	}
	for _, name := range names {
		t.writeLine(w.source, "        - %s", jsonText(name))
	}
	if len(in.schemas) == 0 {
		t.writeLine(w.source, "      properties: {}")
		return
	}
	t.writeLine(w.source, "      properties:")
	for _, name := range slices.Sorted(maps.Keys(in.schemas)) {
		t.copyNode(in.schemas[name], 8, "        "+jsonText(name)+":")
	}
}
