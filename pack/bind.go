package pack

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"bailey"
)

// bind has an asked call pass what a preview showed, in place of what the tool would look up once more by itself.
type bind struct {
	Argument string `json:"argument"` // as args has it
	As       string `json:"as"`       // what is passed instead
	Look     int64  `json:"look"`     // whose output is read, from 1
	Pattern  string `json:"pattern"`  // of all of that output
}

// bound is a bind that was read.
type bound struct {
	at      int // of args
	look    int // from 0
	as      element
	pattern *regexp.Regexp
}

const (
	maxBinds   = 4
	maxPattern = 1 << 10
	maxTaken   = 256 // of what is taken from an output, in bytes
)

// shownWord is the placeholder for what was shown.
var shownWord = lazy(`\{\{ *shown *\}\}`)

// Binds reports whether an asked call passes something that its preview showed.
func (m *Capability) Binds() bool { return len(m.binds) > 0 }

// Bind renders the arguments once more, with what the preview showed in its places. Seen returns the output of a command
// line of the preview, and false where that is not whole: then, or where it is not what the manifest says that it
// is, there is no telling what the call would do. No error repeats any of it.
func (m *Capability) Bind(input map[string]any, paths map[string]string, seen func(look int) (output string, whole bool)) ([]string, error) {
	w := &writer{m: m, input: input, paths: paths}
	for i, e := range m.args {
		before := len(w.args)
		operands := w.operands
		if err := w.element(e); err != nil {
			return nil, err
		}
		b := m.bindOf(i)
		if b == nil || len(w.args) == before { // what is not passed at all names nothing
			continue
		}
		output, whole := seen(b.look)
		word, ok := b.find(output)
		if !whole || !ok {
			return nil, m.unshown(b.look)
		}
		for _, a := range w.args[before:] {
			w.total -= len(a)
		}
		w.args, w.operands = w.args[:before], operands
		if err := w.element(b.as.with(word)); err != nil {
			return nil, err
		}
		if len(w.args) != before+1 { // an input that it wants has no value
			return nil, m.unshown(b.look)
		}
	}
	if w.total > maxTotal {
		return nil, m.invalid("the arguments have %d bytes together, more than %d", w.total, maxTotal)
	}
	return w.args, m.denied(w.args)
}

func (m *Capability) unshown(look int) error {
	return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("command line %d of the preview did not show what would be passed", look+1),
		Hint: "see that what the inputs name is there, once"}
}

func (m *Capability) bindOf(at int) *bound {
	if i := slices.IndexFunc(m.binds, func(b bound) bool { return b.at == at }); i >= 0 {
		return &m.binds[i]
	}
	return nil
}

