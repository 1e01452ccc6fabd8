package pack

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

// argTemplate is one element of args as written. Its parts render to one element of argv.
type argTemplate struct {
	parts []templatePart
	text  string // as written
}

// templatePart is literal text, or a placeholder if input is set.
type templatePart struct {
	text  string
	input string
	def   *string // the text if the input has no value
	flag  string  // the word for true
	after string  // the word that comes before the value
	each  string  // the text before every item of a list
	shown bool    // placeholder for the value from a preview, only in bind
}

// isPlaceholder reports whether the element consists of one placeholder only.
func (e argTemplate) isPlaceholder() bool { return len(e.parts) == 1 && e.parts[0].input != "" }

func (r *reader) readTemplates(n ast.Node, args []string, s *schema) []argTemplate {
	var elements []argTemplate
	var nodes []ast.Node
	if seq, ok := n.(*ast.SequenceNode); ok {
		nodes = seq.Values
	}
	for i, text := range args {
		before := len(r.Faults)
		e := r.readTemplate(nodes[i], text)
		if len(r.Faults) > before {
			continue
		}
		for j, p := range e.parts {
			r.checkPlaceholder(nodes[i], e, j, p, s)
		}
		elements = append(elements, e)
	}
	return elements
}

func (r *reader) readTemplate(n ast.Node, text string) argTemplate {
	e := argTemplate{text: text}
	if what := describeHiddenChar(text, false); what != "" {
		r.AddFault(n, "an argument contains %s", what)
	}
	for rest := text; rest != ""; {
		before, after, open := strings.Cut(rest, "{{")
		if strings.Contains(before, "}}") {
			r.AddFault(n, "%q closes a placeholder that is not open", strictyaml.Clip(text))
			return e
		}
		if before != "" {
			e.parts = append(e.parts, templatePart{text: before})
		}
		if !open {
			break
		}
		p, tail, ok := parsePlaceholder(after)
		if !ok {
			r.AddFault(n,
				"%q is not a placeholder; write {{ input.x }}, {{ input.x | default: \"y\" }}, {{ input.x | flag: \"--y\" }}, {{ input.x | after: \"--\" }} or {{ input.x | each: \"--y=\" }}", strictyaml.Clip(text))
			return e
		}
		e.parts, rest = append(e.parts, p), tail
	}
	return e
}

// parsePlaceholder parses the text after "{{" up to and including "}}" and returns the rest.
func parsePlaceholder(s string) (p templatePart, rest string, ok bool) {
	s, ok = strings.CutPrefix(strings.TrimLeft(s, " "), "input.")
	if !ok {
		return p, s, false
	}
	end := strings.IndexAny(s, " |}")
	if end < 0 || !inputName().MatchString(s[:end]) {
		return p, s, false
	}
	p.input, s = s[:end], strings.TrimLeft(s[end:], " ")
	if after, filtered := strings.CutPrefix(s, "|"); filtered {
		if s, ok = p.parseFilter(strings.TrimLeft(after, " ")); !ok {
			return p, s, false
		}
	}
	rest, ok = strings.CutPrefix(strings.TrimLeft(s, " "), "}}")
	return p, rest, ok
}

// parseFilter parses `default: "y"` or `flag: "--y"`.
func (p *templatePart) parseFilter(s string) (rest string, ok bool) {
	name, after, ok := strings.Cut(s, ":")
	if !ok {
		return s, false
	}
	after = strings.TrimLeft(after, " ")
	quoted, err := strconv.QuotedPrefix(after)
	if err != nil || quoted[0] == '\'' {
		return s, false
	}
	word, err := strconv.Unquote(quoted)
	if err != nil || describeHiddenChar(word, false) != "" {
		return s, false
	}
	switch strings.TrimRight(name, " ") {
	case "default":
		p.def = &word
	case "flag":
		p.flag = word
		ok = word != ""
	case "after":
		p.after = word
		ok = word != ""
	case "each":
		p.each = word
		ok = word != ""
	default:
		return s, false
	}
	return after[len(quoted):], ok
}

