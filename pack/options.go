package pack

import (
	"fmt"
	"slices"
	"strings"

	"bailey/internal/strictyaml"
)

// optionTable lists the options of a tool that the items of an input may be. It is written as one text, for example
// "--oneline -n= -U# --decorate[=] --output=json|yaml|jsonpath=*".
type optionTable struct {
	list []toolOption
	text string
}

// toolOption is one option. A value is attached in an item: --name=value, or -nvalue for a name of one letter.
type toolOption struct {
	name     string   // as in items
	aliases  []string // other names in a command line
	value    bool     // the option has a value
	optional bool     // the value may be missing; if present, it is attached
	next     bool     // the value of a command line is also the next word, if there is one
	apart    bool     // a command line has the value in a word of its own
	pair     bool     // apart, and two words follow, which are one item: --name=first=second
	number   bool     // the value is a decimal number
	values   []string // permitted values; a trailing * permits any ending, ./ a relative path; empty permits all
}

// belowHere permits the values that are relative paths below the working directory.
const belowHere = "./"

// parseOptionTable parses the text of a table. The second result describes what is wrong with it, or is "".
func parseOptionTable(text string) (*optionTable, string) {
	t := &optionTable{text: text}
	for _, word := range strings.Fields(text) {
		var o toolOption
		end := strings.IndexAny(word, "=[#:")
		if end < 0 {
			end = len(word)
		}
		names := strings.Split(word[:end], "|")
		o.name, o.aliases = names[len(names)-1], names[:len(names)-1]
		switch rest := word[end:]; {
		case rest == "":
		case rest == "#":
			o.value, o.number = true, true
		case rest == "[=]" || rest == "[+]":
			o.value, o.optional, o.next = true, true, rest == "[+]"
		case rest[0] == '=' || rest[0] == ':':
			o.value, o.apart = true, rest[0] == ':'
			if rest = rest[1:]; o.apart {
				rest, o.pair = strings.CutPrefix(rest, ":")
			}
			if rest == "#" && !o.pair {
				o.number = true
			} else if rest != "" {
				o.values = strings.Split(rest, "|")
			}
		default:
			return nil, fmt.Sprintf("%q is no option: write --flag, --name=, --name=a|b*|./, --name=#, --name:, --name::, --name[=], --name[+] or -n#", strictyaml.Clip(word))
		}
		for i, name := range names {
			switch bare := name == "-" && o.number && len(names) == 1; {
			case !bare && (len(name) < 2 || name[0] != '-' || name == "--"):
				return nil, fmt.Sprintf("%q does not begin with a dash and a name", strictyaml.Clip(word))
			case strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }):
				return nil, fmt.Sprintf("%q is not in ASCII", strictyaml.Clip(word))
			case t.findOption(name) != nil || slices.Contains(names[:i], name):
				return nil, fmt.Sprintf("%q stands there twice", strictyaml.Clip(name))
			}
		}
		if o.apart && o.isShort() {
			return nil, fmt.Sprintf("%q has its value apart, which wants a long name", strictyaml.Clip(word))
		}
		t.list = append(t.list, o)
	}
	if len(t.list) == 0 {
		return nil, "it lists no option"
	}
	return t, ""
}

func (t *optionTable) findOption(name string) *toolOption {
	if i := slices.IndexFunc(t.list, func(o toolOption) bool { return o.name == name || slices.Contains(o.aliases, name) }); i >= 0 {
		return &t.list[i]
	}
	return nil
}

// isShort reports whether the name has one dash and one letter.
func (o *toolOption) isShort() bool { return len(o.name) == 2 && o.name[0] == '-' }

// joinValue returns the option with its value as one word, or "" if the value is not permitted.
func (o *toolOption) joinValue(value string) string {
	switch {
	case o.number && (value == "" || strings.Trim(value, "0123456789") != ""):
		return ""
	case len(o.values) > 0 && !slices.ContainsFunc(o.values, func(p string) bool { return permitsValue(p, value) }):
		return ""
	case o.isShort() || o.name == "-":
		return o.name + value
	}
	return o.name + "=" + value
}

// permitsValue reports whether one of the permitted values of an option covers a value. Tools take the path - for a stream.
func permitsValue(permitted, value string) bool {
	start, any := strings.CutSuffix(permitted, "*")
	return value == permitted || any && strings.HasPrefix(value, start) || permitted == belowHere && isSubpath(value) && value != "-"
}

