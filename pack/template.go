package pack

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// element is one element of args as written. Its parts render to one element of argv.
type element struct {
	parts []part
	text  string // as written
}

// part is literal text, or a placeholder if input is set.
type part struct {
	text  string
	input string
	def   *string // the text if the input has no value
	flag  string  // the word for true
	shown bool    // placeholder for the value from a preview, only in bind
}

// alone reports whether the element consists of one placeholder only.
func (e element) alone() bool { return len(e.parts) == 1 && e.parts[0].input != "" }

func (r *reader) templates(n ast.Node, args []string, s *schema) []element {
	var elements []element
	var nodes []ast.Node
	if seq, ok := n.(*ast.SequenceNode); ok {
		nodes = seq.Values
	}
	for i, text := range args {
		before := len(r.faults)
		e := r.template(nodes[i], text)
		if len(r.faults) > before {
			continue
		}
		for j, p := range e.parts {
			r.placeholder(nodes[i], e, j, p, s)
		}
		elements = append(elements, e)
	}
	return elements
}

func (r *reader) template(n ast.Node, text string) element {
	e := element{text: text}
	if what := strange(text, false); what != "" {
		r.fault(tokenOf(n), "an argument holds %s", what)
	}
	for rest := text; rest != ""; {
		before, after, open := strings.Cut(rest, "{{")
		if strings.Contains(before, "}}") {
			r.fault(tokenOf(n), "%q closes a placeholder that is not open", clip(text))
			return e
		}
		if before != "" {
			e.parts = append(e.parts, part{text: before})
		}
		if !open {
			break
		}
		p, tail, ok := placeholder(after)
		if !ok {
			r.fault(tokenOf(n), "%q is no placeholder; write {{ input.x }}, {{ input.x | default: \"y\" }} or {{ input.x | flag: \"--y\" }}", clip(text))
			return e
		}
		e.parts, rest = append(e.parts, p), tail
	}
	return e
}

// placeholder parses the text after "{{" up to and including "}}" and returns the rest.
func placeholder(s string) (p part, rest string, ok bool) {
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
		if s, ok = p.filter(strings.TrimLeft(after, " ")); !ok {
			return p, s, false
		}
	}
	rest, ok = strings.CutPrefix(strings.TrimLeft(s, " "), "}}")
	return p, rest, ok
}

// filter parses `default: "y"` or `flag: "--y"`.
func (p *part) filter(s string) (rest string, ok bool) {
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
	if err != nil || strange(word, false) != "" {
		return s, false
	}
	switch strings.TrimRight(name, " ") {
	case "default":
		p.def = &word
	case "flag":
		p.flag = word
		ok = word != ""
	default:
		return s, false
	}
	return after[len(quoted):], ok
}

// placeholder refuses a placeholder that could never render, or whose value could choose an option.
func (r *reader) placeholder(n ast.Node, e element, at int, p part, s *schema) {
	if p.input == "" {
		return
	}
	in, ok := s.props[p.input]
	switch {
	case !ok:
		r.fault(tokenOf(n), "input.%s is not in the inputSchema%s", clip(p.input), near(p.input, s.names))
	case s.stdin != "" && p.input == StdinInput:
		r.fault(tokenOf(n), "input.stdin is what the tool reads, and no argument")
	case in.only("object"):
		r.fault(tokenOf(n), "input.%s is an object and cannot be an argument", p.input)
	case !e.alone() && len(in.Type) > 0 && in.has("array"):
		r.fault(tokenOf(n), "input.%s may be a list, which wants an argument of its own", p.input)
	case p.flag != "" && (!e.alone() || !in.only("boolean", "null")):
		r.fault(tokenOf(n), "flag wants a boolean input and an argument of its own")
	case at > 0 && dashes(e.parts[:at]) && !in.only("integer"):
		r.fault(tokenOf(n), "input.%s would choose the option in %q; only an integer may stand there", p.input, clip(e.text))
	}
}

// dashes reports whether the parts are only literal dashes, as in "-{{ input.n }}".
func dashes(parts []part) bool {
	for _, p := range parts {
		if p.input != "" || strings.Trim(p.text, "-") != "" {
			return false
		}
	}
	return true
}

// cwd checks the input that cwdFromInput names.
func (r *reader) cwd(n ast.Node, name string, s *schema) {
	if name == "" {
		return
	}
	if in, ok := s.props[name]; !ok || !in.only("string") {
		r.fault(tokenOf(n), "cwdFromInput wants an input of type string, %q is none%s", name, near(name, s.names))
	}
}