// checkPlaceholder refuses a placeholder that could never render, or whose value could choose an option.
func (r *reader) checkPlaceholder(n ast.Node, e argTemplate, at int, p templatePart, s *schema) {
	if p.input == "" {
		return
	}
	in, ok := s.props[p.input]
	switch {
	case !ok:
		r.AddFault(n, "input.%s is not in the inputSchema%s", strictyaml.Clip(p.input), strictyaml.DidYouMean(p.input, s.names))
	case s.stdin != "" && p.input == StdinInput:
		r.AddFault(n, "input.stdin is read by the tool, and cannot be an argument")
	case in.hasOnlyTypes("object"):
		r.AddFault(n, "input.%s is an object and cannot be an argument", p.input)
	case !e.isPlaceholder() && len(in.Type) > 0 && in.hasType("array"):
		r.AddFault(n, "input.%s may be a list, which needs a separate argument", p.input)
	case p.after != "" && !e.isPlaceholder():
		r.AddFault(n, "after needs a separate argument")
	case p.each != "" && (!e.isPlaceholder() || !in.hasOnlyTypes("array")):
		r.AddFault(n, "each needs a list and a separate argument")
	case p.flag != "" && (!e.isPlaceholder() || !in.hasOnlyTypes("boolean", "null")):
		r.AddFault(n, "flag needs a boolean input and a separate argument")
	case at > 0 && isOnlyDashes(e.parts[:at]) && !in.hasOnlyTypes("integer"):
		r.AddFault(n, "input.%s would choose the option in %q; only an integer is allowed there", p.input,
			strictyaml.Clip(e.text))
	}
}

// isOnlyDashes reports whether the parts are only literal dashes, as in "-{{ input.n }}".
func isOnlyDashes(parts []templatePart) bool {
	for _, p := range parts {
		if p.input != "" || strings.Trim(p.text, "-") != "" {
			return false
		}
	}
	return true
}

// checkCwdInput checks the input that cwdFromInput names.
func (r *reader) checkCwdInput(n ast.Node, name string, s *schema) {
	if name == "" {
		return
	}
	if in, ok := s.props[name]; !ok || !in.hasOnlyTypes("string") {
		r.AddFault(n, "cwdFromInput needs an input of type string, but %q is not%s", name,
			strictyaml.DidYouMean(name, s.names))
	}
}

// Render returns the argv for a checked input, without the program name. Paths contains the canonical path of each path
// input that has a value, which replaces the value. An element whose placeholder has no value is dropped. A value that
// could be interpreted as an option is Invalid.
func (m *Capability) Render(input map[string]any, paths map[string]string) (args []string, err error) {
	if args, err = m.renderArgs(m.args, input, paths); err != nil {
		return nil, err
	}
	return args, m.checkDeniedArgs(args)
}

func (m *Capability) renderArgs(elements []argTemplate, input map[string]any,
	paths map[string]string) (args []string, err error) {
	w := &argvWriter{m: m, input: input, paths: paths}
	for _, e := range elements {
		if err := w.writeElement(e); err != nil {
			return nil, err
		}
	}
	if w.total > maxTotal {
		return nil, m.invalidError("the arguments have %d bytes in total, more than %d", w.total, maxTotal)
	}
	return w.args, nil
}

func (m *Capability) invalidError(format string, args ...any) error {
	return bailey.Invalid.New(fmt.Sprintf(format, args...), m.inputsHint(""))
}

// argvWriter renders one argv.
type argvWriter struct {
	m        *Capability
	input    map[string]any
	paths    map[string]string
	args     []string
	operands bool // a literal -- was rendered, so later arguments cannot be options
	total    int
}

func (w *argvWriter) writeElement(e argTemplate) error {
	if len(e.parts) == 1 && e.parts[0].input == "" || len(e.parts) == 0 {
		w.operands = w.operands || e.text == "--"
		return w.addArg(e.text, "")
	}
	if e.isPlaceholder() {
		return w.writePlaceholder(e.parts[0])
	}
	if arg, ok := w.gitPath(e.parts); ok {
		return w.addArg(arg, "")
	}
	var b strings.Builder
	lead := "" // the input whose value begins the argument
	for i, p := range e.parts {
		if p.input == "" {
			b.WriteString(p.text)
			continue
		}
		if b.Len() == 0 && (i == 0 || lead != "") {
			lead = p.input
		}
		v, ok, err := w.renderValue(p)
		if err != nil || !ok {
			return err
		}
		b.WriteString(v)
	}
	return w.addArg(b.String(), lead)
}

