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
	name     string         // as in items
	aliases  []string       // other names in a command line
	value    bool           // the option has a value
	optional bool           // the value may be missing; if present, it is attached
	next     bool           // the value of a command line is also the next word, if there is one; a number only if it is one
	equals   bool           // the value is joined with =, also to a name of one letter
	apart    bool           // a command line has the value in a word of its own
	pair     bool           // apart, and two words follow, which are one item: --name=first=second
	number   bool           // the value is a decimal number
	form     *regexp.Regexp // the value matches this entirely
	values   []string       // permitted values; a trailing * permits any ending, ./ a relative path; empty permits all
}

// belowHere permits the values that are relative paths below the working directory.
const belowHere = "./"

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
		case rest == "[=]" || rest == "[+]" || rest == "[#]":
			o.value, o.optional, o.next, o.number = true, true, rest != "[=]", rest == "[#]"
		case rest[0] == '=' || rest[0] == ':':
			o.value, o.apart = true, rest[0] == ':'
			if rest = rest[1:]; o.apart {
				rest, o.pair = strings.CutPrefix(rest, ":")
			}
			if wrong := o.limitValue(rest); wrong != "" {
				return nil, wrong
			}
		default:
			return nil, fmt.Sprintf("%q is not an option: write --flag, --name=, --name=a|b*|./, --name=#, --name=~RE, --name:, --name::, --name[=], --name[+], -n# or -n[#]", strictyaml.Clip(word))
		}
		for i, name := range names {
			switch bare := name == "-" && o.number && len(names) == 1; {
			case !bare && (len(name) < 2 || name[0] != '-' || name == "--"):
				return nil, fmt.Sprintf("%q does not begin with a dash and a name", strictyaml.Clip(word))
			case strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }):
				return nil, fmt.Sprintf("%q is not in ASCII", strictyaml.Clip(word))
			case t.findOption(name) != nil || slices.Contains(names[:i], name):
				return nil, fmt.Sprintf("%q is there twice", strictyaml.Clip(name))
			}
		}
		if o.apart && o.isShort() {
			return nil, fmt.Sprintf("%q has its value in a separate word, which needs a long name", strictyaml.Clip(word))
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

// limitValue reads the text after = or : in a table. The result describes what is wrong with it, or is "".
func (o *toolOption) limitValue(text string) string {
	form, matches := strings.CutPrefix(text, "~")
	switch {
	case text == "#" && !o.pair:
		o.number = true
	case matches && !o.pair:
		var err error
		if o.form, err = regexp.Compile(`\A(?:` + form + `)\z`); err != nil {
			return fmt.Sprintf("%q is not a regular expression that RE2 reads", strictyaml.Clip(form))
		}
	case text != "":
		o.values = strings.Split(text, "|")
	}
	return ""
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
	case o.form != nil && !o.form.MatchString(value):
		return ""
	case !o.permits(value):
		return ""
	case (o.isShort() || o.name == "-") && !o.equals:
		return o.name + value
	}
	return o.name + "=" + value
}

// permits reports whether one of the permitted values covers a value.
func (o *toolOption) permits(value string) bool {
	return len(o.values) == 0 || slices.ContainsFunc(o.values, func(p string) bool { return permitsValue(p, value) })
}

// permitsValue reports whether a permitted value of a table covers a value. A path does not begin with a dash, since - is
// a stream for tools, or with =, since -f=x has the value x for some tools. It has no colon, since x: can begin an address.
func permitsValue(permitted, value string) bool {
	start, any := strings.CutSuffix(permitted, "*")
	return value == permitted || any && strings.HasPrefix(value, start) ||
		permitted == belowHere && isSubpath(value) && !strings.ContainsAny(value[:1], "=-") && !strings.Contains(value, ":")
}

// joinPair is like joinValue for an option with two values. The first is a name without =.
func (o *toolOption) joinPair(first, second string) string {
	if first == "" || strings.Contains(first, "=") || !o.permits(second) {
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
	case o.isShort() && !o.equals:
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
	if t.flags {
		return t.readFlag(word, rest)
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
			if o.optional && o.number {
				return []string{o.name}, 0
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
	name, value, joined := strings.Cut(item, "=")
	o := t.findOption(name)
	if o != nil && o.pair {
		if first, second, two := strings.Cut(value, "="); two && o.joinPair(first, second) == item {
			return ""
		}
		return "needs two values in the same argument, for example " + o.name + "=NAME=VALUE"
	}
	if o != nil && o.apart && joined && o.joinValue(value) == item {
		return ""
	}
	if items, _ := t.readWord(item, nil); len(items) == 1 && items[0] == item {
		return ""
	}
	if o != nil && o.value && !o.optional {
		return "needs its value in the same argument, for example " + o.joinValue(strings.TrimSuffix(append(o.values, "VALUE")[0], "*"))
	}
	return "is not one of the options " + t.text
}
