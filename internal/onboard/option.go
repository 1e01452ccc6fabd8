package onboard

import (
	"slices"
	"strings"
)

// readOptionLine parses a line that begins with an option.
func (r *reader) readOptionLine(l string) {
	trimmed := strings.TrimSpace(l)
	spec, summary, column := trimmed, "", 0
	if i := descriptionStart(trimmed); i > 0 {
		spec, summary = strings.TrimSpace(trimmed[:i]), strings.TrimSpace(strings.TrimLeft(trimmed[i:], " :"))
		column = len(l) - len(strings.TrimLeft(trimmed[i:], " "))
	}
	o, ok := readOption(spec)
	switch {
	case !ok:
		r.open = nil
		return
	case r.part == shared:
		r.help.Shared++
		r.open = nil
		return
	case len(r.help.Options) == maxOptions:
		r.help.More++
		r.open = nil
		return
	}
	if r.help.Options == nil {
		r.help.Options = make([]Option, 0, maxOptions) // the pointers of open descriptions must stay valid
	}
	o.Summary = summary
	if r.part == modes {
		r.modes = append(r.modes, o.Names[0])
	}
	r.help.Options = append(r.help.Options, o)
	r.openEntry(l, &r.help.Options[len(r.help.Options)-1].Summary, column)
}

// descriptionStart returns the index at which the description begins: after two spaces, or after the colon of knack.
// Without a description it returns 0.
func descriptionStart(s string) int {
	if i := strings.Index(s, "  "); i > 0 {
		// Two spaces may also separate the short name from the long one.
		if rest := strings.TrimLeft(s[i:], " "); strings.HasPrefix(rest, "-") && strings.HasSuffix(s[:i], ",") {
			if j := descriptionStart(rest); j > 0 {
				return len(s) - len(rest) + j
			}
			return 0
		}
		return i
	}
	return max(0, strings.Index(s, " : "))
}

// readOption parses the part before the description: the names, and the name of the value, which some styles repeat
// after each name.
func readOption(spec string) (o Option, ok bool) {
	spec = dropNegation(spec)
	if kubectl, def, is := strings.Cut(spec, "="); is && strings.HasSuffix(spec, ":") {
		spec, o.Value, o.Joined = kubectl, valueFromDefault(strings.TrimSuffix(def, ":")), true
	}
	values := 0
	for _, word := range splitOutsideBrackets(spec, " ,") {
		switch {
		case word == "/": // in click, the negative name follows
			return o, len(o.Names) > 0
		case word == "|" || word == "or" || word == "...":
		case strings.HasPrefix(word, "-") && strings.Trim(word, "-") != "":
			name, value := cutValue(strings.TrimRight(strings.TrimSuffix(word, "..."), ":"))
			if !optionName().MatchString(name) || len(o.Names) == 8 {
				return o, false
			}
			o.Names, values = append(o.Names, name), 0
			if value != "" {
				o.Value, o.Joined, values = value, o.Joined || strings.HasPrefix(name, "--"), 1
			}
		case len(o.Names) == 0:
			return o, false
		case word == "[Required]":
			o.Required = true
		default:
			if o.Value = word; o.Values > 0 && values > 0 {
				o.Value = "" // several values: no single name
			}
			values++
		}
		o.Values = values
	}
	if o.Value != "" && o.Values == 0 {
		o.Values = 1
	}
	if o.Values == 1 {
		o.parseValue()
	}
	return o, len(o.Names) > 0
}

// parseValue removes the brackets from the name of a value, and extracts the choices.
func (o *Option) parseValue() {
	v := strings.TrimSuffix(o.Value, "...")
	v = strings.Trim(v, "[]")
	v = strings.TrimPrefix(v, "=")
	switch {
	case strings.HasPrefix(v, "{"):
		o.Choices = parseChoices(strings.Trim(v, "{}"), ",|")
	case strings.ContainsAny(v, "|,") && strings.ToLower(v) == v && !strings.HasPrefix(v, "<"):
		o.Choices = parseChoices(v, "|,")
	}
	if v = strings.Trim(v, "<>"); v == "" {
		v = "value"
	}
	o.Value = v
}

// summaryChoices matches the list of values in a summary, as clap and gh write it.
var summaryChoices = lazyRegexp(`\[possible values: ([^\]]+)\]|\{([A-Za-z0-9_.+-]+(?:\|[A-Za-z0-9_.+-]+)+)\}`)

// extractChoices extracts the choices from the summary.
func (o *Option) extractChoices() {
	if m := summaryChoices().FindStringSubmatch(o.Summary); m != nil && o.Values == 1 && len(o.Choices) == 0 {
		o.Choices = parseChoices(m[1]+m[2], ",|")
	}
}

// parseChoices returns the words of a list of values, or nil if one of them is not a plain word.
func parseChoices(list, by string) []string {
	var all []string
	for _, c := range strings.FieldsFunc(list, func(c rune) bool { return strings.ContainsRune(by, c) || c == ' ' }) {
		if !commandName().MatchString(c) || len(all) == maxChoices {
			return nil
		}
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	if len(all) < 2 {
		return nil
	}
	return all
}

// dropNegation replaces --[no-]color with --color.
func dropNegation(spec string) string { return strings.ReplaceAll(spec, "--[no-]", "--") }

// cutValue splits --name=VALUE and --name[=VALUE].
func cutValue(word string) (name, value string) {
	i := strings.IndexAny(word, "=[<")
	if i < 0 {
		return word, ""
	}
	if value = strings.TrimPrefix(word[i:], "="); value == "" {
		value = "value"
	}
	return word[:i], value
}

// valueFromDefault names the value of an option by its default, as kubectl lists it. If the default is true or false,
// the option takes no value.
func valueFromDefault(def string) string {
	switch {
	case def == "true" || def == "false":
		return ""
	case def != "" && strings.Trim(def, "-0123456789") == "":
		return "int"
	}
	return "string"
}

// splitOutsideBrackets splits s at the separators outside brackets.
func splitOutsideBrackets(s, by string) []string {
	var words []string
	depth, from := 0, -1
	for i, c := range s {
		switch {
		case strings.ContainsRune("[<({", c):
			depth++
		case strings.ContainsRune("]>)}", c):
			depth = max(0, depth-1)
		}
		apart := depth == 0 && strings.ContainsRune(by, c)
		if apart && from >= 0 {
			words, from = append(words, s[from:i]), -1
		} else if !apart && from < 0 {
			from = i
		}
	}
	if from >= 0 {
		words = append(words, s[from:])
	}
	return words
}

// longName returns the longest name with two dashes, or else the first name.
func (o Option) longName() string {
	best := o.Names[0]
	for _, n := range o.Names {
		if strings.HasPrefix(n, "--") && (!strings.HasPrefix(best, "--") || len(n) > len(best)) {
			best = n
		}
	}
	return best
}
