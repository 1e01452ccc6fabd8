package pack

import (
	"fmt"
	"slices"
	"strings"

	"bailey/internal/strictyaml"
)

// optionTable lists the options of a tool that the items of an input may be. It is written as one text, for example
// "--oneline -n= -U# --decorate[=] --output=json|yaml|jsonpath=*".
//
// An open table, with the word --*, also has every other long option, and with -* every other option of one letter. The
// number of values of such an option is not known, so its items are the words as they are: the option, if long with or
// without =value, and then the words after it that begin with no dash. !--name excludes an option with its abbreviations.
type optionTable struct {
	list     []toolOption
	open     bool // --*
	letters  bool // -*
	excluded []string
	flags    bool // the tool reads options as package flag of Go does
	text     string
}

// toolOption is one option. A value is attached in an item: --name=value, or -nvalue for a name of one letter.
type toolOption struct {
	name     string
	value    bool     // the option has a value
	optional bool     // the value may be missing; if present, it is attached
	next     bool     // the value of a command line is also the next word, if there is one; a number only if it is one
	equals   bool     // the value is joined with =, also to a name of one letter
	number   bool     // the value is a decimal number
	subpath  bool     // the value is a relative path below the working directory, or /dev/null
	values   []string // permitted values; a trailing * permits any ending; empty permits all
}

// parseOptionTable parses the text of a table. The second result describes what is wrong with it, or is "".
func parseOptionTable(text string) (*optionTable, string) {
	t := &optionTable{text: text}
	for _, word := range strings.Fields(text) {
		switch {
		case word == "--*" || word == "-*":
			t.open, t.letters = t.open || word == "--*", t.letters || word == "-*"
			continue
		case word == "-=" && !t.flags:
			t.flags = true
			continue
		}
		if name, excludes := strings.CutPrefix(word, "!"); excludes {
			if !isLongName(name) && !isLetterName(name) {
				return nil, fmt.Sprintf("%q excludes no option", strictyaml.Clip(word))
			}
			t.excluded = append(t.excluded, name)
			continue
		}
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
		case rest == "[=]" || rest == "[+]" || rest == "[#]":
			o.value, o.optional, o.next, o.number = true, true, rest != "[=]", rest == "[#]"
		case rest[0] == '=':
			o.value = true
			if rest == "=#" {
				o.number = true
			} else if rest == "=./" {
				o.subpath = true
			} else if len(rest) > 1 {
				o.values = strings.Split(rest[1:], "|")
			}
		default:
			return nil, fmt.Sprintf("%q is not an option: write --flag, --name=, --name=a|b*, --name=#, --name=./, --name[=], --name[+], -n# or -n[#]", strictyaml.Clip(word))
		}
		switch bare := o.name == "-" && o.number; {
		case !bare && (len(o.name) < 2 || o.name[0] != '-' || o.name == "--"):
			return nil, fmt.Sprintf("%q does not begin with a dash and a name", strictyaml.Clip(word))
		case strings.ContainsFunc(o.name, func(c rune) bool { return c <= ' ' || c > '~' }):
			return nil, fmt.Sprintf("%q is not in ASCII", strictyaml.Clip(word))
		case slices.ContainsFunc(t.list, func(had toolOption) bool { return had.name == o.name }):
			return nil, fmt.Sprintf("%q is there twice", strictyaml.Clip(o.name))
		}
		t.list = append(t.list, o)
	}
	switch {
	case len(t.list) == 0 && !t.open:
		return nil, "it lists no option"
	case (t.letters || len(t.excluded) > 0) && !t.open:
		return nil, "it excludes options, or has -*, without --*"
	}
	for i := range t.list {
		t.list[i].equals = t.flags
	}
	return t, ""
}

// isLongName reports whether a word is two dashes and a name in lower-case letters, digits and dashes.
func isLongName(word string) bool {
	name, long := strings.CutPrefix(word, "--")
	return long && name != "" && name[0] != '-' && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func isLetterName(word string) bool {
	return len(word) == 2 && word[0] == '-' && (word[1]|0x20) >= 'a' && (word[1]|0x20) <= 'z'
}

// isUnlisted reports whether a word is an option that only an open table has. An abbreviation of an option that the table
// lists or excludes is not, because a tool may accept it.
func (t *optionTable) isUnlisted(word string) bool {
	name, _, _ := strings.Cut(word, "=")
	return t.open && (isLongName(name) || t.letters && isLetterName(word)) &&
		!slices.ContainsFunc(t.excluded, func(no string) bool { return strings.HasPrefix(no, name) }) &&
		!slices.ContainsFunc(t.list, func(o toolOption) bool { return strings.HasPrefix(o.name, name) })
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
	case o.number && (value == "" || strings.Trim(value, "0123456789") != ""):
		return ""
	case o.subpath && value != "/dev/null" && !isSubpath(value):
		return ""
	case len(o.values) > 0 && !slices.ContainsFunc(o.values, func(p string) bool {
		start, any := strings.CutSuffix(p, "*")
		return value == p || any && strings.HasPrefix(value, start)
	}):
		return ""
	case (o.isShort() || o.name == "-") && !o.equals:
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
	if t.flags {
		return t.readFlag(word, rest)
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
			if o.optional && o.number {
				return []string{word}, 0
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

// readFlag reads the option that begins with word, as package flag of Go does: one dash or two, never several letters in
// one word, and a value after = or in the next word.
func (t *optionTable) readFlag(word string, rest []string) (items []string, used int) {
	name, value, joined := strings.Cut(word, "=")
	if strings.HasPrefix(name, "--") {
		name = name[1:]
	}
	switch o := t.findOption(name); {
	case o == nil:
	case joined && o.value:
		if item := o.joinValue(value); item != "" {
			return []string{item}, 0
		}
	case joined:
	case !o.value || o.optional:
		return []string{name}, 0
	case len(rest) > 0:
		if item := o.joinValue(rest[0]); item != "" {
			return []string{item}, 1
		}
	}
	return nil, 0
}

// faultOf returns the reason why an item of the input is not permitted, or "".
func (t *optionTable) faultOf(item string) string {
	if t.open && (!strings.HasPrefix(item, "-") || t.isUnlisted(item)) {
		return ""
	}
	if items, _ := t.readWord(item, nil); len(items) == 1 && items[0] == item {
		return ""
	}
	name, _, _ := strings.Cut(item, "=")
	if o := t.findOption(name); o != nil && o.value && !o.optional {
		return "needs its value in the same argument, for example " + o.joinValue(strings.TrimSuffix(append(o.values, "VALUE")[0], "*"))
	}
	return "is not one of the options " + t.text
}
