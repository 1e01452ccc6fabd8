package onboard

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

//go:embed words.txt
var wordsText string

// hazard is an effect of an option that a person must decide about.
type hazard struct {
	why                 string
	names, values, says []string
}

// wordLists is words.txt.
type wordLists struct {
	reading, readers, prefixes, proc, acting, changing, executing, form, executed, integer, number, path []string
	hazards                                                                                              []hazard
}

var vocabulary = sync.OnceValue(func() *wordLists {
	w := &wordLists{}
	lists := map[string]*[]string{"reading": &w.reading, "readers": &w.readers, "prefixes": &w.prefixes, "proc": &w.proc,
		"acting": &w.acting, "changing": &w.changing,
		"executing": &w.executing, "form": &w.form, "executed": &w.executed, "integer": &w.integer, "number": &w.number,
		"path": &w.path}
	var list *[]string
	for line := range strings.Lines(wordsText) {
		words := strings.Fields(line)
		why, isHazard := strings.CutPrefix(strings.TrimSpace(line), "hazard ")
		switch {
		case len(words) == 0 || words[0] == "#":
		case isHazard:
			w.hazards, list = append(w.hazards, hazard{why: why}), nil
		case line[0] != ' ':
			list = lists[words[0]]
		case list != nil:
			*list = append(*list, words...)
		default:
			h := &w.hazards[len(w.hazards)-1]
			into := map[string]*[]string{"names": &h.names, "values": &h.values, "says": &h.says}[words[0]]
			*into = append(*into, words[1:]...)
		}
	}
	return w
})

// optionHazard returns why an option is left out, or "".
func optionHazard(o Option, looks, reader bool) string {
	var names []string
	for _, n := range o.Names {
		n = strings.ToLower(strings.TrimLeft(n, "-"))
		names = append(append(names, "="+n, n),
			strings.FieldsFunc(n, func(c rune) bool { return c == '-' || c == '_' || c == '.' })...)
	}
	switch typ, _ := valueType(o.Value); {
	case o.Value != "" && typ != "string": // a number cannot name a program, a file or a host
		return map[bool]string{true: "changes where it connects"}[slices.Contains(names, "port")]
	case strings.EqualFold(o.longName(), "-o") && o.Value != "" || slices.Contains(names, "in-place"):
		return "writes"
	}
	said, value := wordsOf(o.Summary), strings.ToLower(o.Value)
	for _, h := range vocabulary().hazards {
		switch {
		case sharesWord(h.names, names) && !onlyForm(names):
			return h.why
		case value != "" && slices.ContainsFunc(h.values, func(v string) bool {
			return value == v || strings.HasSuffix(value, "-"+v) || strings.HasSuffix(value, "_"+v)
		}):
			return h.why
		case value != "" && len(o.Choices) == 0 && sharesWord(h.says, said):
			return h.why
		}
	}
	if reader { // its switches change no more than the output
		return map[bool]string{true: "may do more than read"}[sharesWord(vocabulary().changing, names)]
	}
	if looks && !strings.HasPrefix(o.longName(), "--no-") &&
		(sharesWord(vocabulary().acting, names) || o.Value == "" && sharesWord(vocabulary().acting, said)) {
		return "may do more than read"
	}
	return ""
}

// onlyForm reports names such as --output-format, which specify a form and not a destination.
func onlyForm(names []string) bool {
	return sharesWord(names, vocabulary().form)
}

func sharesWord(a, b []string) bool {
	return slices.ContainsFunc(a, func(w string) bool { return slices.Contains(b, w) })
}

// wordsOf returns the words of a text in lower case.
func wordsOf(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(c rune) bool { return (c < 'a' || c > 'z') && c != '-' })
}

// isReadOnlyCommand reports whether a command only reads: its last word is such a verb, or begins with a
// prefix such as list-, or the tool itself is one that reads, and its summaries do not contradict that. Names can be wrong, so a person must check.
func isReadOnlyCommand(tool string, t *Tree) bool {
	verb := tool
	if n := len(t.Words); n > 0 {
		verb = t.Words[n-1]
	}
	if t.Mode != "" {
		verb = strings.TrimLeft(t.Mode, "-")
	}
	verb = strings.ToLower(verb)
	first, _, compound := strings.Cut(verb, "-")
	if !t.isReader(tool) && !slices.Contains(vocabulary().reading, verb) && !(compound && slices.Contains(vocabulary().prefixes, first)) {
		return false
	}
	for _, s := range []string{t.Summary, t.Help.Summary} {
		if words := wordsOf(s); sharesWord(vocabulary().changing, words) || len(words) > 0 &&
			slices.Contains(vocabulary().acting, words[0]) {
			return false
		}
	}
	return true
}

// isReader reports whether t is a program without subcommands that only reads.
func (t *Tree) isReader(tool string) bool {
	return len(t.Words) == 0 && t.Mode == "" && slices.Contains(vocabulary().readers, strings.ToLower(tool))
}

// isExecuted reports whether the tool would execute this operand.
func (o Operand) isExecuted() bool {
	return slices.Contains(vocabulary().executed, strings.ToLower(o.Name))
}

// valueType returns the type of a value, derived from its name in the help.
func valueType(value string) (typ, format string) {
	v := strings.ToLower(strings.Trim(value, "<>[]."))
	last := v[strings.LastIndexAny(v, "-_ ")+1:]
	has := func(words []string) bool { return slices.Contains(words, v) || slices.Contains(words, last) }
	switch {
	case strings.ContainsAny(v, ":=,|"): // more than a path or a number
		return "string", ""
	case strings.HasPrefix(v, "integer"),
		has(vocabulary().integer):
		return "integer", ""
	case has(vocabulary().number):
		return "number", ""
	case has(vocabulary().path) || strings.HasSuffix(v, "file"):
		return "string", "path"
	case v == "url" || last == "url":
		return "string", "url"
	}
	return "string", ""
}