// joinPair is like joinValue for an option with two values. The first is a name without =.
func (o *toolOption) joinPair(first, second string) string {
	if first == "" || strings.Contains(first, "=") || len(o.values) > 0 &&
		!slices.ContainsFunc(o.values, func(p string) bool { return permitsValue(p, second) }) {
		return ""
	}
	return o.name + "=" + first + "=" + second
}

// splitItem returns the words of a command line that an item stands for.
func (t *optionTable) splitItem(item string) []string {
	name, value, _ := strings.Cut(item, "=")
	switch o := t.findOption(name); {
	case o == nil || !o.apart:
		return []string{item}
	case o.pair:
		first, second, _ := strings.Cut(value, "=")
		return []string{name, first, second}
	}
	return []string{name, value}
}

// pathOf returns the relative path that is the value of an item, or "".
func (t *optionTable) pathOf(item string) string {
	name, value, _ := strings.Cut(item, "=")
	o := t.findOption(name)
	if o == nil && len(item) > 2 && item[1] != '-' {
		o = t.findOption(item[:2])
	}
	switch {
	case o == nil:
		return ""
	case o.isShort():
		value = item[2:]
	}
	if o.pair {
		_, value, _ = strings.Cut(value, "=")
	}
	for _, p := range o.values {
		switch {
		case p == belowHere && permitsValue(p, value):
			return value
		case permitsValue(p, value):
			return ""
		}
	}
	return ""
}

// readWord reads the option that begins with word, as getopt_long(3) does. It returns the items and the number of
// following words that it used. Without items, the word is no option of the table.
func (t *optionTable) readWord(word string, rest []string) (items []string, used int) {
	if !strings.HasPrefix(word, "-") {
		return nil, 0
	}
	name, value, joined := strings.Cut(word, "=")
	if o := t.findOption(word); o != nil && !joined {
		switch {
		case !o.value || o.optional && !o.next || o.next && len(rest) == 0:
			return []string{o.name}, 0
		case o.pair && len(rest) > 1:
			if item := o.joinPair(rest[0], rest[1]); item != "" {
				return []string{item}, 2
			}
		case o.pair, len(rest) > 0 && word != o.name && strings.HasPrefix(rest[0], "="): // tools differ in what -w=x means
		case len(rest) > 0:
			if item := o.joinValue(rest[0]); item != "" {
				return []string{item}, 1
			}
		}
		return nil, 0
	}
	if o := t.findOption(name); joined && o != nil && o.value && !o.apart && len(name) > 2 {
		if item := o.joinValue(value); item != "" {
			return []string{item}, 0
		}
		return nil, 0
	}
	if strings.HasPrefix(word, "--") || len(word) < 2 {
		return nil, 0
	}
	if o := t.findOption("-"); o != nil && o.joinValue(word[1:]) != "" {
		return []string{word}, 0
	}
	for at, letter := range word[1:] { // several letters in one word; the first one with a value takes the rest
		o := t.findOption("-" + string(letter)) // names are ASCII
		if o == nil {
			return nil, 0
		}
		left := word[at+2:]
		switch {
		case o.apart, !o.isShort() && strings.HasPrefix(left, "="):
			return nil, 0
		case !o.value || o.optional && left == "":
			items = append(items, o.name)
			continue
		case left == "" && len(rest) > 0:
			left, used = rest[0], 1
		}
		item := o.joinValue(left)
		if item == "" || left == "" {
			return nil, 0
		}
		return append(items, item), used
	}
	return items, used
}

// faultOf returns the reason why an item of the input is not permitted, or "".
func (t *optionTable) faultOf(item string) string {
	name, value, joined := strings.Cut(item, "=")
	o := t.findOption(name)
	if o != nil && o.pair {
		if first, second, two := strings.Cut(value, "="); two && o.joinPair(first, second) == item {
			return ""
		}
		return "wants two values in the same word, as in " + o.name + "=NAME=VALUE"
	}
	if o != nil && o.apart && joined && o.joinValue(value) == item {
		return ""
	}
	if items, _ := t.readWord(item, nil); len(items) == 1 && items[0] == item {
		return ""
	}
	if o != nil && o.value && !o.optional {
		return "wants its value in the same word, as in " + o.joinValue(strings.TrimSuffix(append(o.values, "VALUE")[0], "*"))
	}
	return "is none of the options " + t.text
}