// find takes what the pattern's group matched, which is the content's to forge: what could be an option, or is no word, is
// not taken whatever the pattern lets through.
func (b *bound) find(output string) (word string, ok bool) {
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

// Follows reports whether a command line of the preview speaks of what another one showed, and so runs after that.
func (m *Capability) Follows(look int) bool {
	return slices.ContainsFunc(m.looks[look], func(e element) bool { return e.shows() })
}

// Shown is what the first argument of bind is taken from an output, for the command lines that follow.
func (m *Capability) Shown(seen func(look int) (output string, whole bool)) (string, error) {
	if len(m.binds) == 0 {
		return "", nil
	}
	b := &m.binds[0]
	output, whole := seen(b.look)
	word, ok := b.find(output)
	if !whole || !ok || word == "" {
		return "", m.unshown(b.look)
	}
	return word, nil
}

func (e element) shows() bool {
	return slices.ContainsFunc(e.parts, func(p part) bool { return p.shown })
}

func filled(elements []element, word string) []element {
	out := slices.Clone(elements)
	for i, e := range out {
		if e.shows() {
			out[i] = e.with(word)
		}
	}
	return out
}

// with is e with the word in its place.
func (e element) with(word string) element {
	e.parts = slices.Clone(e.parts)
	for i := range e.parts {
		if e.parts[i].shown {
			e.parts[i] = part{text: word}
		}
	}
	if len(e.parts) == 1 {
		e.text = word
	}
	return e
}

// binds reads the key bind of a preview, whose command lines and inputs are known by now.
func (r *reader) binds(at *token.Token, n ast.Node, m *manifest, s *schema, p *preview) (list []bound) {
	if n == nil {
		for _, line := range p.Looks {
			if slices.ContainsFunc(line, shownWord().MatchString) {
				r.fault(at, "{{ shown }} wants a bind that says what that is")
			}
		}
		return nil
	}
	items := r.items(n, "bind")
	if len(items) == 0 || len(items) > maxBinds {
		r.fault(tokenOf(n), "bind wants one to %d arguments, found %d", maxBinds, len(items))
		return nil
	}
	for _, item := range items {
		before := len(r.faults)
		d := bind{}
		var asAt, patternAt, argumentAt, lookAt ast.Node
		node := func(p *ast.Node, read func(ast.Node)) func(ast.Node) {
			return func(n ast.Node) { *p = n; read(n) }
		}
		seen := r.fields(item, "an argument of bind", map[string]func(ast.Node){
			"argument": node(&argumentAt, r.text("argument", &d.Argument)),
			"as":       node(&asAt, r.text("as", &d.As)),
			"look":     node(&lookAt, r.count("look", maxLooks, &d.Look)),
			"pattern":  node(&patternAt, r.text("pattern", &d.Pattern)),
		})
		r.need(item, "an argument of bind", seen, "argument", "as", "look", "pattern")
		if len(r.faults) > before {
			continue
		}
		b := bound{at: r.argument(argumentAt, d.Argument, m, s), look: int(d.Look) - 1}
		if b.look >= len(p.Looks) {
			r.fault(tokenOf(lookAt), "look %d is none: the preview has %d", d.Look, len(p.Looks))
		}
		if slices.ContainsFunc(list, func(o bound) bool { return o.at == b.at }) {
			r.fault(tokenOf(argumentAt), "bind has the argument %q twice", clip(d.Argument))
		}
		if len(list) == 0 && b.look < len(p.Looks) && slices.ContainsFunc(p.Looks[b.look], shownWord().MatchString) {
			r.fault(tokenOf(lookAt), "look %d would follow itself", d.Look)
		}
		b.pattern = r.whole(patternAt, d.Pattern)
		b.as = r.showing(asAt, d.As, s)
		p.Bind = append(p.Bind, d)
		list = append(list, b)
	}
	return list
}

// argument finds the one element of args that reads so. It renders to one argument or to none.
func (r *reader) argument(n ast.Node, text string, m *manifest, s *schema) int {
	at := slices.Index(m.Backend.Args, text)
	if at < 0 || slices.Contains(m.Backend.Args[at+1:], text) {
		r.fault(tokenOf(n), "argument wants one of the backend's args as it stands there, once; %q is none", clip(text))
		return -1
	}
	for _, p := range (&reader{source: &source{}}).template(n, text).parts { // its faults are told of where args has it
		if in := s.props[p.input]; in != nil && p.flag == "" && (len(in.Type) == 0 || in.has("array")) {
			r.fault(tokenOf(n), "input.%s may be a list, and one argument is bound", clip(p.input))
		}
	}
	return at
}

// whole compiles a pattern that matches an output from end to end or not at all.
func (r *reader) whole(n ast.Node, pattern string) *regexp.Regexp {
	alone, err := regexp.Compile(pattern)
	switch {
	case len(pattern) > maxPattern:
		r.fault(tokenOf(n), "pattern has %d bytes, more than %d", len(pattern), maxPattern)
	case err != nil:
		r.fault(tokenOf(n), "pattern is not a regular expression that RE2 reads: %s", show(err.Error()))
	case alone.NumSubexp() != 1:
		r.fault(tokenOf(n), "pattern wants one group, which is what was shown; found %d", alone.NumSubexp())
	default:
		whole, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
		if err == nil {
			return whole
		}
		r.fault(tokenOf(n), "pattern is not a regular expression that RE2 reads: %s", show(err.Error()))
	}
	return nil
}

// following reads a command line of a preview, which may speak of what another one showed.
func (r *reader) following(n ast.Node, args []string, s *schema) (elements []element) {
	items := r.items(n, "args")
	for i, text := range args {
		if shownWord().MatchString(text) {
			elements = append(elements, r.showing(items[i], text, s))
			continue
		}
		elements = append(elements, r.templates(&ast.SequenceNode{Values: items[i : i+1]}, args[i:i+1], s)...)
	}
	return elements
}

// showing reads a template with {{ shown }} in it, once, where it cannot choose an option.
func (r *reader) showing(n ast.Node, text string, s *schema) (e element) {
	where := shownWord().FindAllStringIndex(text, -1)
	if len(where) != 1 {
		r.fault(tokenOf(n), "an argument has {{ shown }} once, found %d", len(where))
		return e
	}
	before := len(r.faults)
	head, tail := r.template(n, text[:where[0][0]]), r.template(n, text[where[0][1]:])
	if len(r.faults) > before {
		return e
	}
	if len(head.parts) > 0 && dashes(head.parts) {
		r.fault(tokenOf(n), "{{ shown }} would choose the option in %q", clip(text))
	}
	e = element{text: text, parts: slices.Concat(head.parts, []part{{shown: true}}, tail.parts)}
	for i, p := range e.parts {
		r.placeholder(n, e, i, p, s)
	}
	return e
}
