package pack

import (
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

// bind replaces an argument of an approved call with a value from the preview, so that the tool does not look it up
// again.
type bind struct {
	Argument string `json:"argument"` // as in args
	As       string `json:"as"`       // the replacement
	Look     int64  `json:"look"`     // the command line whose output is read, from 1
	Pattern  string `json:"pattern"`  // must match the whole output
}

// parsedBind is a parsed bind.
type parsedBind struct {
	at      int // index in args
	look    int // from 0
	as      argTemplate
	pattern *regexp.Regexp
}

const (
	maxBinds   = 4
	maxPattern = 1 << 10
	maxTaken   = 256 // limit of a value from an output, in bytes
)

// shownWord is the placeholder for the value from the preview.
var shownWord = lazyRegexp(`\{\{ *shown *\}\}`)

// Binds reports whether a call that needs an approval passes a value from its preview.
func (m *Capability) Binds() bool { return len(m.binds) > 0 }

// Bind renders the arguments with the values from the preview. Seen returns the output of a command line of the
// preview, and false if it is incomplete. If an output is incomplete or does not match its pattern, Bind returns an
// error, because the effect of the call is unknown. Errors never contain parts of the output.
func (m *Capability) Bind(input map[string]any, paths map[string]string,
	seen func(look int) (output string, whole bool)) ([]string, error) {
	w := &argvWriter{m: m, input: input, paths: paths}
	for i, e := range m.args {
		before := len(w.args)
		operands := w.operands
		if err := w.writeElement(e); err != nil {
			return nil, err
		}
		b := m.bindOf(i)
		if b == nil || len(w.args) == before { // an argument that is not passed needs no value
			continue
		}
		output, whole := seen(b.look)
		word, ok := b.findValue(output)
		if !whole || !ok {
			return nil, m.notShownError(b.look)
		}
		for _, a := range w.args[before:] {
			w.total -= len(a)
		}
		w.args, w.operands = w.args[:before], operands
		if err := w.writeElement(b.as.withShown(word)); err != nil {
			return nil, err
		}
		if len(w.args) != before+1 { // an input in the replacement has no value
			return nil, m.notShownError(b.look)
		}
	}
	if w.total > maxTotal {
		return nil, m.invalidError("the arguments have %d bytes in total, more than %d", w.total, maxTotal)
	}
	return w.args, m.checkDeniedArgs(w.args)
}

func (m *Capability) notShownError(look int) error {
	return bailey.Invalid.Errorf("make sure that the input names exactly one existing thing",
		"command line %d of the preview did not show the value to be passed", look+1)
}

func (m *Capability) bindOf(at int) *parsedBind {
	if i := slices.IndexFunc(m.binds, func(b parsedBind) bool { return b.at == at }); i >= 0 {
		return &m.binds[i]
	}
	return nil
}

// findValue returns the text that the group of the pattern matched. The output can be forged, so find refuses text that
// could be an option or is not a printable word, even if the pattern matches it.
func (b *parsedBind) findValue(output string) (word string, ok bool) {
	found := b.pattern.FindStringSubmatch(output)
	if found == nil {
		return "", false
	}
	word = found[1]
	for i := range len(word) {
		if word[i] <= ' ' || word[i] > '~' {
			return "", false
		}
	}
	return word, len(word) <= maxTaken && !strings.HasPrefix(word, "-") && (word != "" || !b.as.parts[0].shown)
}

// Follows reports whether a command line of the preview uses the value of another one, and must run after it.
func (m *Capability) Follows(look int) bool {
	return slices.ContainsFunc(m.looks[look], func(e argTemplate) bool { return e.hasShown() })
}

// Shown returns the value of the first bind entry, for the command lines that follow.
func (m *Capability) Shown(seen func(look int) (output string, whole bool)) (string, error) {
	if len(m.binds) == 0 {
		return "", nil
	}
	b := &m.binds[0]
	output, whole := seen(b.look)
	word, ok := b.findValue(output)
	if !whole || !ok || word == "" {
		return "", m.notShownError(b.look)
	}
	return word, nil
}

func (e argTemplate) hasShown() bool {
	return slices.ContainsFunc(e.parts, func(p templatePart) bool { return p.shown })
}

func fillShown(elements []argTemplate, word string) []argTemplate {
	out := slices.Clone(elements)
	for i, e := range out {
		if e.hasShown() {
			out[i] = e.withShown(word)
		}
	}
	return out
}

// withShown returns e with the word in place of {{ shown }}.
func (e argTemplate) withShown(word string) argTemplate {
	e.parts = slices.Clone(e.parts)
	for i := range e.parts {
		if e.parts[i].shown {
			e.parts[i] = templatePart{text: word}
		}
	}
	if len(e.parts) == 1 {
		e.text = word
	}
	return e
}

// readBinds reads the key bind of a preview. The command lines and inputs must be known.
func (r *reader) readBinds(owner, n ast.Node, m *manifest, s *schema, p *preview) (list []parsedBind) {
	if n == nil {
		for _, line := range p.Looks {
			if slices.ContainsFunc(line, shownWord().MatchString) {
				r.AddFault(owner, "{{ shown }} needs a bind that defines it")
			}
		}
		return nil
	}
	items := r.Items(n, "bind")
	if len(items) == 0 || len(items) > maxBinds {
		r.AddFault(n, "bind must have one to %d arguments, not %d", maxBinds, len(items))
		return nil
	}
	for _, item := range items {
		before := len(r.Faults)
		d := bind{}
		var asAt, patternAt, argumentAt, lookAt ast.Node
		node := func(p *ast.Node, read func(ast.Node)) func(ast.Node) {
			return func(n ast.Node) { *p = n; read(n) }
		}
		seen := r.Fields(item, "an argument of bind", strictyaml.Fields{
			"argument": node(&argumentAt, strictyaml.TextField(r.File, "argument", &d.Argument)),
			"as":       node(&asAt, strictyaml.TextField(r.File, "as", &d.As)),
			"look":     node(&lookAt, r.countField("look", maxLooks, &d.Look)),
			"pattern":  node(&patternAt, strictyaml.TextField(r.File, "pattern", &d.Pattern)),
		})
		r.requireKeys(item, "an argument of bind", seen, "argument", "as", "look", "pattern")
		if len(r.Faults) > before {
			continue
		}
		b := parsedBind{at: r.findArgument(argumentAt, d.Argument, m, s), look: int(d.Look) - 1}
		if b.look >= len(p.Looks) {
			r.AddFault(lookAt, "look %d does not exist: the preview has %d command lines", d.Look, len(p.Looks))
		}
		if slices.ContainsFunc(list, func(o parsedBind) bool { return o.at == b.at }) {
			r.AddFault(argumentAt, "bind has the argument %q twice", strictyaml.Clip(d.Argument))
		}
		if len(list) == 0 && b.look < len(p.Looks) && slices.ContainsFunc(p.Looks[b.look], shownWord().MatchString) {
			r.AddFault(lookAt, "look %d would depend on itself", d.Look)
		}
		b.pattern = r.compileWhole(patternAt, d.Pattern)
		b.as = r.readShownTemplate(asAt, d.As, s)
		p.Bind = append(p.Bind, d)
		list = append(list, b)
	}
	return list
}

// findArgument returns the index of the only element of args with this text. The element renders to at most one argument.
func (r *reader) findArgument(n ast.Node, text string, m *manifest, s *schema) int {
	at := slices.Index(m.Backend.Args, text)
	if at < 0 || slices.Contains(m.Backend.Args[at+1:], text) {
		r.AddFault(n, "argument must be exactly one of the backend's args; %q is not",
			strictyaml.Clip(text))
		return -1
	}
	// faults in args are already reported there
	for _, p := range (&reader{File: &strictyaml.File{Format: &manifestFormat}}).readTemplate(n, text).parts {
		if in := s.props[p.input]; in != nil && p.flag == "" && (len(in.Type) == 0 || in.hasType("array")) {
			r.AddFault(n, "input.%s may be a list, but only one argument can be bound", strictyaml.Clip(p.input))
		}
	}
	return at
}

// compileWhole compiles a pattern that must match an entire output.
func (r *reader) compileWhole(n ast.Node, pattern string) *regexp.Regexp {
	alone, err := regexp.Compile(pattern)
	switch {
	case len(pattern) > maxPattern:
		r.AddFault(n, "pattern has %d bytes, more than %d", len(pattern), maxPattern)
	case err != nil:
		r.AddFault(n, "pattern is not an RE2 regular expression: %s", safeText(err.Error()))
	case alone.NumSubexp() != 1:
		r.AddFault(n, "pattern must have one group, for the shown value, not %d", alone.NumSubexp())
	default:
		whole, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
		if err == nil {
			return whole
		}
		r.AddFault(n, "pattern is not an RE2 regular expression: %s", safeText(err.Error()))
	}
	return nil
}

// readCommandLine reads a command line of a preview, which may contain {{ shown }}.
func (r *reader) readCommandLine(n ast.Node, args []string, s *schema) (elements []argTemplate) {
	items := r.Items(n, "args")
	for i, text := range args {
		if shownWord().MatchString(text) {
			elements = append(elements, r.readShownTemplate(items[i], text, s))
			continue
		}
		elements = append(elements, r.readTemplates(&ast.SequenceNode{Values: items[i : i+1]}, args[i:i+1], s)...)
	}
	return elements
}

// readShownTemplate reads a template that contains {{ shown }} once, at a place where it cannot choose an option.
func (r *reader) readShownTemplate(n ast.Node, text string, s *schema) (e argTemplate) {
	where := shownWord().FindAllStringIndex(text, -1)
	if len(where) != 1 {
		r.AddFault(n, "an argument must have {{ shown }} once, not %d times", len(where))
		return e
	}
	before := len(r.Faults)
	head, tail := r.readTemplate(n, text[:where[0][0]]), r.readTemplate(n, text[where[0][1]:])
	if len(r.Faults) > before {
		return e
	}
	if len(head.parts) > 0 && isOnlyDashes(head.parts) {
		r.AddFault(n, "{{ shown }} would choose the option in %q", strictyaml.Clip(text))
	}
	e = argTemplate{text: text, parts: slices.Concat(head.parts, []templatePart{{shown: true}}, tail.parts)}
	for i, p := range e.parts {
		r.checkPlaceholder(n, e, i, p, s)
	}
	return e
}
