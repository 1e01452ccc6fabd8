package pack

import (
	"fmt"
	"regexp"
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
	name     string
	value    bool           // the option has a value
	optional bool           // the value may be missing; if present, it is attached
	next     bool           // the value of a command line is also the next word, if there is one
	number   bool           // the value is a decimal number
	subpath  bool           // the value is a relative path below the working directory
	form     *regexp.Regexp // the value matches this entirely
	values   []string       // permitted values; a trailing * permits any ending; empty permits all
}

// parseOptionTable parses the text of a table. The second result describes what is wrong with it, or is "".
func parseOptionTable(text string) (*optionTable, string) {
	t := &optionTable{text: text}
	for _, word := range strings.Fields(text) {
		var o toolOption
		end := strings.IndexAny(word, "=[#")
		if end < 0 {
			end = len(word)
		}
		o.name = word[:end]
		switch rest := word[end:]; {
		case rest == "":
		case rest == "#":
			o.value, o.number = true, true
		case rest == "[=]" || rest == "[+]":
			o.value, o.optional, o.next = true, true, rest == "[+]"
		case rest[0] == '=':
			o.value = true
			if wrong := o.limitValue(rest[1:]); wrong != "" {
				return nil, wrong
			}
		default:
			return nil, fmt.Sprintf("%q is no option: write --flag, --name=, --name=a|b*, --name=#, --name=~RE, --name=<subpath>, --name[=], --name[+] or -n#", strictyaml.Clip(word))
		}
		switch bare := o.name == "-" && o.number; {
		case !bare && (len(o.name) < 2 || o.name[0] != '-' || o.name == "--"):
			return nil, fmt.Sprintf("%q does not begin with a dash and a name", strictyaml.Clip(word))
		case strings.ContainsFunc(o.name, func(c rune) bool { return c <= ' ' || c > '~' }):
			return nil, fmt.Sprintf("%q is not in ASCII", strictyaml.Clip(word))
		case slices.ContainsFunc(t.list, func(had toolOption) bool { return had.name == o.name }):
			return nil, fmt.Sprintf("%q stands there twice", strictyaml.Clip(o.name))
		}
		t.list = append(t.list, o)
	}
	if len(t.list) == 0 {
		return nil, "it lists no option"
	}
	return t, ""
}

// limitValue reads the text after = in a table. The result describes what is wrong with it, or is "".
func (o *toolOption) limitValue(text string) string {
	form, matches := strings.CutPrefix(text, "~")
	switch {
	case text == "#":
		o.number = true
	case text == "<subpath>":
		o.subpath = true
	case matches:
		var err error
		if o.form, err = regexp.Compile(`\A(?:` + form + `)\z`); err != nil {
			return fmt.Sprintf("%q is not a regular expression that RE2 reads", strictyaml.Clip(form))
		}
	case text != "":
		o.values = strings.Split(text, "|")
	}
	return ""
}

func (t *optionTable) findOption(name string) *toolOption {
	if i := slices.IndexFunc(t.list, func(o toolOption) bool { return o.name == name }); i >= 0 {
		return &t.list[i]
	}
	return nil
}

// isShort reports whether the name has one dash and one letter.
func (o *toolOption) isShort() bool { return len(o.name) == 2 && o.name[0] == '-' }

// joinValue returns the option with its value as one word, or "" if the value is not permitted.
func (o *toolOption) joinValue(value string) string {
	switch {
	case o.subpath && (!isSubpath(value) || strings.ContainsAny(value[:1], "=-") || strings.Contains(value, ":")):
		return "" // -f=x has the value x for some tools, - is standard input, and x: begins an address
	case o.form != nil && !o.form.MatchString(value):
		return ""
	case o.number && (value == "" || strings.Trim(value, "0123456789") != ""):
		return ""
	case len(o.values) > 0 && !slices.ContainsFunc(o.values, func(p string) bool {
		start, any := strings.CutSuffix(p, "*")
		return value == p || any && strings.HasPrefix(value, start)
	}):
		return ""
	case o.isShort() || o.name == "-":
		return o.name + value
	}
	return o.name + "=" + value
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
			return []string{word}, 0
		case len(rest) > 0:
			if item := o.joinValue(rest[0]); item != "" {
				return []string{item}, 1
			}
		}
		return nil, 0
	}
	if o := t.findOption(name); joined && o != nil && o.value && !o.isShort() {
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
	if items, _ := t.readWord(item, nil); len(items) == 1 && items[0] == item {
		return ""
	}
	name, _, _ := strings.Cut(item, "=")
	if o := t.findOption(name); o != nil && o.value && !o.optional {
		return "wants its value in the same word, as in " + o.joinValue(strings.TrimSuffix(append(o.values, "VALUE")[0], "*"))
	}
	return "is none of the options " + t.text
}