// writePlaceholder renders an element that is one placeholder: no argument, one, or one for each item.
func (w *argvWriter) writePlaceholder(p templatePart) error {
	if p.flag != "" {
		if on, _ := w.input[p.input].(bool); on {
			return w.addArg(p.flag, "")
		}
		return nil
	}
	if p.after != "" && w.input[p.input] != nil && (p.after != "--" || !w.operands) {
		w.operands = w.operands || p.after == "--"
		if err := w.addArg(p.after, ""); err != nil {
			return err
		}
	}
	if items, ok := w.input[p.input].([]any); ok {
		return w.writeItems(p, items)
	}
	v, ok, err := w.renderValue(p)
	if err != nil || !ok {
		return err
	}
	if _, given := w.input[p.input]; !given {
		return w.addArg(v, "") // text of the manifest author
	}
	return w.addArg(v, p.input)
}

// writeItems renders one argument for each item of a list, and all words of an option with two values.
func (w *argvWriter) writeItems(p templatePart, items []any) error {
	table := w.m.tableOf(p.input)
	for i, item := range items {
		v, err := w.renderScalar(fmt.Sprintf("%s/%d", p.input, i), item)
		if err != nil {
			return err
		}
		words, of := []string{v}, p.input
		switch {
		case p.each != "":
			words[0], of = p.each+v, ""
		case table != nil:
			words = table.splitItem(v)
		}
		for _, word := range words {
			if err := w.addArg(word, of); err != nil {
				return err
			}
		}
	}
	return nil
}

// tableOf returns the option table of the items of an input, or nil.
func (m *Capability) tableOf(input string) *optionTable {
	if r := m.schema.props[input]; r != nil && r.Items != nil {
		return r.Items.followRef().options
	}
	return nil
}

// renderValue returns the rendered value of p. ok is false if it has no value.
func (w *argvWriter) renderValue(p templatePart) (v string, ok bool, err error) {
	raw, given := w.input[p.input]
	if !given || raw == nil {
		if p.def == nil {
			return "", false, nil
		}
		return *p.def, true, nil
	}
	if w.m.isPath(p.input) {
		path, ok := w.paths[p.input]
		if !ok || path == "" {
			return "", false, bailey.Internal.Errorf("", "input /%s: its path was never opened", p.input)
		}
		return path, true, nil
	}
	v, err = w.renderScalar(p.input, raw)
	return v, true, err
}

func (m *Capability) isPath(name string) bool {
	in := m.schema.props[name]
	return name == m.spec.Backend.CwdFromInput || in != nil && in.Format == "path"
}

// mayBeOption reports whether the manifest allows values of the input to be options.
func (m *Capability) mayBeOption(name string) bool {
	r := m.schema.props[name]
	if r != nil && r.Items != nil {
		r = r.Items
	}
	return r != nil && (r.options != nil || slices.Contains(r.Bailey.Allow, "option"))
}

func (w *argvWriter) renderScalar(name string, v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return fmt.Sprint(v), nil
	case json.Number:
		n, err := normalizeNumber(v)
		if err != nil {
			return "", w.m.invalidError("input /%s: %s is not a number within range", safeText(name),
				safeText(w.m.redactText(v.String())))
		}
		return n.String(), nil
	}
	return "", w.m.invalidError("input /%s: %s cannot be an argument", safeText(name), briefValue(v))
}

// addArg appends one argument. Lead is the input whose value begins it, or "" if the beginning is literal.
func (w *argvWriter) addArg(arg, lead string) error {
	if lead != "" && !w.operands && strings.HasPrefix(arg, "-") && !w.m.mayBeOption(lead) {
		return w.m.invalidError("input /%s: \"%s\" would become an option of %s", lead, safeText(w.m.redactText(arg)),
			w.m.Command)
	}
	if len(arg) > maxArg {
		return w.m.invalidError("an argument has %d bytes, more than %d", len(arg), maxArg)
	}
	// Check refuses these values. This second check ensures that no value can bypass it.
	if what := describeHiddenChar(arg, true); what != "" {
		return w.m.invalidError("an argument contains %s", what)
	}
	w.total += len(arg)
	w.args = append(w.args, arg)
	return nil
}
