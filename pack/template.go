package pack

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
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
		before := len(r.faults)
		e := r.readTemplate(nodes[i], text)
		if len(r.faults) > before {
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
		r.addFault(tokenOf(n), "an argument holds %s", what)
	}
	for rest := text; rest != ""; {
		before, after, open := strings.Cut(rest, "{{")
		if strings.Contains(before, "}}") {
			r.addFault(tokenOf(n), "%q closes a placeholder that is not open", clipText(text))
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
			r.addFault(tokenOf(n),
				"%q is no placeholder; write {{ input.x }}, {{ input.x | default: \"y\" }} or {{ input.x | flag: \"--y\" }}", clipText(text))
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
		r.addFault(tokenOf(n), "input.%s is not in the inputSchema%s", clipText(p.input), didYouMean(p.input, s.names))
	case s.stdin != "" && p.input == StdinInput:
		r.addFault(tokenOf(n), "input.stdin is what the tool reads, and no argument")
	case in.hasOnlyTypes("object"):
		r.addFault(tokenOf(n), "input.%s is an object and cannot be an argument", p.input)
	case !e.isPlaceholder() && len(in.Type) > 0 && in.hasType("array"):
		r.addFault(tokenOf(n), "input.%s may be a list, which wants an argument of its own", p.input)
	case p.flag != "" && (!e.isPlaceholder() || !in.hasOnlyTypes("boolean", "null")):
		r.addFault(tokenOf(n), "flag wants a boolean input and an argument of its own")
	case at > 0 && isOnlyDashes(e.parts[:at]) && !in.hasOnlyTypes("integer"):
		r.addFault(tokenOf(n), "input.%s would choose the option in %q; only an integer may stand there", p.input,
			clipText(e.text))
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
		r.addFault(tokenOf(n), "cwdFromInput wants an input of type string, %q is none%s", name,
			didYouMean(name, s.names))
	}
}
