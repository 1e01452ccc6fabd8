package pack

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"bailey"
)

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
		return nil, m.invalidError("the arguments have %d bytes together, more than %d", w.total, maxTotal)
	}
	return w.args, nil
}

func (m *Capability) invalidError(format string, args ...any) error {
	return bailey.Invalid.New(fmt.Sprintf(format, args...),
		fmt.Sprintf("bailey capabilities show %s lists the inputs and their types", m.ID))
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
	if items, ok := w.input[p.input].([]any); ok {
		for i, item := range items {
			v, err := w.renderScalar(fmt.Sprintf("%s/%d", p.input, i), item)
			if err == nil {
				err = w.addArg(v, p.input)
			}
			if err != nil {
				return err
			}
		}
		return nil
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
	return r != nil && slices.Contains(r.Bailey.Allow, "option")
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
		return w.m.invalidError("an argument holds %s", what)
	}
	w.total += len(arg)
	w.args = append(w.args, arg)
	return nil
}
