package onboard

import (
	"slices"
	"strings"
)

// readUsageLine processes a line of the usage: a new command line, or the continuation of the previous one.
func (r *reader) readUsageLine(l string) {
	trimmed := strings.TrimSpace(l)
	if optionLine().MatchString(l) && descriptionStart(trimmed) > 0 && len(r.patterns) > 0 {
		r.startPart(opening)
		r.readOptionLine(l)
		return
	}
	other := otherUsage().FindString(l)
	if other != "" {
		trimmed = strings.TrimSpace(l[len(other):])
	}
	first, _, _ := strings.Cut(trimmed, " ")
	n := len(r.patterns)
	switch {
	case n > 0 && lineIndent(l) == 0 && other == "" && trimmed != "" && !strings.HasPrefix(r.patterns[0]+" ", first+" "):
		r.startPart(opening) // GNU's programs describe themselves without an empty line before
		if r.help.Summary == "" {
			r.help.Summary = trimmed
		}
	case trimmed == "" || n == 64:
	case n == 0 || other != "" || strings.HasPrefix(r.patterns[0]+" ", first+" "):
		r.patterns = append(r.patterns, trimmed)
	case len(r.patterns[n-1]) < 8*maxLine:
		r.patterns[n-1] += " " + trimmed
	}
}

// parseUsage makes operands of the first pattern that can be read.
func (r *reader) parseUsage(h *Help) {
	for i, p := range r.patterns {
		u := &usageParser{help: h}
		words := splitOutsideBrackets(p, " ")
		u.parseWords(words[u.countCommandWords(words):], true)
		if u.unclear == "" || i == 0 {
			h.Unclear, h.Operands = u.unclear, u.operands
			r.markRequired(h, u.demanded)
		}
		if u.unclear == "" {
			break
		}
	}
	for i := range h.Operands {
		o := &h.Operands[i]
		for _, l := range r.listed {
			if name := strings.Trim(l.Name, "[]<>.{} "); strings.EqualFold(name, o.Name) {
				o.Summary = l.Summary
			}
		}
	}
	if len(h.Operands) > maxOperands {
		h.Unclear = "its usage has too many operands"
	}
}

// markRequired marks the options that the command requires.
func (r *reader) markRequired(h *Help, names []string) {
	for _, name := range names {
		for i := range h.Options {
			if slices.Contains(h.Options[i].Names, name) {
				h.Options[i].Required = true
			}
		}
	}
}

// usageParser is one command line of a usage that is being parsed.
type usageParser struct {
	help     *Help
	operands []Operand
	demanded []string // options outside brackets
	dashes   bool     // -- precedes the next operand
	command  bool     // a subcommand stands here, and the rest belongs to it
	unclear  string
}

// countCommandWords returns how many words at the beginning are the command itself.
func (u *usageParser) countCommandWords(words []string) int {
	n := 0
	for n < len(words) && commandName().MatchString(words[n]) &&
		(n == 0 || strings.ToLower(words[n]) == words[n] && !u.isCommandPlaceholder(words[n])) {
		n++
	}
	return n
}

// isCommandPlaceholder reports whether a word is a placeholder for a subcommand.
func (u *usageParser) isCommandPlaceholder(word string) bool {
	word = strings.ToLower(strings.Trim(word, "[]<>."))
	return len(u.help.Commands) > 0 && (word == "command" || word == "subcommand" || word == "group")
}

// parseWords processes words, which are required or were in brackets.
func (u *usageParser) parseWords(words []string, required bool) {
	for i := 0; i < len(words) && u.unclear == "" && !u.command; i++ {
		w := words[i]
		body, many := strings.CutSuffix(w, "...")
		switch {
		case body == "":
			u.markRepeatable()
		case w == "--":
			u.dashes = true
		case w == "|" || body[0] == '(':
			u.unclear = "its usage has alternatives"
		case body[0] == '-':
			name, value := cutValue(body)
			if required {
				u.demanded = append(u.demanded, name)
			}
			if next := i + 1; value == "" && next < len(words) && isValue(words[next]) {
				i = next
			}
		case u.isCommandPlaceholder(body) || body[0] == '{' && (many || i+1 < len(words) && words[i+1] == "..."):
			u.stopAtSubcommand(body)
		case body[0] == '[' && isBracketed(body):
			u.parseOptional(strings.TrimSpace(body[1:len(body)-1]), many)
		default:
			u.addOperand(body, required, many)
		}
	}
}

// stopAtSubcommand stops at a subcommand. argparse lists the subcommands here too.
func (u *usageParser) stopAtSubcommand(body string) {
	u.command = true
	if body[0] == '{' && len(u.help.Commands) == 0 {
		for _, name := range parseChoices(strings.Trim(body, "{}"), ",") {
			u.help.Commands = append(u.help.Commands, Command{Name: name})
		}
	}
}

// isValue distinguishes the value of an option from an operand, by capitals or brackets.
func isValue(w string) bool {
	return w[0] == '<' || w[0] == '{' || strings.ToUpper(w) == w && strings.ContainsAny(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
}

// isBracketed reports whether the first bracket closes at the end.
func isBracketed(s string) bool {
	depth := 0
	for i, c := range s {
		switch {
		case strings.ContainsRune("[<({", c):
			depth++
		case strings.ContainsRune("]>)}", c):
			depth--
		}
		if depth == 0 {
			return i == len(s)-1
		}
	}
	return false
}

// parseOptional processes the text in a pair of brackets.
func (u *usageParser) parseOptional(body string, many bool) {
	before := len(u.operands)
	switch name := strings.ToLower(strings.Trim(body, "<>. ")); {
	case name == "options" || name == "option" || name == "flags" || name == "flag" || name == "global options":
		return
	case u.isCommandPlaceholder(name):
		u.command = true
		return
	case strings.HasPrefix(body, "-") && body != "--" && !strings.HasPrefix(body, "-- "):
		return
	case parseChoices(body, "|") != nil && strings.ToLower(body) == body && !strings.Contains(body, " "):
		u.operands = append(u.operands, Operand{Name: "choice", Choices: parseChoices(body, "|")})
	default:
		u.parseWords(splitOutsideBrackets(body, " "), false)
	}
	if many && len(u.operands) > before {
		u.markRepeatable()
	}
}

func (u *usageParser) markRepeatable() {
	if n := len(u.operands); n > 0 {
		u.operands[n-1].Many = true
	}
}

// addOperand adds an operand. If the same name follows directly, the operand may be repeated.
func (u *usageParser) addOperand(body string, required, many bool) {
	var set []string
	if body[0] == '{' {
		if either := joinPlaceholders(strings.Trim(body, "{}")); either != "" {
			body = either
		} else if set = parseChoices(strings.Trim(body, "{}"), ",|"); set == nil || strings.ToLower(body) != body {
			u.unclear = "its usage has alternatives"
			return
		} else {
			body = "choice"
		}
	}
	name := strings.Trim(body, "<>[] ")
	if n := strings.ToLower(name); n == "options" || n == "flags" || n == "option" {
		return
	}
	if strings.ContainsAny(name, "{}()") || strings.Contains(name, "|") && strings.ToLower(name) == name &&
		body[0] != '<' {
		u.unclear = "its usage has alternatives"
		return
	}
	name, _, _ = strings.Cut(name, "|")
	name, _, _ = strings.Cut(name, "[")
	name = strings.TrimRight(name, ".")
	if n := len(u.operands); n > 0 && u.operands[n-1].Name == name {
		u.operands[n-1].Many = true
		return
	}
	u.operands = append(u.operands, Operand{Name: name, Required: required, Many: many, Dashes: u.dashes, Choices: set})
	u.dashes = false
}

// joinPlaceholders turns {<number> | <url>} into number_or_url. It returns "" if the list contains a literal word.
func joinPlaceholders(list string) string {
	var names []string
	for _, w := range strings.Split(list, "|") {
		w = strings.TrimSpace(w)
		if !strings.HasPrefix(w, "<") || !isBracketed(w) {
			return ""
		}
		names = append(names, strings.Trim(w, "<>"))
	}
	return strings.Join(names, "_or_")
}

// dropCommonCommands removes commands that every tool has and that should not become a capability.
func (r *reader) dropCommonCommands(list []Command) []Command {
	return slices.DeleteFunc(slices.Clip(list),
		func(c Command) bool { return c.Name == "help" || c.Name == "completion" })
}
